//! Tiny random histories: honest ones, and honest ones with something changed.

use nicol_core::history::{
    Action, Effect, End, History, Initial, Key, Loaded, Operation, Promise, Read, Scan, Txn, Write,
};
use nicol_core::rng::Stream;

/// Keys of a history.
const KEYS: u64 = 3;
/// Values of a history.
const VALUES: u64 = 3;

#[derive(Clone, Copy, Default)]
struct State {
    version: u64,
    present: bool,
    value: u64,
}

/// How often something happens, in percent.
fn chance(random: &mut Stream, percent: u64) -> bool {
    random.below(100) < percent
}

/// What a history has much of, in percent.
#[derive(Clone, Copy)]
pub struct Chances {
    strict: u64,
    unknown: u64,
    /// Of what is unknown: may have written what its client does not know.
    hides: u64,
    scans: u64,
}

/// All kinds of histories.
pub const PLAIN: Chances = Chances { strict: 85, unknown: 20, hides: 15, scans: 30 };
/// Many explanations, that contradict each other.
pub const KNOTTED: Chances = Chances { strict: 20, unknown: 30, hides: 10, scans: 70 };

/// A history that really happened.
pub fn honest(chances: Chances, random: &mut Stream) -> History {
    let mut states = [State::default(); KEYS as usize];
    let mut loaded = Vec::new();
    for key in 0..KEYS {
        if chance(random, 50) {
            let value = random.below(VALUES);
            states[key as usize] = State { version: 1, present: true, value };
            let digest = chance(random, 80).then_some(value);
            loaded.push(Loaded { key: Key::Number(key), version: 1, digest });
        }
    }
    let mut clients = [(0, 0); 3];
    let count = 2 + random.below(5);
    let mut operations: Vec<(u64, Operation)> = (0..count)
        .map(|id| {
            let client = random.below(clients.len() as u64);
            let (free, sequence) = clients[client as usize];
            let invoked = free + random.below(4);
            let point = invoked + random.below(5);
            let responded = point + random.below(5);
            clients[client as usize] = (responded, sequence + 1);
            let end = match random.below(100) {
                drawn if drawn < chances.unknown => End::Unknown,
                90.. => End::Failed,
                _ => End::Ok,
            };
            let action = Action::Txn(Txn::default());
            let (client, responded) = (client as u32, Some(responded));
            (point, Operation { client, sequence, id, invoked, responded, end, action })
        })
        .collect();
    operations.sort_by_key(|(point, _)| *point);
    for (_, operation) in &mut operations {
        operation.action = Action::Txn(run(operation.end, &mut states, chances, random));
    }
    let promise = if chance(random, chances.strict) {
        Promise::StrictSerializable
    } else if chance(random, 50) {
        Promise::SessionSerializable
    } else {
        Promise::Serializable
    };
    let operations = operations.into_iter().map(|(_, operation)| operation).collect();
    History { promise, initial: Initial::Listed(loaded), operations, crashes: Vec::new() }
}

/// Runs a transaction that ends by `end`; returns what its client knows.
fn run(
    end: End,
    states: &mut [State; KEYS as usize],
    chances: Chances,
    random: &mut Stream,
) -> Txn {
    let mut txn = Txn::default();
    for key in 0..KEYS {
        if chance(random, 40) {
            txn.reads.push(read(key, &mut states[key as usize], random));
        }
    }
    if chance(random, chances.scans) {
        txn.scans.push(scan(states, random));
    }
    let effective = end == End::Ok || end == End::Unknown && chance(random, 60);
    let hides = end == End::Unknown && chance(random, chances.hides);
    txn.writes_more = hides;
    for key in 0..KEYS {
        if !chance(random, 35) {
            continue;
        }
        let state = &mut states[key as usize];
        let version = state.version + 1 + random.below(2) * random.below(2);
        let after = State { version, present: chance(random, 65), value: random.below(VALUES) };
        if effective {
            *state = after;
        }
        if !hides || chance(random, 30) {
            txn.writes.extend(write(key, &after, end, random));
        }
    }
    txn
}

fn read(key: u64, state: &mut State, random: &mut Stream) -> Read {
    if !state.present && chance(random, 20) {
        // An absence may be told with a higher floor, which later versions must exceed.
        state.version += random.below(2);
    }
    let told = state.present || chance(random, 75);
    Read {
        key: Key::Number(key),
        present: state.present,
        version: told.then_some(state.version),
        digest: (state.present && chance(random, 70)).then_some(state.value),
    }
}

