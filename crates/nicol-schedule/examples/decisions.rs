//! Writes a trace of what AlNiCo's scheduler is asked and decides, for the hardware's testbench
//! (`rtl/testbench.cpp` says how it is laid out): in the artifact's ranking and with one plane of
//! features, or with `improved` in the other ranking and with two planes.
//!
//! ```text
//! cargo run --release -p nicol-schedule --example decisions -- 1000000 | obj_dir/Vscheduler 500000
//! ```

use std::collections::VecDeque;
use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use nicol_core::rng::{Purpose, Stream};
use nicol_schedule::{FEATURES, Features, NONE, Planes, Ranking, Scheduler, Vectors};

/// The workers of the artifact, and the requests under way: 48 clients with 4 slots each. (C2.06)
const WORKERS: usize = 24;
const OPEN: usize = 192;
/// Hints, and workers that steer, as five bits have them: more than there are workers.
const HINTS: u64 = 32;
/// Requests between two publications of vectors, about.
const EPOCH: u64 = 5_000;
/// Steering, on the wire, of a feature that nobody steers.
const NOBODY: u8 = 31;

/// What is touched, and what of that is written.
fn vector(features: &Features) -> Vec<u8> {
    let planes = features.touched().iter().chain(features.written());
    planes.flat_map(|word| word.to_le_bytes()).collect()
}

fn vectors(random: &mut Stream, epoch: u64) -> Vectors {
    let mut vectors = Vectors { epoch, ..Vectors::none() };
    // From none to all features weigh, up to all that 8 bits hold.
    let (some, most) = (random.below(FEATURES as u64), 1 + random.below(256));
    for weight in vectors.weights.iter_mut() {
        *weight = if random.below(FEATURES as u64) < some { random.below(most) as u8 } else { 0 };
    }
    // Some name workers that are not there.
    for worker in 0..random.below(HINTS + 1) {
        vectors.steering[random.below(FEATURES as u64) as usize] = worker as u8;
    }
    vectors
}

fn trace(requests: u64, ranking: Ranking, to: &mut impl Write) -> io::Result<()> {
    let mut random = Stream::new(1, Purpose::Test, 0);
    let planes = match ranking {
        Ranking::Artifact => Planes::One,
        Ranking::Improved => Planes::Two,
    };
    let mut scheduler = Scheduler::new(WORKERS, ranking, planes);
    let mut open: VecDeque<(usize, Features)> = VecDeque::new();
    for request in 0..requests {
        if random.below(EPOCH) == 0 || request == 10 {
            let vectors = vectors(&mut random, request + 1);
            assert!(scheduler.publish(&vectors), "epochs grow");
            to.write_all(b"V")?;
            to.write_all(&vectors.weights[..])?;
            to.write_all(
                &vectors.steering.map(|worker| if worker == NONE { NOBODY } else { worker }),
            )?;
        }
        if open.len() == OPEN || (!open.is_empty() && random.below(64) == 0) {
            let at = random.below(open.len() as u64) as usize;
            let (worker, features) = open.swap_remove_back(at).expect("it is open");
            scheduler.done(worker, &features);
            to.write_all(b"D")?;
            to.write_all(&vector(&features))?;
            to.write_all(&[worker as u8])?;
        }
        let mut features = Features::default();
        let keys = if random.below(100) == 0 { FEATURES as u64 } else { random.below(33) };
        for _ in 0..keys {
            // Half of them among few: requests meet.
            let among = if random.below(2) == 0 { 24 } else { FEATURES as u64 };
            let feature = random.below(among) as usize;
            features.add(feature, planes == Planes::Two && random.below(2) == 0);
        }
        // Some clients hint at workers that are not there.
        let hint = random.below(HINTS) as usize;
        let worker = scheduler.decide(&features, hint).expect("192 requests fill no queue");
        open.push_back((worker, features));
        to.write_all(b"R")?;
        to.write_all(&vector(&features))?;
        to.write_all(&[hint as u8, worker as u8])?;
    }
    to.flush()
}

fn main() -> ExitCode {
    let requests = std::env::args().nth(1).and_then(|word| word.parse().ok()).unwrap_or(1_000_000);
    let ranking = match std::env::args().nth(2).as_deref() {
        None => Ranking::Artifact,
        Some("improved") => Ranking::Improved,
        Some(other) => {
            eprintln!("decisions: there is no ranking {other:?}: give improved, or leave it out");
            return ExitCode::FAILURE;
        }
    };
    match trace(requests, ranking, &mut BufWriter::new(io::stdout().lock())) {
        Ok(()) => ExitCode::SUCCESS,
        // Whoever reads it has found a difference, and says so.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("decisions: {error}");
            ExitCode::FAILURE
        }
    }
}
