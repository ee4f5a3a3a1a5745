//! Strict serializability by its definition: tries every order of the operations and every effect
//! that an unknown one can have had. Shares nothing with the checker.

use std::collections::{BTreeMap, BTreeSet};

use nicol_core::history::{
    Action, Effect, End, History, Initial, Key, Loaded, Operation, Promise, Read, Scan, Txn, Write,
};

/// A record, or none: the version of its last write, the highest version at which it was read
/// absent since then, and the hash of its value if anybody has told it.
#[derive(Clone, Copy, Default)]
struct State {
    version: u64,
    floor: u64,
    present: bool,
    digest: Option<u64>,
}

type States = BTreeMap<Key, State>;

/// Is there an order of the operations in which each saw what it says?
pub fn holds(history: &History) -> bool {
    match &history.initial {
        Initial::Listed(loaded) => holds_from(history, loaded),
        // Whatever was loaded was there at version 1.
        Initial::Untold => {
            let names: BTreeSet<Key> = names(history).into_iter().collect();
            (0..1_u32 << names.len()).any(|set| {
                let chosen = names.iter().enumerate().filter(|(at, _)| set >> at & 1 == 1);
                let record = |key: &Key| Loaded { key: key.clone(), version: 1, digest: None };
                let loaded: Vec<Loaded> = chosen.map(|(_, key)| record(key)).collect();
                holds_from(history, &loaded)
            })
        }
    }
}

fn holds_from(history: &History, loaded: &[Loaded]) -> bool {
    let mut states: States =
        names(history).into_iter().map(|key| (key, State::default())).collect();
    for record in loaded {
        let state =
            State { version: record.version, floor: 0, present: true, digest: record.digest };
        states.insert(record.key.clone(), state);
    }
    let live: Vec<&Operation> =
        history.operations.iter().filter(|operation| operation.end != End::Failed).collect();
    extend(&live, history.promise, &states)
}

/// Every key that is written or read.
fn names(history: &History) -> Vec<Key> {
    let txns = history.operations.iter().map(txn);
    txns.flat_map(|txn| {
        let scans = txn.scans.iter().flat_map(|scan| scan.found.iter());
        let reads = txn.reads.iter().chain(scans).map(|read| read.key.clone());
        reads.chain(txn.writes.iter().map(|write| write.key.clone())).collect::<Vec<_>>()
    })
    .collect()
}

fn txn(operation: &Operation) -> &Txn {
    match &operation.action {
        Action::Txn(txn) => txn,
        other => panic!("only transactions are tried: {other:?}"),
    }
}

/// Can `left` be run, one after the other, from `states`?
fn extend(left: &[&Operation], promise: Promise, states: &States) -> bool {
    if left.iter().all(|operation| operation.end == End::Unknown) {
        return true;
    }
    (0..left.len()).any(|at| {
        let next = left[at];
        let rest: Vec<&Operation> = left
            .iter()
            .enumerate()
            .filter(|(other, _)| *other != at)
            .map(|(_, one)| *one)
            .collect();
        let before_next = |other: &&Operation| {
            let earlier = if other.client == next.client {
                promise != Promise::Serializable && other.sequence < next.sequence
            } else {
                promise == Promise::StrictSerializable && other.responded < Some(next.invoked)
            };
            other.end == End::Ok && earlier
        };
        if rest.iter().any(before_next) {
            return false;
        }
        let mut states = states.clone();
        look(txn(next), &mut states)
            && write(txn(next), 0, &mut states, &mut |states| extend(&rest, promise, states))
    })
}

/// Does the transaction see in `states` what it says that it saw?
fn look(txn: &Txn, states: &mut States) -> bool {
    txn.reads.iter().all(|read| see(read, states))
        && txn.scans.iter().all(|scan| range(scan, states))
}

fn see(read: &Read, states: &mut States) -> bool {
    let state = states.get_mut(&read.key).expect("every key has a state");
    if state.present != read.present {
        return false;
    }
    if !read.present {
        let fits = read.version.is_none_or(|version| state.version <= version);
        state.floor = read.version.unwrap_or(0).max(state.floor);
        return fits;
    }
    let value = state.digest.is_none_or(|wrote| read.digest.is_none_or(|saw| saw == wrote));
    state.digest = state.digest.or(read.digest);
    value && read.version == Some(state.version)
}

fn range(scan: &Scan, states: &mut States) -> bool {
    let there = states.iter().filter(|(_, state)| state.present).map(|(key, _)| key);
    let mut keys: Vec<Key> =
        there.filter(|key| scan.first <= **key && **key <= scan.last).cloned().collect();
    if scan.backward {
        keys.reverse();
    }
    keys.truncate(scan.limit.map_or(usize::MAX, |limit| limit as usize));
    keys == scan.found.iter().map(|read| read.key.clone()).collect::<Vec<_>>()
        && scan.found.iter().all(|read| see(read, states))
}

/// Tries what the writes from position `at` may do to `states`, and then what follows.
fn write(txn: &Txn, at: usize, states: &mut States, then: &mut dyn FnMut(&States) -> bool) -> bool {
    let Some(write) = txn.writes.get(at) else {
        return if txn.writes_more { more(txn, 0, states, then) } else { then(states) };
    };
    if txn.writes[at + 1..].iter().any(|later| later.key == write.key) {
        // Nobody sees what the transaction itself replaces.
        return self::write(txn, at + 1, states, then);
    }
    let mut go_on = |states: &mut States| self::write(txn, at + 1, states, then);
    effects(write, states, &mut go_on)
}

/// Tries the effects of one write.
fn effects(write: &Write, states: &mut States, go_on: &mut dyn FnMut(&mut States) -> bool) -> bool {
    let before = states[&write.key];
    let above = before.version.max(before.floor);
    let versions = match write.version {
        Some(version) => version..=version,
        None => above + 1..=above + 6,
    };
    let effects = match write.effect {
        Effect::Unknown => {
            if go_on(states) {
                return true;
            }
            vec![Effect::Put { digest: None }, Effect::Delete]
        }
        known => vec![known],
    };
    let found = versions.filter(|version| *version > above).any(|version| {
        effects.iter().any(|effect| {
            let (present, digest) = match effect {
                Effect::Put { digest } => (true, *digest),
                Effect::Delete | Effect::Unknown => (false, None),
            };
            states.insert(write.key.clone(), State { version, floor: 0, present, digest });
            go_on(states)
        })
    });
    states.insert(write.key.clone(), before);
    found
}

/// Tries what a transaction may have written that its client does not know.
fn more(txn: &Txn, at: usize, states: &mut States, then: &mut dyn FnMut(&States) -> bool) -> bool {
    let Some(key) = states.keys().nth(at).cloned() else { return then(states) };
    if txn.writes.iter().any(|write| write.key == key) {
        return more(txn, at + 1, states, then);
    }
    let unknown = Write { key, effect: Effect::Unknown, version: None };
    effects(&unknown, states, &mut |states| more(txn, at + 1, states, then))
}
