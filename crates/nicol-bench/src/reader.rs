//! Records at the end of a run against its history, as if a transaction had read them all behind
//! everything else.

use std::collections::{BTreeMap, BTreeSet};

use nicol_core::history::{
    self, Action, Effect, End, History, Initial, Operation, Read, Txn, Write,
};
use nicol_core::ids::{Key, Version};
use nicol_core::system::ReadBack;

/// Acknowledged writes that are not there when the logs are read back. Where a system promises
/// serializability only, the reader might come before the write in the order of transactions, and
/// no check of that order would notice.
pub(crate) fn forgotten(records: &ReadBack, history: &History) -> Vec<String> {
    let found: BTreeMap<history::Key, Version> =
        records.iter().map(|(&key, (version, _))| (key.into(), *version)).collect();
    let writes = |operation: &Operation| match &operation.action {
        Action::Txn(txn) => txn.writes.clone(),
        _ => Vec::new(),
    };
    let mut deletions: BTreeMap<history::Key, Vec<(&Operation, Option<u64>)>> = BTreeMap::new();
    for operation in history.operations.iter().filter(|one| one.end != End::Failed) {
        let all = writes(operation).into_iter();
        for write in all.filter(|write| !matches!(write.effect, Effect::Put { .. })) {
            deletions.entry(write.key).or_default().push((operation, write.version));
        }
    }
    // Has somebody deleted the key later? One who tells no version has if it had not ended before.
    let is_deleted = |key: &history::Key, version: u64, by: &Operation| {
        let ends = |one: &Operation| one.responded.filter(|_| one.end == End::Ok);
        deletions.get(key).into_iter().flatten().any(|(deletion, told)| match told {
            Some(told) => *told >= version,
            None => ends(deletion).is_none_or(|at| at >= by.invoked),
        })
    };
    let mut forgotten = Vec::new();
    for operation in history.operations.iter().filter(|one| one.end == End::Ok) {
        for Write { key, version, .. } in writes(operation) {
            let Some(version) = version else { continue };
            let is_there = match found.get(&key) {
                Some(found) => found.0 >= version,
                None => is_deleted(&key, version, operation),
            };
            if !is_there {
                let id = operation.id;
                let what = format!("version {version} of {key:?}, acknowledged by operation {id}");
                forgotten.push(format!("{what}, is lost"));
            }
        }
    }
    forgotten
}

/// A transaction behind everything that reads all that was read back.
pub(crate) fn reader(records: &ReadBack, history: &History) -> Operation {
    let ends = |operation: &Operation| operation.responded.unwrap_or(operation.invoked);
    let at = 1 + history.operations.iter().map(ends).max().unwrap_or_default();
    let read = |(&key, (version, value)): (&Key, &(Version, Option<Vec<u8>>))| Read {
        key: key.into(),
        present: value.is_some(),
        version: Some(version.0),
        digest: value.as_deref().map(history::digest),
    };
    // Of what no operation has named, the history does not tell what was loaded.
    let loaded: BTreeSet<&history::Key> = match &history.initial {
        Initial::Listed(loaded) => loaded.iter().map(|record| &record.key).collect(),
        Initial::Untold => BTreeSet::new(),
    };
    let is_told = |read: &Read| read.version != Some(1) || loaded.contains(&read.key);
    let mut reads: Vec<Read> = records.iter().map(read).filter(is_told).collect();
    reads.sort_by(|one, other| one.key.cmp(&other.key));
    Operation {
        client: u32::MAX,
        sequence: 1,
        id: u64::MAX,
        invoked: at,
        responded: Some(at + 1),
        end: End::Ok,
        action: Action::Txn(Txn { reads, ..Txn::default() }),
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::TableId;

    use super::*;

    const PUT: Effect = Effect::Put { digest: None };

    fn wrote(version: u64, effect: Effect, end: End) -> Operation {
        let key = Key::new(TableId(1), 7).into();
        let writes = vec![Write { key, effect, version: Some(version) }];
        Operation {
            client: 0,
            sequence: version,
            id: version,
            invoked: 10 * version,
            responded: Some(10 * version + 5),
            end,
            action: Action::Txn(Txn { writes, ..Txn::default() }),
        }
    }

    #[test]
    fn what_was_acknowledged_is_read_back_or_was_overwritten() {
        let lost = |found: Option<u64>, operations: &[Operation]| {
            let found = found.map(|version| (Key::new(TableId(1), 7), (Version(version), None)));
            let history = History { operations: operations.to_vec(), ..History::default() };
            forgotten(&found.into_iter().collect(), &history).len()
        };
        let acknowledged = [wrote(2, PUT, End::Ok), wrote(3, PUT, End::Ok)];
        assert_eq!([3, 4].map(|found| lost(Some(found), &acknowledged)), [0, 0]);
        assert_eq!([2, 1].map(|found| lost(Some(found), &acknowledged)), [1, 2]);
        assert_eq!(lost(None, &acknowledged), 2, "nothing deletes it");
        for (end, is_lost) in [(End::Ok, 0), (End::Unknown, 0), (End::Failed, 2)] {
            let deleted = [&acknowledged[..], &[wrote(4, Effect::Delete, end)]].concat();
            assert_eq!(lost(None, &deleted), is_lost, "{end:?}");
        }
        let earlier = [wrote(1, Effect::Delete, End::Ok), wrote(2, PUT, End::Ok)];
        assert_eq!(lost(None, &earlier), 1, "what was deleted before does not excuse it");
        let mut untold = wrote(1, Effect::Delete, End::Ok);
        let Action::Txn(Txn { writes, .. }) = &mut untold.action else { unreachable!() };
        writes[0].version = None;
        assert_eq!(lost(None, &[untold.clone(), wrote(2, PUT, End::Ok)]), 1, "it had ended before");
        untold.end = End::Unknown;
        assert_eq!(lost(None, &[untold, wrote(2, PUT, End::Ok)]), 0, "it may come later");
        let unknown = [wrote(2, PUT, End::Ok), wrote(3, PUT, End::Unknown)];
        assert_eq!(lost(Some(2), &unknown), 0, "what was not acknowledged may be lost");
    }
}
