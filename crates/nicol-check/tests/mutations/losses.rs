//! What is done to an honest history with crashes, and under which models it is wrong then.

use nicol_core::history::Persistency::{Renf, Scope, Strict, Synch};
use nicol_core::history::{Action, Crash, Effect, End, Found, Key, Operation, Persistency, Read};
use nicol_core::rng::Stream;

use super::crashed::{Drawn, KEYS, Wrote, number};

/// Changes a history; false if it has no place for the change.
pub type Change = fn(&mut Drawn, &mut Stream) -> bool;

const EVERY: &[Persistency] = &Persistency::ALL;
const NONE: &[Persistency] = &[];

/// Name, the models under which the result is wrong, and the change.
pub const KINDS: &[(&str, &[Persistency], Change)] = &[
    ("an acknowledged write is lost", &[Strict, Synch], |drawn, random| {
        lose(drawn, random, |loss| loss.acknowledged && !loss.read && !loss.persisted)
    }),
    ("an acknowledged write that was read is lost", &[Strict, Synch, Renf], |drawn, random| {
        lose(drawn, random, |loss| loss.acknowledged && loss.read && !loss.persisted)
    }),
    ("a persisted write is lost", &[Strict, Synch, Scope], |drawn, random| {
        lose(drawn, random, |loss| loss.acknowledged && !loss.read && loss.persisted)
    }),
    ("a persisted write that was read is lost", &[Strict, Synch, Renf, Scope], |drawn, random| {
        lose(drawn, random, |loss| loss.acknowledged && loss.read && loss.persisted)
    }),
    ("an unknown write that was read is lost", &[Synch, Renf], |drawn, random| {
        lose(drawn, random, |loss| !loss.acknowledged && loss.read)
    }),
    ("an unknown write that nobody read is lost", NONE, |drawn, random| {
        lose(drawn, random, |loss| !loss.acknowledged && !loss.read)
    }),
    ("what a crash lost is read after it", EVERY, |drawn, random| {
        let Some((key, lost)) = lose_at(drawn, random, |loss| loss.acknowledged) else {
            return false;
        };
        add_get(drawn, key, drawn.shown(lost));
        true
    }),
    ("what a crash before had replaced comes back", EVERY, resurrected),
    ("a refused write is recovered", EVERY, |drawn, random| written(drawn, random, End::Failed)),
    ("an unknown write is recovered", NONE, |drawn, random| written(drawn, random, End::Unknown)),
    ("what nobody wrote is recovered", EVERY, |drawn, random| {
        change(drawn, random, |read| {
            (read.digest, read.version) = (Some(7), read.version.map(|version| version + 1_000));
        })
    }),
    ("other bytes are recovered", EVERY, |drawn, random| {
        change(drawn, random, |read| read.digest = read.digest.map(|digest| digest ^ (1 << 40)))
    }),
    ("another key's record is recovered", EVERY, |drawn, random| {
        let other = drawn.states[0][0].found.digest.map(|digest| digest + 500);
        change(drawn, random, move |read| read.digest = other)
    }),
    ("replicas recovered different states", EVERY, |drawn, random| replicas(drawn, random, true)),
    ("replicas recovered the same", NONE, |drawn, random| replicas(drawn, random, false)),
    ("a record that nobody deleted is not recovered", EVERY, vanished),
    ("the last read returns the load", EVERY, |drawn, _| last_reads(drawn, 0)),
    ("the last read returns the last state", NONE, |drawn, _| last_reads(drawn, usize::MAX)),
    ("a read before the crash returns what is written after it", EVERY, from_later),
    ("a read after the crash returns what it did not leave", EVERY, from_earlier),
    ("an unknown write takes effect after the crash", NONE, after_all),
    ("a refused write takes effect after the crash", EVERY, |drawn, random| {
        effective(drawn, random, End::Failed)
    }),
    ("a key was not looked at", NONE, |drawn, random| {
        let crash = random.below(drawn.history.crashes.len() as u64) as usize;
        let recovered = &mut drawn.history.crashes[crash].recovered;
        recovered.remove(random.below(recovered.len() as u64) as usize);
        true
    }),
    ("nobody looked, and an acknowledged write is lost", &[Strict, Synch], |drawn, random| {
        lose_unseen(drawn, random, |loss| loss.acknowledged && !loss.read && !loss.persisted)
    }),
    (
        "nobody looked, and a write that was read is lost",
        &[Strict, Synch, Renf],
        |drawn, random| {
            lose_unseen(drawn, random, |loss| loss.acknowledged && loss.read && !loss.persisted)
        },
    ),
    ("nobody looked, and a persisted write is lost", &[Strict, Synch, Scope], |drawn, random| {
        lose_unseen(drawn, random, |loss| loss.acknowledged && !loss.read && loss.persisted)
    }),
    ("nobody looked, and what nobody wrote is read", EVERY, |drawn, random| {
        let (crash, key) = (random.below(2) as usize, random.below(KEYS));
        let last = *drawn.states[key as usize].last().expect("the load");
        let found = Found { present: true, digest: Some(7), ..drawn.shown(last) };
        unlook(drawn, crash, key);
        add_get(drawn, key, found);
        true
    }),
    ("nobody looked, and what a crash before had replaced is read", EVERY, |drawn, random| {
        let Some((key, older)) = replaced(drawn, random) else { return false };
        drawn
            .history
            .operations
            .retain(|one| one.invoked < drawn.history.crashes[1].at || number(one) != Some(key));
        unlook(drawn, 1, key);
        add_get(drawn, key, drawn.shown(older));
        true
    }),
    ("nobody looked, and nothing is lost", NONE, |drawn, random| {
        let (crash, key) = (random.below(2) as usize, random.below(KEYS));
        unlook(drawn, crash, key);
        last_reads(drawn, usize::MAX)
    }),
    ("a write is acknowledged after the crash", NONE, late),
    ("operations stand in another order", NONE, |drawn, _| {
        drawn.history.operations.reverse();
        true
    }),
    ("all happens later", NONE, |drawn, _| {
        for operation in &mut drawn.history.operations {
            operation.invoked += 77;
            operation.responded = operation.responded.map(|responded| responded + 77);
        }
        drawn.history.crashes.iter_mut().for_each(|crash| crash.at += 77);
        true
    }),
];

