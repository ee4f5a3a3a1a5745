//! What is done to an honest history, and whether it is wrong then.

use nicol_core::history::{Action, Effect, End, Found, Initial, Key, Operation, Read, Scan, Write};
use nicol_core::rng::Stream;

use super::honest::{Drawn, KEYS, Wrote, number};

/// Changes a history; false if it has no place for the change.
pub type Change = fn(&mut Drawn, &mut Stream) -> bool;

/// Name, whether the result is wrong, and the change.
pub const KINDS: &[(&str, bool, Change)] = &[
    ("a read misses a write that had ended", true, stale_read),
    ("a read is older than one before it", true, inversion),
    ("a read returns what is written later", true, future_read),
    ("a write begins after it was read", true, late_write),
    ("a read returns what nobody wrote", true, |drawn, random| {
        get(drawn, random, |found| {
            (found.digest, found.version) = (Some(7), found.version.map(|version| version + 1_000));
        })
    }),
    ("a read returns other bytes", true, |drawn, random| {
        get(drawn, random, |found| {
            found.digest = found.digest.map(|digest| digest ^ (1 << 40));
        })
    }),
    ("a read moved to another key", true, other_key),
    ("a write that was read is refused", true, |drawn, random| {
        end(drawn, random, true, End::Failed)
    }),
    ("a write that was read is missing", true, |drawn, random| drop_write(drawn, random, true)),
    ("a refused write is read", true, refused_read),
    ("an unknown write is seen around another one", true, seen_twice),
    ("what was loaded and read was not", true, |drawn, random| load(drawn, random, true)),
    ("what was loaded had other bytes", true, |drawn, random| load(drawn, random, false)),
    ("the last read returns the load", true, |drawn, _| last_read(drawn, 0)),
    ("a client does not read its own write", true, own_write),
    ("a scan misses a record", true, |drawn, _| scan(drawn, 1, false)),
    ("a scan returns an old value", true, |drawn, _| scan(drawn, 0, true)),
    ("two writes of one version", true, |drawn, random| versions(drawn, random, false)),
    ("two writes with swapped versions", true, |drawn, random| versions(drawn, random, true)),
    ("a deleted record comes back", true, |drawn, random| presence(drawn, random, true)),
    ("a record is not found", true, |drawn, random| presence(drawn, random, false)),
    ("a write that nobody read is unknown", false, |drawn, random| {
        end(drawn, random, false, End::Unknown)
    }),
    ("a write that nobody read is refused", false, |drawn, random| {
        end(drawn, random, false, End::Failed)
    }),
    ("a write that nobody read is missing", false, |drawn, random| {
        drop_write(drawn, random, false)
    }),
    ("a write that was read is unknown", false, |drawn, random| {
        end(drawn, random, true, End::Unknown)
    }),
    ("an operation takes longer", false, |drawn, random| {
        at_random(drawn, random, |_| true).is_some_and(|at| {
            let operation = &mut drawn.history.operations[at];
            operation.client = 900;
            operation.invoked /= 2;
            operation.responded = operation.responded.map(|responded| responded * 2);
            true
        })
    }),
    ("a read is missing", false, |drawn, random| {
        let at =
            at_random(drawn, random, |operation| operation.end == End::Ok && is_get(operation));
        at.map(|at| drawn.history.operations.remove(at)).is_some()
    }),
    ("a read is there twice", false, |drawn, random| {
        let at = at_random(drawn, random, is_get);
        at.is_some_and(|at| {
            let twin = drawn.history.operations[at].clone();
            drawn.history.operations.push(Operation { client: 900, id: 9_001, ..twin });
            true
        })
    }),
    ("a refused write more", false, |drawn, _| add_put(drawn, End::Failed)),
    ("an unknown write more", false, |drawn, _| add_put(drawn, End::Unknown)),
    ("the last read returns the last state", false, |drawn, _| last_read(drawn, usize::MAX)),
    ("a scan returns every record", false, |drawn, _| scan(drawn, 0, false)),
    ("operations stand in another order", false, |drawn, _| {
        drawn.history.operations.reverse();
        true
    }),
    ("all happens later", false, |drawn, _| {
        for operation in &mut drawn.history.operations {
            operation.invoked += 77;
            operation.responded = operation.responded.map(|responded| responded + 77);
        }
        true
    }),
    ("clients have other numbers", false, |drawn, _| {
        drawn.history.operations.iter_mut().for_each(|operation| operation.client ^= 5);
        true
    }),
    ("versions are further apart", false, spread_versions),
];

