//! What was loaded, as a history tells it.

use nicol_core::history::{self, Action, History, Initial, Loaded, Operation, Promise, digest};
use nicol_core::ids::{IdMap, ShardId};
use nicol_core::records::RecordSource;
use nicol_core::view::ShardMap;

/// The version that a load gives to every record.
const LOADED: u64 = 1;

/// The history of a run, over what `source` had loaded.
pub fn history(
    promise: Promise,
    operations: Vec<Operation>,
    source: &dyn RecordSource,
    shards: &dyn ShardMap,
) -> History {
    let initial = initial(source, shards, &operations);
    History { promise, initial, operations, crashes: Vec::new() }
}

/// The records of `source` that an operation names or a scan covers, from one more pass over the
/// load: a history would be many times as large with all of them.
fn initial(source: &dyn RecordSource, shards: &dyn ShardMap, operations: &[Operation]) -> Initial {
    let named = named(operations);
    let scanned = scanned(operations);
    let mut loaded = Vec::new();
    for shard in 0..shards.shards() {
        source.load(shards, ShardId(shard), &mut |key, value| {
            let behind = scanned.partition_point(|(_, last)| *last < key.0);
            let is_scanned = scanned.get(behind).is_some_and(|(first, _)| *first <= key.0);
            if is_scanned || named.contains_key(&key.0) {
                let digest = Some(digest(value));
                loaded.push(Loaded { key: key.into(), version: LOADED, digest });
            }
        });
    }
    loaded.sort_unstable_by(|one, other| one.key.cmp(&other.key));
    Initial::Listed(loaded)
}

/// Every key that an operation reads or writes.
fn named(operations: &[Operation]) -> IdMap<u64, ()> {
    let mut named = IdMap::default();
    let mut add = |key: &history::Key| {
        if let history::Key::Number(number) = key {
            named.insert(*number, ());
        }
    };
    for operation in operations {
        match &operation.action {
            Action::Txn(txn) => {
                txn.reads.iter().for_each(|read| add(&read.key));
                txn.writes.iter().for_each(|write| add(&write.key));
            }
            Action::Get { key, .. } => add(key),
            Action::Put { write, .. } | Action::Delete { write, .. } => add(&write.key),
            Action::Scan(_) | Action::Persist { .. } => {}
        }
    }
    named
}

/// The ranges that scans read, first and last key, in their order and without overlaps.
fn scanned(operations: &[Operation]) -> Vec<(u64, u64)> {
    let scans = operations.iter().flat_map(|operation| match &operation.action {
        Action::Txn(txn) => txn.scans.as_slice(),
        Action::Scan(scan) => std::slice::from_ref(scan),
        _ => &[],
    });
    let mut ranges: Vec<(u64, u64)> = scans
        .filter_map(|scan| match (&scan.first, &scan.last) {
            (history::Key::Number(first), history::Key::Number(last)) => Some((*first, *last)),
            _ => None,
        })
        .collect();
    ranges.sort_unstable();
    ranges.dedup_by(|next, range| {
        let joins = next.0 <= range.1;
        if joins {
            range.1 = range.1.max(next.1);
        }
        joins
    });
    ranges
}

#[cfg(test)]
mod tests {
    use nicol_core::history::{End, Read, Scan, Txn};
    use nicol_core::ids::Key;
    use nicol_core::view::View;

    use super::*;

    /// Records 0 to 99.
    struct Hundred;

    impl RecordSource for Hundred {
        fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
            let keys = (0..100).map(Key).filter(|key| shards.shard_of(*key) == shard);
            keys.for_each(|key| each(key, &key.0.to_le_bytes()));
        }

        fn records_per_shard(&self) -> u64 {
            100
        }
    }

    fn operation(read: u64, scan: (u64, u64)) -> Operation {
        let key = |number| history::Key::Number(number);
        let scan = Scan {
            first: key(scan.0),
            last: key(scan.1),
            backward: false,
            limit: None,
            found: Vec::new(),
        };
        let read = Read { key: key(read), present: false, version: Some(0), digest: None };
        let txn = Txn { reads: vec![read], scans: vec![scan], ..Txn::default() };
        Operation {
            client: 0,
            sequence: 0,
            id: 0,
            invoked: 0,
            responded: Some(0),
            end: End::Ok,
            action: Action::Txn(txn),
        }
    }

    #[test]
    fn what_operations_name_or_scans_cover_is_listed_and_nothing_else() {
        let operations = [operation(50, (3, 5)), operation(120, (5, 7)), operation(4, (98, 200))];
        let view = View::new(3, 1, 1, 1).unwrap();
        let Initial::Listed(loaded) = initial(&Hundred, &view, &operations) else {
            panic!("the load is told");
        };
        let keys: Vec<_> = loaded.iter().map(|record| record.key.clone()).collect();
        assert_eq!(keys, [3, 4, 5, 6, 7, 50, 98, 99].map(history::Key::Number));
        assert_eq!(loaded[5].digest, Some(digest(&50_u64.to_le_bytes())));
    }
}
