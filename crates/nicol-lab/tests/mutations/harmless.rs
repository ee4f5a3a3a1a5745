//! Changes that leave a right history right.

use nicol_core::history::{
    Action, Effect, End, History, Initial, Key, Loaded, Operation, Promise, Read, Txn, Write,
};

use crate::victims::{Victims, txn_mut};
use crate::{Change, Kind};

/// The kinds, with their names.
pub const KINDS: [Kind; 18] = [
    ("operations in another order", |history, _| {
        history.operations.reverse();
        true
    }),
    ("all times later", |history, _| times(history, |time| time + 1_000_000)),
    ("all times ten times as large", |history, _| times(history, |time| 10 * time)),
    ("other ids", |history, _| {
        history.operations.iter_mut().for_each(|operation| operation.id = !operation.id);
        true
    }),
    ("other names of clients", |history, _| {
        history.operations.iter_mut().for_each(|operation| operation.client ^= 0xffff);
        true
    }),
    ("an aborted operation left out", |history, pick| {
        remove(history, pick, |operation| operation.end == End::Failed)
    }),
    ("a reader left out", |history, pick| {
        remove(history, pick, |operation| operation.end == End::Ok && !writes(operation))
    }),
    ("a reader of unknown outcome", |history, pick| {
        let found = Victims::of(history).pick(pick, |one| one.end == End::Ok && !writes(one));
        found.map(|at| history.operations[at].end = End::Unknown).is_some()
    }),
    ("a reader that took longer", |history, pick| {
        let found = Victims::of(history).pick(pick, |one| one.end == End::Ok && !writes(one));
        let Some(at) = found else { return false };
        let fresh = fresh_client(history);
        let operation = &mut history.operations[at];
        operation.client = fresh;
        operation.invoked = operation.invoked.saturating_sub(10_000);
        operation.responded = operation.responded.map(|time| time + 10_000);
        true
    }),
    ("no digests", |history, _| {
        digests(history);
        true
    }),
    ("an aborted operation added", |history, pick| {
        let writes = history.operations[pick % history.operations.len()].txn().map(|txn| {
            let later = |write: &Write| Write { version: Some(1 << 40), ..write.clone() };
            txn.writes.iter().map(later).collect()
        });
        append(history, End::Failed, Txn { writes: writes.unwrap_or_default(), ..Txn::default() })
    }),
    ("an unknown operation added", |history, pick| {
        let Some(key) = Victims::of(history).written(pick) else { return false };
        let write = Write { key, effect: Effect::Unknown, version: None };
        append(history, End::Unknown, Txn { writes: vec![write], ..Txn::default() })
    }),
    ("an unknown operation that may have written anything", |history, _| {
        append(history, End::Unknown, Txn { writes_more: true, ..Txn::default() })
    }),
    ("an aborted operation of unknown outcome", |history, pick| {
        let found = Victims::of(history).pick(pick, |one| one.end == End::Failed);
        found.map(|at| history.operations[at].end = End::Unknown).is_some()
    }),
    ("keys as strings", |history, _| keys(history)),
    ("versions three times as large", |history, _| versions(history)),
    ("a loaded record that nobody names", |history, _| {
        let Initial::Listed(loaded) = &mut history.initial else { return false };
        loaded.push(Loaded {
            key: Key::Bytes(b"nobody".as_slice().into()),
            version: 1,
            digest: None,
        });
        true
    }),
    ("a weaker promise", |history, _| {
        history.promise = Promise::Serializable;
        true
    }),
];

const _: Change = KINDS[0].1;

fn writes(operation: &Operation) -> bool {
    operation.txn().is_some_and(|txn| !txn.writes.is_empty())
}

fn fresh_client(history: &History) -> u32 {
    history.operations.iter().map(|operation| operation.client).max().unwrap_or(0) + 1
}

fn times(history: &mut History, change: fn(u64) -> u64) -> bool {
    for operation in &mut history.operations {
        operation.invoked = change(operation.invoked);
        operation.responded = operation.responded.map(change);
    }
    true
}

fn remove(history: &mut History, pick: usize, test: fn(&Operation) -> bool) -> bool {
    let found = Victims::of(history).pick(pick, test);
    found.map(|at| history.operations.remove(at)).is_some()
}

fn append(history: &mut History, end: End, txn: Txn) -> bool {
    let client = fresh_client(history);
    history.operations.push(Operation {
        client,
        sequence: 0,
        id: u64::MAX,
        invoked: 0,
        responded: Some(1 << 50),
        end,
        action: Action::Txn(txn),
    });
    true
}

fn all_reads(txn: &mut Txn) -> impl Iterator<Item = &mut Read> {
    txn.reads.iter_mut().chain(txn.scans.iter_mut().flat_map(|scan| &mut scan.found))
}

fn digests(history: &mut History) {
    for operation in &mut history.operations {
        let txn = txn_mut(operation);
        all_reads(txn).for_each(|read| read.digest = None);
        for write in &mut txn.writes {
            if let Effect::Put { digest } = &mut write.effect {
                *digest = None;
            }
        }
    }
}

fn keys(history: &mut History) -> bool {
    let change = |key: &mut Key| {
        if let Key::Number(number) = *key {
            *key = Key::Bytes(number.to_be_bytes().into());
        }
    };
    for operation in &mut history.operations {
        let txn = txn_mut(operation);
        all_reads(txn).for_each(|read| change(&mut read.key));
        txn.writes.iter_mut().for_each(|write| change(&mut write.key));
        for scan in &mut txn.scans {
            change(&mut scan.first);
            change(&mut scan.last);
        }
    }
    if let Initial::Listed(loaded) = &mut history.initial {
        loaded.iter_mut().for_each(|record| change(&mut record.key));
    }
    true
}

fn versions(history: &mut History) -> bool {
    let change = |version: &mut Option<u64>| *version = version.map(|version| 3 * version);
    for operation in &mut history.operations {
        let txn = txn_mut(operation);
        all_reads(txn).for_each(|read| change(&mut read.version));
        txn.writes.iter_mut().for_each(|write| change(&mut write.version));
    }
    if let Initial::Listed(loaded) = &mut history.initial {
        loaded.iter_mut().for_each(|record| record.version *= 3);
    }
    true
}
