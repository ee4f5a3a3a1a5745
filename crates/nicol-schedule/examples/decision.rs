//! What a decision of the scheduler takes on one core, with 512 features and 22 workers:
//! nanoseconds of a decision, and of the completion that follows it later, with AVX2 and without.
//!
//! ```text
//! cargo run --release -p nicol-schedule --example decision
//! ```

use std::hint::black_box;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nicol_schedule::{FEATURES, Features, Planes, Ranking, Scheduler, Vectors};

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
    let rankings = [Ranking::Improved, Ranking::Artifact];
    let forms = rankings.into_iter().flat_map(|ranking| {
        let machine = Scheduler::new(WORKERS, ranking, Planes::Two);
        [(ranking, "as the machine is", machine.clone()), (ranking, "portable", machine.portable())]
    });
    for (ranking, form, mut scheduler) in forms {
        // Every feature weighs, which is the worst there is; 22 are steered.
        let mut vectors = Vectors { epoch: 1, ..Vectors::none() };
        vectors.weights.fill(9);
        (0..WORKERS).for_each(|worker| vectors.steering[worker * 20] = worker as u8);
        scheduler.publish(&vectors);
        let mut open = vec![(0, &requests[0]); OPEN];
        let (mut deciding, mut completing) = (Duration::ZERO, Duration::ZERO);
        for batch in 0..DECISIONS / OPEN {
            let began = Instant::now();
            for (turn, open) in open.iter_mut().enumerate() {
                let request = &requests[(batch * OPEN + turn) % requests.len()];
                let winner = scheduler.decide(request, turn).expect("queues are short");
                *open = (black_box(winner), request);
            }
            let decided = Instant::now();
            open.iter().for_each(|(worker, done)| scheduler.done(*worker, done));
            deciding += decided - began;
            completing += decided.elapsed();
        }
        let each = |time: Duration| time.as_nanos() as f64 / DECISIONS as f64;
        let began = Instant::now();
        for turn in 0..DECISIONS {
            black_box(scheduler.ranks(&requests[turn % requests.len()]));
        }
        println!(
            "{ranking:?}, {form}: {:.1} ns a decision, of which ranks {:.1} ns; {:.1} ns a completion",
            each(deciding),
            each(began.elapsed()),
            each(completing)
        );
    }
    ExitCode::SUCCESS
}