/// A state that a crash may lose, and who had seen it.
struct Loss {
    acknowledged: bool,
    read: bool,
    persisted: bool,
}

fn by_id(drawn: &Drawn, id: u64) -> Option<&Operation> {
    drawn.history.operations.iter().find(|operation| operation.id == id)
}

fn ended_before(first: &Operation, then: &Operation) -> bool {
    first.end == End::Ok && first.responded.is_some_and(|ended| ended < then.invoked)
}

/// Did this get return that state? Values of puts are all different; deletions have versions.
fn returned(operation: &Operation, state: &Wrote) -> bool {
    let Action::Get { found: Some(found), .. } = operation.action else { return false };
    found.present == state.found.present
        && found.digest == state.found.digest
        && (found.present || found.version == state.found.version)
}

fn is_put(operation: &Operation) -> bool {
    matches!(operation.action, Action::Put { .. })
}

/// Has the writer's client persisted this write before the crash at `at`?
fn is_persisted(drawn: &Drawn, writer: &Operation, at: u64) -> bool {
    drawn.history.operations.iter().any(|other| {
        matches!(other.action, Action::Persist { .. })
            && (other.client, other.end) == (writer.client, End::Ok)
            && other.invoked > writer.invoked
            && other.responded.is_some_and(|ended| ended < at)
    })
}