fn is_get(operation: &Operation) -> bool {
    matches!(operation.action, Action::Get { .. })
}

fn found(operation: &Operation) -> Option<Found> {
    match operation.action {
        Action::Get { found, .. } => found,
        _ => None,
    }
}

/// Did this get return that state? Values of puts are all different; deletions have versions.
fn returned(operation: &Operation, state: &Wrote) -> bool {
    found(operation).is_some_and(|found| {
        found.present == state.found.present
            && found.digest == state.found.digest
            && (found.present || found.version == state.found.version)
    })
}

/// One of the operations that `fits`, by position.
fn at_random(
    drawn: &Drawn,
    random: &mut Stream,
    fits: impl Fn(&Operation) -> bool,
) -> Option<usize> {
    let all = drawn.history.operations.iter().enumerate();
    let fitting: Vec<usize> = all.filter(|(_, one)| fits(one)).map(|(at, _)| at).collect();
    random.pick(&fitting).copied()
}

fn by_id(drawn: &Drawn, id: u64) -> Option<&Operation> {
    drawn.history.operations.iter().find(|operation| operation.id == id)
}

fn ended_before(first: &Operation, then: &Operation) -> bool {
    first.end == End::Ok && first.responded.is_some_and(|ended| ended < then.invoked)
}

/// The state as a read of it returns it: without a version if the reads here have none.
fn as_read(state: &Wrote, like: Found) -> Found {
    Found { version: like.version.and(state.found.version), ..state.found }
}

/// Lets a get that returned one state return another one. `fits` sees the get, the states of its
/// key, and which of them it returned; it says which one it returns now.
fn returns(
    drawn: &mut Drawn,
    random: &mut Stream,
    fits: impl Fn(&Drawn, &Operation, &[Wrote], usize) -> Option<usize>,
) -> bool {
    let mut places = Vec::new();
    for (at, operation) in drawn.history.operations.iter().enumerate() {
        let Some(seen) = found(operation) else { continue };
        let states = &drawn.states[number(operation) as usize];
        let Some(own) = states.iter().position(|state| returned(operation, state)) else {
            continue;
        };
        if let Some(other) = fits(drawn, operation, states, own) {
            places.push((at, as_read(&states[other], seen)));
        }
    }
    let Some(&(at, value)) = random.pick(&places) else { return false };
    if let Action::Get { found, .. } = &mut drawn.history.operations[at].action {
        *found = Some(value);
    }
    true
}

/// The state before `own`, if it was a record and can only have come before: it is not of a write
/// of unknown outcome, and versions or real time tell its order.
fn older(drawn: &Drawn, states: &[Wrote], own: usize) -> Option<usize> {
    let older = own.checked_sub(1).filter(|older| states[*older].found.present)?;
    let Some(writer) = by_id(drawn, states[older].id) else { return Some(older) };
    let ordered = has_versions(drawn)
        || by_id(drawn, states[own].id).is_some_and(|own| ended_before(writer, own));
    (writer.end == End::Ok && ordered).then_some(older)
}

fn stale_read(drawn: &mut Drawn, random: &mut Stream) -> bool {
    returns(drawn, random, |drawn, get, states, own| {
        let writer = by_id(drawn, states[own].id)?;
        ended_before(writer, get).then(|| older(drawn, states, own))?
    })
}

fn inversion(drawn: &mut Drawn, random: &mut Stream) -> bool {
    returns(drawn, random, |drawn, get, states, own| {
        let older = older(drawn, states, own)?;
        let earlier = |other: &&Operation| {
            number(other) == number(get)
                && returned(other, &states[own])
                && ended_before(other, get)
        };
        drawn.history.operations.iter().find(earlier).map(|_| older)
    })
}

