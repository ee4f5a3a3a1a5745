//! How long the serializability checker takes for a million transactions, half of which scan ranges
//! in which others insert and delete.
//!
//! `cargo run --release -p nicol-check --example transactions_speed`

use std::time::Instant;

use nicol_check::serializability;
use nicol_core::history::{
    Action, Effect, End, History, Initial, Key, Loaded, Operation, Promise, Read, Scan, Txn, Write,
};
use nicol_core::rng::{Purpose, Stream};

const TRANSACTIONS: u64 = 1_000_000;
const CLIENTS: u64 = 64;
/// Keys of a range that is scanned.
const RANGE: u64 = 16;

/// A record: its version, and the digest of its value unless it is absent.
type State = (u64, Option<u64>);

fn read(key: u64, state: State) -> Read {
    let (version, digest) = state;
    Read { key: Key::Number(key), present: digest.is_some(), version: Some(version), digest }
}

/// Installs `digest` under `key`, or a deletion.
fn write(key: u64, state: &mut State, digest: Option<u64>) -> Write {
    *state = (state.0 + 1, digest);
    let effect = digest.map_or(Effect::Delete, |digest| Effect::Put { digest: Some(digest) });
    Write { key: Key::Number(key), effect, version: Some(state.0) }
}

/// An honest history: each transaction takes effect in the middle of its interval, one a tick. Of
/// every four, two scan (if asked to), one updates two records, and one inserts a record or deletes
/// it. Of the transactions that write, `unknown_percent` have no known outcome.
fn honest(scans: bool, keys: u64, unknown_percent: u64) -> History {
    let mut random = Stream::new(1, Purpose::Test, 0);
    // Every other key is there at first.
    let mut state: Vec<State> =
        (0..keys).map(|key| if key % 2 == 0 { (1, Some(0)) } else { (0, None) }).collect();
    let loaded = |key| Loaded { key: Key::Number(key), version: 1, digest: Some(0) };
    let mut operations = Vec::new();
    for id in 1..=TRANSACTIONS {
        let (client, sequence) = (id % CLIENTS, id / CLIENTS);
        let mut txn = Txn::default();
        let kind = random.below(4);
        let key = random.below(keys);
        match kind {
            0 | 1 if scans => {
                let last = (key + RANGE - 1).min(keys - 1);
                let there = (key..=last).map(|key| read(key, state[key as usize]));
                txn.scans.push(Scan {
                    first: Key::Number(key),
                    last: Key::Number(last),
                    backward: false,
                    limit: None,
                    found: there.filter(|read| read.present).collect(),
                });
            }
            0 | 1 => {
                let other = (key + 1) % keys;
                txn.reads = [key, other].map(|key| read(key, state[key as usize])).to_vec();
            }
            2 => {
                let other = (key + 1 + random.below(keys - 1)) % keys;
                for key in [key, other] {
                    let state = &mut state[key as usize];
                    txn.reads.push(read(key, *state));
                    txn.writes.push(write(key, state, Some(id)));
                }
            }
            _ => {
                let state = &mut state[key as usize];
                txn.reads.push(read(key, *state));
                let digest = if state.1.is_some() { None } else { Some(id) };
                txn.writes.push(write(key, state, digest));
            }
        }
        let unknown = !txn.writes.is_empty() && random.below(100) < unknown_percent;
        operations.push(Operation {
            client: client as u32,
            sequence,
            id,
            invoked: id + CLIENTS / 2,
            responded: Some(id + CLIENTS + CLIENTS / 2),
            end: if unknown { End::Unknown } else { End::Ok },
            action: Action::Txn(txn),
        });
    }
    History {
        promise: Promise::StrictSerializable,
        initial: Initial::Listed((0..keys).step_by(2).map(loaded).collect()),
        operations,
        ..History::default()
    }
}

fn main() {
    let cases = [
        ("point reads", false, 10_000, 0),
        ("scans", true, 100_000, 0),
        ("scans, few keys", true, 1_000, 0),
        ("scans, 1 % of the writers unknown", true, 100_000, 1),
    ];
    for (name, scans, keys, unknown_percent) in cases {
        let history = honest(scans, keys, unknown_percent);
        let started = Instant::now();
        let report = serializability::check(&history);
        let seconds = started.elapsed().as_secs_f64();
        let verdict = match &report.undecided {
            None if report.held() => "strictly serializable".to_owned(),
            None => format!("NOT serializable: {}", report.violations[0]),
            Some(why) => format!("UNDECIDED: {why}"),
        };
        println!("{name}: {TRANSACTIONS} transactions on {keys} keys, {verdict}, {seconds:.2} s");
    }
}