/// The newest state of `key` at that crash and the one before it, if the order of the two is
/// certain, and the newer one was put since the crash before.
fn newest(drawn: &Drawn, crash: usize, key: u64) -> Option<(Wrote, Wrote, Loss)> {
    let states = &drawn.states[key as usize];
    let last = drawn.at_crash[crash][key as usize];
    let before = last.checked_sub(1)?;
    if crash > 0 && drawn.at_crash[crash - 1][key as usize] == last {
        return None;
    }
    let (older, newer) = (states[before], states[last]);
    let (at, writer) = (drawn.history.crashes[crash].at, by_id(drawn, newer.id)?);
    let ordered = by_id(drawn, older.id).is_none_or(|first| ended_before(first, writer));
    // A deletion without a version cannot be drawn from another one.
    if !ordered || !older.found.present || !newer.found.present {
        return None;
    }
    let read = drawn.history.operations.iter().any(|other| {
        number(other) == Some(key)
            && returned(other, &newer)
            && other.responded.is_some_and(|ended| ended < at)
    });
    let acknowledged = writer.end == End::Ok;
    let persisted = is_persisted(drawn, writer, at);
    Some((older, newer, Loss { acknowledged, read, persisted }))
}

/// Lets a crash leave another state of `key`, to which nothing happens after it.
fn recover(drawn: &mut Drawn, crash: usize, key: u64, found: Wrote) {
    let (at, read) = (drawn.history.crashes[crash].at, drawn.read(key, found));
    drawn.history.operations.retain(|one| one.invoked < at || number(one) != Some(key));
    for crash in &mut drawn.history.crashes[crash..] {
        crash.recovered.retain(|read| read.key != Key::Number(key));
        crash.recovered.push(read.clone());
    }
}

/// Lets a crash lose the newest state of a key that `fits`; what was lost.
fn lose_at(
    drawn: &mut Drawn,
    random: &mut Stream,
    fits: impl Fn(&Loss) -> bool,
) -> Option<(u64, Wrote)> {
    let mut places = Vec::new();
    for crash in 0..drawn.history.crashes.len() {
        for key in 0..KEYS {
            if let Some((older, newer, loss)) = newest(drawn, crash, key)
                && fits(&loss)
            {
                places.push((crash, key, older, newer));
            }
        }
    }
    let &(crash, key, older, newer) = random.pick(&places)?;
    recover(drawn, crash, key, older);
    Some((key, newer))
}

fn lose(drawn: &mut Drawn, random: &mut Stream, fits: impl Fn(&Loss) -> bool) -> bool {
    lose_at(drawn, random, fits).is_some()
}

/// Nobody looks at `key` after that crash, or a later one.
fn unlook(drawn: &mut Drawn, crash: usize, key: u64) {
    for crash in &mut drawn.history.crashes[crash..] {
        crash.recovered.retain(|read| read.key != Key::Number(key));
    }
}

/// A crash loses the newest state of a key that `fits`; nobody looks, but a get shows it.
fn lose_unseen(drawn: &mut Drawn, random: &mut Stream, fits: impl Fn(&Loss) -> bool) -> bool {
    let Some((key, _)) = lose_at(drawn, random, fits) else { return false };
    let is_key = |read: &&Read| read.key == Key::Number(key);
    let left = drawn.history.crashes[1].recovered.iter().find(is_key);
    let Some(&Read { present, version, digest, .. }) = left else { return false };
    let changed = drawn.history.crashes.iter().position(|crash| {
        crash.recovered.iter().find(is_key).is_some_and(|read| read.digest == digest)
    });
    unlook(drawn, changed.unwrap_or(1), key);
    add_get(drawn, key, Found { present, version, digest });
    true
}

/// The second crash leaves a state that the first one had already replaced.
fn resurrected(drawn: &mut Drawn, random: &mut Stream) -> bool {
    let Some((key, older)) = replaced(drawn, random) else { return false };
    recover(drawn, 1, key, older);
    true
}

/// A state that another one had replaced when the first crash came.
fn replaced(drawn: &Drawn, random: &mut Stream) -> Option<(u64, Wrote)> {
    let mut places = Vec::new();
    for key in 0..KEYS {
        let states = &drawn.states[key as usize];
        let newest = drawn.at_crash[0][key as usize];
        for older in &states[..newest] {
            let certain = by_id(drawn, older.id).is_none_or(|writer| writer.end == End::Ok);
            if certain && older.found.present {
                places.push((key, *older));
            }
        }
    }
    random.pick(&places).copied()
}