fn future_read(drawn: &mut Drawn, random: &mut Stream) -> bool {
    returns(drawn, random, |drawn, get, states, own| {
        (own + 1..states.len()).find(|later| {
            let writer = by_id(drawn, states[*later].id);
            states[*later].found.present
                && writer.is_some_and(|writer| get.responded < Some(writer.invoked))
        })
    })
}

fn late_write(drawn: &mut Drawn, random: &mut Stream) -> bool {
    let is_read =
        |operation: &Operation| operation.end == End::Ok && read_of(drawn, operation).is_some();
    let Some(at) = at_random(drawn, random, is_read) else { return false };
    let read = read_of(drawn, &drawn.history.operations[at]).and_then(|read| read.responded);
    let (Some(read), operation) = (read, &mut drawn.history.operations[at]) else { return false };
    (operation.client, operation.invoked, operation.responded) = (900, read + 1, Some(read + 2));
    true
}

/// A get that returned what `write` put.
fn read_of<'t>(drawn: &'t Drawn, write: &Operation) -> Option<&'t Operation> {
    if is_get(write) {
        return None;
    }
    let state = drawn.states[number(write) as usize].iter().find(|state| state.id == write.id)?;
    let own = drawn.history.operations.iter().filter(|other| is_get(other));
    own.filter(|_| state.found.present).find(|other| returned(other, state))
}

/// May an absent read have seen what `write` did? Only deletions are seen so.
fn is_deletion(write: &Operation) -> bool {
    matches!(write.action, Action::Delete { .. })
}

fn get(drawn: &mut Drawn, random: &mut Stream, change: impl Fn(&mut Found)) -> bool {
    let at = at_random(drawn, random, |operation| found(operation).is_some_and(|it| it.present));
    let Some(at) = at else { return false };
    if let Action::Get { found: Some(found), .. } = &mut drawn.history.operations[at].action {
        change(found);
    }
    true
}

fn other_key(drawn: &mut Drawn, random: &mut Stream) -> bool {
    let at = at_random(drawn, random, |operation| found(operation).is_some_and(|it| it.present));
    let Some(at) = at else { return false };
    if let Action::Get { key, .. } = &mut drawn.history.operations[at].action {
        *key = if *key == Key::Number(0) { Key::Number(1) } else { Key::Number(0) };
    }
    true
}

fn write_of(operation: &mut Operation) -> Option<&mut Write> {
    match &mut operation.action {
        Action::Put { write, .. } | Action::Delete { write, .. } => Some(write),
        _ => None,
    }
}

/// Gives a certain put that was read, or was not, another end.
fn end(drawn: &mut Drawn, random: &mut Stream, read: bool, end: End) -> bool {
    let fits = |operation: &Operation| {
        let put = operation.end == End::Ok && !is_get(operation) && !is_deletion(operation);
        put && read_of(drawn, operation).is_some() == read
    };
    let Some(at) = at_random(drawn, random, fits) else { return false };
    let operation = &mut drawn.history.operations[at];
    operation.end = end;
    if let Some(write) = write_of(operation).filter(|_| end == End::Unknown) {
        write.version = None;
    }
    true
}

fn drop_write(drawn: &mut Drawn, random: &mut Stream, read: bool) -> bool {
    let fits = |operation: &Operation| {
        !is_get(operation)
            && !is_deletion(operation)
            && operation.end == End::Ok
            && read_of(drawn, operation).is_some() == read
    };
    at_random(drawn, random, fits).map(|at| drawn.history.operations.remove(at)).is_some()
}

fn refused_read(drawn: &mut Drawn, random: &mut Stream) -> bool {
    let refused = |operation: &Operation| {
        operation.end == End::Failed && !is_get(operation) && !is_deletion(operation)
    };
    let Some(at) = at_random(drawn, random, refused) else { return false };
    let (key, id) = (number(&drawn.history.operations[at]), drawn.history.operations[at].id);
    let now = drawn.states[key as usize].last().map(|state| state.found.version);
    let versions = has_versions(drawn);
    let version = now.flatten().filter(|_| versions).map(|version| version + 9);
    add_get(drawn, 950, key, Found { present: true, version, digest: Some(1_000 + id) })
}

