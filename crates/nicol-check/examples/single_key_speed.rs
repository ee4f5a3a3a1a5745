//! How long the checkers of single keys take for a million operations, by decider.
//!
//! `cargo run --release -p nicol-check --example single_key_speed`

use std::time::Instant;

use nicol_check::linearizability::{self, STATES_MAX};
use nicol_core::history::{
    Action, Effect, End, Found, History, Initial, Key, Loaded, Operation, Write,
};
use nicol_core::rng::{Purpose, Stream};

const OPERATIONS: u64 = 1_000_000;
const CLIENTS: u32 = 64;

/// Values that a key's writes put: all different, or few.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Different,
    Few,
}

/// An honest history: half reads; each operation takes effect in the middle of its interval. Of the
/// writes, `unknown_percent` have no known outcome.
fn honest(versions: bool, values: Values, keys: u64, unknown_percent: u64) -> History {
    let mut random = Stream::new(1, Purpose::Test, 0);
    let mut state: Vec<(u64, u64)> = vec![(1, 0); keys as usize];
    let loaded = |key| Loaded { key: Key::Number(key), version: 1, digest: Some(0) };
    let mut operations = Vec::new();
    for id in 1..=OPERATIONS {
        // One effect per tick; clients take turns, so that as many operations overlap.
        let client = (id % u64::from(CLIENTS)) as u32;
        let (sequence, half) = (id / u64::from(CLIENTS), u64::from(CLIENTS) / 2);
        let (invoked, responded) = (id + CLIENTS as u64 - half, Some(id + CLIENTS as u64 + half));
        let number = random.below(keys);
        let (key, cell) = (Key::Number(number), &mut state[number as usize]);
        let action = if random.below(2) == 0 {
            let version = versions.then_some(cell.0);
            let found = Found { present: true, version, digest: Some(cell.1) };
            Action::Get { key, found: Some(found) }
        } else {
            let digest = if values == Values::Few { random.below(4) } else { id };
            *cell = (cell.0 + 1, digest);
            let effect = Effect::Put { digest: Some(digest) };
            let write = Write { key, effect, version: versions.then_some(cell.0) };
            Action::Put { write, scope: None }
        };
        let unknown = matches!(action, Action::Put { .. }) && random.below(100) < unknown_percent;
        let end = if unknown { End::Unknown } else { End::Ok };
        operations.push(Operation { client, sequence, id, invoked, responded, end, action });
    }
    let initial = Initial::Listed((0..keys).map(loaded).collect());
    History { initial, operations, ..History::default() }
}

fn main() {
    let cases = [
        ("versions", true, Values::Different, 1_000, 0),
        ("versions, one key", true, Values::Different, 1, 0),
        ("versions, one key, 1 % unknown", true, Values::Different, 1, 1),
        ("different values", false, Values::Different, 1_000, 0),
        ("different values, one key, 1 % unknown", false, Values::Different, 1, 1),
        ("repeated values, search", false, Values::Few, 1_000, 0),
    ];
    for (name, versions, values, keys, unknown_percent) in cases {
        let history = honest(versions, values, keys, unknown_percent);
        let started = Instant::now();
        let report = linearizability::check(&history, STATES_MAX);
        let verdict = if report.holds() { "linearizable" } else { "NOT shown linearizable" };
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{name}: {OPERATIONS} operations on {} keys, {verdict}, {seconds:.2} s",
            report.keys
        );
    }
}