/// A crash leaves what a put of that end, which did not take effect, would have written.
fn written(drawn: &mut Drawn, random: &mut Stream, end: End) -> bool {
    let crash = random.below(drawn.history.crashes.len() as u64) as usize;
    let since = crash.checked_sub(1).map_or(0, |before| drawn.history.crashes[before].at);
    let at = drawn.history.crashes[crash].at;
    let fits =
        |one: &&Operation| is_put(one) && one.end == end && (since..at).contains(&one.invoked);
    let puts: Vec<_> = drawn.history.operations.iter().filter(fits).cloned().collect();
    let came = |put: &&Operation| drawn.states.iter().flatten().any(|state| state.id == put.id);
    let open: Vec<_> = puts.iter().filter(|put| !came(put)).collect();
    let Some(put) = random.pick(&open) else { return false };
    let (Some(key), Some(digest)) = (number(put), digest(put)) else { return false };
    let version = next_version(drawn, crash, key);
    let found = Found { present: true, version, digest: Some(digest) };
    recover(drawn, crash, key, Wrote { id: 0, found });
    true
}

fn digest(put: &Operation) -> Option<u64> {
    match &put.action {
        Action::Put { write, .. } => match write.effect {
            Effect::Put { digest } => digest,
            _ => None,
        },
        _ => None,
    }
}

/// A version above all that `key` had had at that crash, and below what comes later.
fn next_version(drawn: &Drawn, crash: usize, key: u64) -> Option<u64> {
    let newest = drawn.states[key as usize][drawn.at_crash[crash][key as usize]];
    newest.found.version.map(|version| version + 1)
}

/// Changes what a crash left of a record that is there.
fn change(drawn: &mut Drawn, random: &mut Stream, change: impl Fn(&mut Read)) -> bool {
    let crash = random.below(drawn.history.crashes.len() as u64) as usize;
    let recovered = &mut drawn.history.crashes[crash].recovered;
    let present: Vec<usize> = (0..recovered.len()).filter(|at| recovered[*at].present).collect();
    let Some(&at) = random.pick(&present) else { return false };
    change(&mut recovered[at]);
    true
}

fn replicas(drawn: &mut Drawn, random: &mut Stream, differ: bool) -> bool {
    let crash = random.below(drawn.history.crashes.len() as u64) as usize;
    let recovered = &drawn.history.crashes[crash].recovered;
    let mut other = recovered[random.below(KEYS) as usize].clone();
    if differ {
        (other.present, other.digest) = (!other.present, (!other.present).then_some(3));
    }
    drawn.history.crashes[crash].recovered.push(other);
    true
}

/// A record that was never deleted, not even perhaps, is not there after a crash.
fn vanished(drawn: &mut Drawn, random: &mut Stream) -> bool {
    let is_deleted = |key: u64| {
        let deletes = |one: &Operation| matches!(one.action, Action::Delete { .. });
        drawn.history.operations.iter().any(|one| deletes(one) && number(one) == Some(key))
    };
    let keys: Vec<u64> = (0..KEYS).filter(|key| !is_deleted(*key)).collect();
    let Some(&key) = random.pick(&keys) else { return false };
    let version = next_version(drawn, 1, key);
    let found = Found { present: false, version, digest: None };
    recover(drawn, 1, key, Wrote { id: 0, found });
    true
}

/// Adds a get behind everything else.
fn add_get(drawn: &mut Drawn, key: u64, found: Found) {
    drawn.end += 10;
    let (id, invoked) = (drawn.end + 10_000, drawn.end);
    drawn.history.operations.push(Operation {
        client: 950,
        sequence: id,
        id,
        invoked,
        responded: Some(invoked + 5),
        end: End::Ok,
        action: Action::Get { key: Key::Number(key), found: Some(found) },
    });
}

