//! What a decision of the scheduler takes on one core, with 512 features and 22 workers:
//! nanoseconds of a decision and of the completion that follows.
//!
//! ```text
//! cargo run --release -p nicol-protocols --example decision
//! ```

use std::hint::black_box;
use std::process::ExitCode;
use std::time::Instant;

use nicol_protocols::schedule::{FEATURES, Features, Planes, Ranking, Scheduler, Vectors};

/// Workers of AlNiCo's testbed, and keys of a transaction of YCSB-T.
const WORKERS: usize = 22;
const KEYS: usize = 16;
/// Requests under way: each client has one.
const OPEN: usize = 192;
const DECISIONS: usize = 4_000_000;

/// Numbers that look random, from a seed.
fn next(state: &mut u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

fn main() -> ExitCode {
    let mut state = 7;
    let mut request = || {
        let mut features = Features::default();
        (0..KEYS).for_each(|key| features.add(next(&mut state) as usize % FEATURES, key % 2 == 0));
        features
    };
    let requests: Vec<Features> = (0..1_024).map(|_| request()).collect();
    for (name, ranking) in [("improved", Ranking::Improved), ("artifact", Ranking::Artifact)] {
        let mut scheduler = Scheduler::new(WORKERS, ranking, Planes::Two);
        // Every feature weighs, which is the worst there is; 22 are steered.
        let mut vectors = Vectors { epoch: 1, ..Vectors::none() };
        vectors.weights.fill(9);
        (0..WORKERS).for_each(|worker| vectors.steering[worker * 20] = worker as u8);
        scheduler.publish(&vectors);
        let mut open = vec![(0, Features::default()); OPEN];
        let began = Instant::now();
        for turn in 0..DECISIONS {
            let request = &requests[turn % requests.len()];
            let (worker, done) = &mut open[turn % OPEN];
            if turn >= OPEN {
                scheduler.done(*worker, done);
            }
            let winner = scheduler.decide(request, turn).expect("queues are short");
            (*worker, *done) = (black_box(winner), *request);
        }
        let whole = began.elapsed().as_nanos() as f64 / DECISIONS as f64;
        let began = Instant::now();
        for turn in 0..DECISIONS {
            black_box(scheduler.ranks(&requests[turn % requests.len()]));
        }
        let ranks = began.elapsed().as_nanos() as f64 / DECISIONS as f64;
        println!(
            "{name}: {whole:.1} ns a decision with its completion, of which ranks {ranks:.1} ns"
        );
    }
    ExitCode::SUCCESS
}
