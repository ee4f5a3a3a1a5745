//! How long the checkers of single keys take for a million operations, by decider.
//!
//! `cargo run --release -p nicol-check --example single_key_speed`

use std::time::Instant;

use nicol_check::linearizability::{self, Bound};
use nicol_core::history::{
    Action, Effect, End, Found, History, Initial, Key, Loaded, Operation, Write,
};
use nicol_core::rng::{Purpose, Stream};

const OPERATIONS: u64 = 1_000_000;
const CLIENTS: u32 = 64;

/// Values that a key's writes put: all different, few, or all different beside 4 % of deletions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Values {
    Different,
    Few,
    Deletions,
}

/// An honest history: half reads; each operation takes effect in the middle of its interval. Of the
/// writes, `unknown_percent` have no known outcome.
fn honest(case: &Case) -> History {
    let Case { versions, values, keys, unknown_percent, clients, .. } = *case;
    let mut random = Stream::new(1, Purpose::Test, 0);
    let mut state: Vec<(u64, Option<u64>)> = vec![(1, Some(0)); keys as usize];
    let loaded = |key| Loaded { key: Key::Number(key), version: 1, digest: Some(0) };
    let mut operations = Vec::new();
    for id in 1..=case.operations {
        // One effect per tick; clients take turns, so that as many operations overlap.
        let client = (id % u64::from(clients)) as u32;
        let (sequence, half) = (id / u64::from(clients), u64::from(clients) / 2);
        let (invoked, responded) =
            (id + u64::from(clients) - half, Some(id + u64::from(clients) + half));
        let number = random.below(keys);
        let (key, cell) = (Key::Number(number), &mut state[number as usize]);
        let action = if random.below(2) == 0 {
            let version = versions.then_some(cell.0);
            let found = Found { present: cell.1.is_some(), version, digest: cell.1 };
            Action::Get { key, found: Some(found) }
        } else {
            let deletes = values == Values::Deletions && random.below(100) < 4;
            let digest = if values == Values::Few { random.below(4) } else { id };
            *cell = (cell.0 + 1, (!deletes).then_some(digest));
            let version = versions.then_some(cell.0);
            match deletes {
                true => {
                    let write = Write { key, effect: Effect::Delete, version };
                    Action::Delete { write, scope: None }
                }
                false => {
                    let effect = Effect::Put { digest: Some(digest) };
                    Action::Put { write: Write { key, effect, version }, scope: None }
                }
            }
        };
        let unknown = !matches!(action, Action::Get { .. }) && random.below(100) < unknown_percent;
        let end = if unknown { End::Unknown } else { End::Ok };
        operations.push(Operation { client, sequence, id, invoked, responded, end, action });
    }
    let initial = Initial::Listed((0..keys).map(loaded).collect());
    History { initial, operations, ..History::default() }
}

/// A history, and how many operations it has.
struct Case {
    name: &'static str,
    versions: bool,
    values: Values,
    keys: u64,
    unknown_percent: u64,
    clients: u32,
    operations: u64,
}

const MANY: Case = Case {
    name: "versions",
    versions: true,
    values: Values::Different,
    keys: 1_000,
    unknown_percent: 0,
    clients: CLIENTS,
    operations: OPERATIONS,
};

fn main() {
    let without = || Case { versions: false, ..MANY };
    let deletions = || Case { keys: 1, values: Values::Deletions, operations: 20_000, ..without() };
    let cases = [
        MANY,
        Case { name: "versions, one key", keys: 1, ..MANY },
        Case { name: "versions, one key, 1 % unknown", keys: 1, unknown_percent: 1, ..MANY },
        Case { name: "different values", ..without() },
        Case {
            name: "different values, one key, 1 % unknown",
            keys: 1,
            unknown_percent: 1,
            ..without()
        },
        Case { name: "repeated values, search", values: Values::Few, ..without() },
        Case { name: "one key, 2 % deletions, 64 clients", ..deletions() },
        Case {
            name: "one key, 2 % deletions, 1 % unknown, 64 clients",
            unknown_percent: 2,
            ..deletions()
        },
        Case {
            name: "one key, 2 % deletions, 1 % unknown, 8 clients",
            unknown_percent: 2,
            clients: 8,
            ..deletions()
        },
    ];
    for case in cases {
        let history = honest(&case);
        let started = Instant::now();
        let report = linearizability::check(&history, Bound::default());
        let verdict = if report.holds() { "linearizable" } else { "NOT shown linearizable" };
        let seconds = started.elapsed().as_secs_f64();
        println!(
            "{}: {} operations on {} keys, {verdict}, {seconds:.2} s",
            case.name, case.operations, report.keys
        );
    }
}