/// Every key is read at the end: its state of that number, or the last one.
fn last_reads(drawn: &mut Drawn, state: usize) -> bool {
    let mut changed = false;
    for key in 0..KEYS {
        let states = drawn.states[key as usize].clone();
        let is_certain =
            |wrote: &Wrote| by_id(drawn, wrote.id).is_some_and(|writer| writer.end == End::Ok);
        changed |= states.iter().any(is_certain);
        add_get(drawn, key, drawn.shown(states[state.min(states.len() - 1)]));
    }
    changed
}

/// Lets a get of a piece return a state; `fits` sees the piece and the number of the state.
fn returns(
    drawn: &mut Drawn,
    random: &mut Stream,
    fits: impl Fn(&Drawn, usize, u64, usize) -> bool,
) -> bool {
    let mut places = Vec::new();
    for (at, one) in drawn.history.operations.iter().enumerate() {
        let (Action::Get { found: Some(_), .. }, Some(key)) = (&one.action, number(one)) else {
            continue;
        };
        let before = |crash: &&Crash| crash.at < one.invoked;
        let piece = drawn.history.crashes.iter().filter(before).count();
        for (number, state) in drawn.states[key as usize].iter().enumerate() {
            if state.found.present && fits(drawn, piece, key, number) {
                places.push((at, drawn.shown(*state)));
            }
        }
    }
    let Some(&(at, shown)) = random.pick(&places) else { return false };
    if let Action::Get { found, .. } = &mut drawn.history.operations[at].action {
        *found = Some(shown);
    }
    true
}

/// A read of the first piece returns a state that was written after the first crash.
fn from_later(drawn: &mut Drawn, random: &mut Stream) -> bool {
    returns(drawn, random, |drawn, piece, key, state| {
        let writer = by_id(drawn, drawn.states[key as usize][state].id);
        let begun = writer.is_some_and(|writer| writer.invoked > drawn.history.crashes[0].at);
        piece == 0 && begun
    })
}

/// A read after the first crash returns a state that was replaced before it.
fn from_earlier(drawn: &mut Drawn, random: &mut Stream) -> bool {
    returns(drawn, random, |drawn, piece, key, state| {
        let certain = by_id(drawn, drawn.states[key as usize][state].id)
            .is_none_or(|writer| writer.end == End::Ok);
        piece > 0 && certain && state < drawn.at_crash[0][key as usize]
    })
}

/// A put of that end, of the first piece, which did not take effect, is read at the end.
fn effective(drawn: &mut Drawn, random: &mut Stream, end: End) -> bool {
    let at = drawn.history.crashes[0].at;
    let came = |put: &Operation| drawn.states.iter().flatten().any(|state| state.id == put.id);
    let fits = |one: &&Operation| is_put(one) && one.end == end && one.invoked < at && !came(one);
    let puts: Vec<_> = drawn.history.operations.iter().filter(fits).cloned().collect();
    let Some(put) = random.pick(&puts) else { return false };
    let (Some(key), Some(digest)) = (number(put), digest(put)) else { return false };
    let last = drawn.states[key as usize].last().and_then(|state| state.found.version);
    let version = last.filter(|_| drawn.versions).map(|version| version + 1);
    add_get(drawn, key, Found { present: true, version, digest: Some(digest) });
    true
}

fn after_all(drawn: &mut Drawn, random: &mut Stream) -> bool {
    effective(drawn, random, End::Unknown)
}

/// A write that was there at a crash is acknowledged only after it.
fn late(drawn: &mut Drawn, random: &mut Stream) -> bool {
    let mut places = Vec::new();
    for crash in 0..drawn.history.crashes.len() {
        for key in 0..KEYS {
            if let Some((_, newer, loss)) = newest(drawn, crash, key)
                && loss.acknowledged
            {
                places.push((crash, newer.id));
            }
        }
    }
    let Some(&(crash, id)) = random.pick(&places) else { return false };
    let at = drawn.history.crashes[crash].at;
    let Some(one) = drawn.history.operations.iter_mut().find(|one| one.id == id) else {
        return false;
    };
    (one.client, one.responded) = (900, Some(at + 1));
    true
}