fn has_versions(drawn: &Drawn) -> bool {
    drawn.history.operations.iter().filter_map(found).any(|found| found.version.is_some())
}

/// Adds an operation behind everything else, which takes `span`.
fn add(drawn: &mut Drawn, client: u32, span: u64, end: End, action: Action) {
    drawn.end += 10;
    let (id, sequence, invoked) = (drawn.end, drawn.end, drawn.end);
    let responded = Some(invoked + span);
    let operation = Operation { client, sequence, id, invoked, responded, end, action };
    drawn.history.operations.push(operation);
}

/// Adds a get behind everything else.
fn add_get(drawn: &mut Drawn, client: u32, key: u64, found: Found) -> bool {
    let action = Action::Get { key: Key::Number(key), found: Some(found) };
    add(drawn, client, 5, End::Ok, action);
    true
}

fn put(drawn: &mut Drawn, client: u32, end: End, version: Option<u64>, digest: u64) {
    let effect = Effect::Put { digest: Some(digest) };
    let action = Action::Put { write: Write { key: Key::Number(0), effect, version }, scope: None };
    add(drawn, client, 10, end, action);
}

fn add_put(drawn: &mut Drawn, end: End) -> bool {
    put(drawn, 960, end, None, 77_777);
    true
}

/// The version behind the last one of key 0, if versions are drawn.
fn next_version(drawn: &Drawn, by: u64) -> Option<u64> {
    let last = drawn.states[0].last().and_then(|state| state.found.version);
    last.filter(|_| has_versions(drawn)).map(|version| version + by)
}

fn seen_twice(drawn: &mut Drawn, _: &mut Stream) -> bool {
    let at = |by, digest| Found { present: true, version: by, digest: Some(digest) };
    let versions = [next_version(drawn, 10), next_version(drawn, 20), next_version(drawn, 30)];
    put(drawn, 960, End::Unknown, None, 77_777);
    add_get(drawn, 961, 0, at(versions[0], 77_777));
    put(drawn, 962, End::Ok, versions[1], 88_888);
    add_get(drawn, 962, 0, at(versions[1], 88_888))
        && add_get(drawn, 961, 0, at(versions[2], 77_777))
}

fn own_write(drawn: &mut Drawn, _: &mut Stream) -> bool {
    let before = drawn.states[0][drawn.states[0].len() - 1];
    let version = next_version(drawn, 10);
    put(drawn, 962, End::Ok, version, 88_888);
    // It begins at the instant at which the put ends.
    let like = Found { present: true, version, digest: None };
    // A write of unknown outcome may also come after the put.
    let certain = by_id(drawn, before.id).is_none_or(|writer| writer.end == End::Ok);
    before.found.present && certain && add_get(drawn, 962, 0, as_read(&before, like))
}

fn load(drawn: &mut Drawn, random: &mut Stream, missing: bool) -> bool {
    let is_read = |key: &u64| {
        let first = drawn.states[*key as usize][0];
        drawn.history.operations.iter().any(|one| is_get(one) && returned(one, &first))
    };
    let keys: Vec<u64> = (0..KEYS).filter(is_read).collect();
    let Some(&key) = random.pick(&keys) else { return false };
    let Initial::Listed(loaded) = &mut drawn.history.initial else { return false };
    if missing {
        loaded.retain(|one| one.key != Key::Number(key));
    } else {
        loaded[key as usize].digest = Some(5);
    }
    true
}

/// Each key is read at the end: the state of that number, or the last one.
fn last_read(drawn: &mut Drawn, state: usize) -> bool {
    let like = Found { present: true, version: has_versions(drawn).then_some(0), digest: None };
    let mut changed = false;
    for key in 0..KEYS {
        let states = drawn.states[key as usize].clone();
        let certain = states
            .iter()
            .any(|wrote| by_id(drawn, wrote.id).is_some_and(|writer| writer.end == End::Ok));
        changed |= certain;
        let state = states[state.min(states.len() - 1)];
        add_get(drawn, 950, key, as_read(&state, like));
    }
    changed
}