fn write(key: u64, after: &State, end: End, random: &mut Stream) -> Vec<Write> {
    let digest = chance(random, 70).then_some(after.value);
    let effect = if after.present { Effect::Put { digest } } else { Effect::Delete };
    let key = Key::Number(key);
    if end == End::Unknown && chance(random, 60) {
        let effect = if chance(random, 60) { Effect::Unknown } else { effect };
        return vec![Write { key, effect, version: None }];
    }
    let last = Write { key: key.clone(), effect, version: Some(after.version) };
    if after.version > 1 && chance(random, 5) {
        let first = Write { key, effect: Effect::Delete, version: Some(after.version - 1) };
        return vec![first, last];
    }
    vec![last]
}

fn scan(states: &mut [State; KEYS as usize], random: &mut Stream) -> Scan {
    let (one, other) = (random.below(KEYS), random.below(KEYS));
    let (first, last) = (one.min(other), one.max(other));
    let backward = chance(random, 30);
    let limit = chance(random, 50).then(|| random.below(3) as u32);
    let mut keys: Vec<u64> = (first..=last).filter(|key| states[*key as usize].present).collect();
    if backward {
        keys.reverse();
    }
    keys.truncate(limit.map_or(usize::MAX, |limit| limit as usize));
    let found = keys.into_iter().map(|key| read(key, &mut states[key as usize], random)).collect();
    let (first, last) = (Key::Number(first), Key::Number(last));
    Scan { first, last, backward, limit, found }
}

/// Changes something of what the clients saw or did.
pub fn change(history: &mut History, random: &mut Stream) {
    if chance(random, 10) {
        let Initial::Listed(loaded) = &mut history.initial else { return };
        let key = Key::Number(random.below(KEYS));
        match loaded.iter().position(|record| record.key == key) {
            Some(at) => drop(loaded.remove(at)),
            None => loaded.push(Loaded { key, version: 1, digest: None }),
        }
        return;
    }
    let at = random.below(history.operations.len() as u64) as usize;
    let operation = &mut history.operations[at];
    match random.below(8) {
        0 => operation.end = [End::Ok, End::Failed, End::Unknown][random.below(3) as usize],
        1 => {
            operation.invoked += random.below(6);
            operation.responded = operation.responded.map(|at| at + random.below(6));
        }
        2 => operation.invoked = operation.invoked.saturating_sub(random.below(6)),
        _ => {
            let Action::Txn(txn) = &mut operation.action else { return };
            change_txn(txn, random);
        }
    }
}

fn change_txn(txn: &mut Txn, random: &mut Stream) {
    let pick = random.bits() as usize;
    let step = 1 + random.below(2);
    match random.below(4) {
        0 | 1 if !txn.reads.is_empty() => {
            let at = pick % txn.reads.len();
            change_read(&mut txn.reads[at], step, random);
        }
        2 if !txn.writes.is_empty() => {
            let at = pick % txn.writes.len();
            let write = &mut txn.writes[at];
            match random.below(3) {
                0 => write.version = write.version.map(|version| version + step),
                1 => write.version = write.version.map(|version| version.saturating_sub(step)),
                _ if write.effect != Effect::Unknown => {
                    let digest = Some(random.below(VALUES));
                    let put = Effect::Put { digest };
                    write.effect =
                        if write.effect == Effect::Delete { put } else { Effect::Delete };
                }
                _ => {}
            }
        }
        _ if !txn.scans.is_empty() => {
            let at = pick % txn.scans.len();
            let found = &mut txn.scans[at].found;
            match random.below(3) {
                0 => drop(found.pop()),
                1 if !found.is_empty() => drop(found.remove(0)),
                _ if !found.is_empty() => {
                    let at = pick % found.len();
                    change_read(&mut found[at], step, random);
                    found[at].present = true;
                    found[at].version.get_or_insert(step);
                }
                _ => {}
            }
        }
        _ => {}
    }
}

fn change_read(read: &mut Read, step: u64, random: &mut Stream) {
    match random.below(4) {
        0 => read.version = read.version.map(|version| version + step),
        1 => read.version = read.version.map(|version| version.saturating_sub(step)),
        2 if read.present => read.digest = Some(random.below(VALUES)),
        _ => {
            read.present = !read.present;
            read.digest = None;
            if read.present {
                read.version.get_or_insert(step);
            }
        }
    }
}