/// A scan of all keys at the end, without the first `missing` records; `old`: one is the load's.
fn scan(drawn: &mut Drawn, missing: usize, old: bool) -> bool {
    let (versions, mut changed) = (has_versions(drawn), missing == 0 && !old);
    let mut records = Vec::new();
    for key in 0..KEYS {
        let states = &drawn.states[key as usize];
        let certain =
            |wrote: &Wrote| by_id(drawn, wrote.id).is_some_and(|writer| writer.end == End::Ok);
        let outdated = old && states.iter().any(certain);
        let state = if outdated { states[0] } else { states[states.len() - 1] };
        changed |= outdated;
        let Found { present, version, digest } = state.found;
        let (key, version) = (Key::Number(key), version.filter(|_| versions));
        if present {
            records.push(Read { key, present, version, digest });
        }
    }
    // A record may be missed where a write of unknown outcome could explain it.
    let unknown: Vec<u64> = drawn
        .history
        .operations
        .iter()
        .filter(|one| !is_get(one) && one.end == End::Unknown)
        .map(number)
        .collect();
    if missing > 0 {
        let explained = |read: &Read| unknown.iter().any(|key| read.key == Key::Number(*key));
        let Some(at) = records.iter().position(|read| !explained(read)) else { return false };
        records.remove(at);
        changed = true;
    }
    let (first, last) = (Key::Number(0), Key::Number(KEYS));
    let scan = Scan { first, last, backward: false, limit: None, found: records };
    add(drawn, 950, 5, End::Ok, Action::Scan(scan));
    changed
}

/// Of two certain writes of a key, the first of which ended before the second began, the first one
/// gets the version of the second, which keeps its own unless they are `swapped`.
fn versions(drawn: &mut Drawn, random: &mut Stream, swapped: bool) -> bool {
    let version = |operation: &Operation| match &operation.action {
        Action::Put { write, .. } | Action::Delete { write, .. } => write.version,
        _ => None,
    };
    let mut pairs = Vec::new();
    for (at, first) in drawn.history.operations.iter().enumerate() {
        for (then, second) in drawn.history.operations.iter().enumerate() {
            let (Some(own), Some(later)) = (version(first), version(second)) else { continue };
            let certain = second.end == End::Ok && ended_before(first, second);
            if certain && number(first) == number(second) {
                pairs.push([(at, later), (then, if swapped { own } else { later })]);
            }
        }
    }
    let Some(pair) = random.pick(&pairs) else { return false };
    for &(at, version) in pair {
        if let Some(write) = write_of(&mut drawn.history.operations[at]) {
            write.version = Some(version);
        }
    }
    true
}

/// A deleted record is read as it was before, or a put one as absent.
fn presence(drawn: &mut Drawn, random: &mut Stream, back: bool) -> bool {
    if back {
        return returns(drawn, random, |drawn, get, states, own| {
            let writer = by_id(drawn, states[own].id)?;
            let older = own.checked_sub(1).filter(|older| states[*older].found.present)?;
            (is_deletion(writer) && ended_before(writer, get)).then_some(older)
        });
    }
    // A put of unknown outcome need not have happened, if nobody else read it.
    let certain = |operation: &Operation| {
        let states = &drawn.states[number(operation) as usize];
        let own = states.iter().find(|state| state.found.present && returned(operation, state));
        own.is_some_and(|own| by_id(drawn, own.id).is_none_or(|writer| writer.end == End::Ok))
    };
    let at = at_random(drawn, random, certain).filter(|_| has_versions(drawn));
    let Some(at) = at else { return false };
    if let Action::Get { found: Some(found), .. } = &mut drawn.history.operations[at].action {
        (found.present, found.digest) = (false, None);
    }
    true
}

fn spread_versions(drawn: &mut Drawn, _: &mut Stream) -> bool {
    let wider = |version: &mut u64| *version = *version * 3 + 4;
    if let Initial::Listed(loaded) = &mut drawn.history.initial {
        loaded.iter_mut().for_each(|one| wider(&mut one.version));
    }
    for operation in &mut drawn.history.operations {
        if let Action::Get { found: Some(found), .. } = &mut operation.action {
            found.version.iter_mut().for_each(wider);
        }
        if let Some(write) = write_of(operation) {
            write.version.iter_mut().for_each(wider);
        }
    }
    true
}
