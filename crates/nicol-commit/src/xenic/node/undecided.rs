//! What backups have logged and not applied: nobody has said yet whether its transaction commits.
//! (decision 0101)
//!
//! A host worker takes a LOG's record out of the ring, which is free again, and keeps it here. It
//! applies it when the coordinator has said, behind it in the same ring, that the transaction is
//! committed, and drops it if the coordinator has said that it is not.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nicol_core::ids::{Key, ShardId, TxnId};

use crate::decided::{Decision, Fate};
use crate::log::logged;
use crate::xenic::messages::recovery::Account;

/// The undecided records out of one log, which one host worker reads.
#[derive(Debug, Default)]
pub(in crate::xenic) struct Undecided(Mutex<Kept>);

/// What a log has of one undecided transaction.
#[derive(Debug)]
struct Open {
    /// The number of its first record.
    number: u64,
    /// The bodies of its LOGs.
    records: Vec<Box<[u8]>>,
}

#[derive(Debug, Default)]
struct Kept {
    txns: BTreeMap<TxnId, Open>,
    /// The numbers of those.
    numbers: BTreeSet<u64>,
    /// Records that were ever kept.
    records: u64,
    /// Transactions that are committed, until all their backups know.
    committed: BTreeSet<TxnId>,
    /// Transactions that have aborted after a LOG. One that comes later is dropped, too: its sender
    /// has died meanwhile. There are some of these only where there are crashes.
    aborted: BTreeSet<TxnId>,
}

impl Kept {
    fn take(&mut self, txn: TxnId) -> Vec<Box<[u8]>> {
        let Some(Open { number, records }) = self.txns.remove(&txn) else { return Vec::new() };
        self.numbers.remove(&number);
        records
    }
}

impl Undecided {
    /// Keeps the record of a LOG.
    pub(in crate::xenic) fn keep(&self, body: &[u8]) {
        let (kept, txn) = (&mut *self.kept(), logged(body).txn);
        if kept.aborted.contains(&txn) {
            return;
        }
        let number = kept.records;
        kept.records += 1;
        kept.txns
            .entry(txn)
            .or_insert_with(|| {
                kept.numbers.insert(number);
                Open { number, records: Vec::new() }
            })
            .records
            .push(body.into());
    }

    /// `txn` is committed: the records to apply.
    pub(in crate::xenic) fn commit(&self, txn: TxnId) -> Vec<Box<[u8]>> {
        let mut kept = self.kept();
        kept.committed.insert(txn);
        kept.take(txn)
    }

    /// All backups of `txn`, which is committed, know that.
    pub(in crate::xenic) fn forget(&self, txn: TxnId) {
        self.kept().committed.remove(&txn);
    }

    /// Adds to `account` the undecided records of transactions that are `wanted`, and what is
    /// decided of such.
    pub(in crate::xenic) fn tell(&self, account: &mut Account, wanted: impl Fn(TxnId) -> bool) {
        let kept = self.kept();
        let records = kept.txns.iter().filter(|(txn, _)| wanted(**txn));
        account.records.extend(records.flat_map(|(_, open)| open.records.iter().cloned()));
        let fates = [(&kept.committed, Fate::Committed), (&kept.aborted, Fate::Aborted)];
        for (txns, fate) in fates {
            let decided = txns.iter().filter(|txn| wanted(**txn));
            account.decisions.extend(decided.map(|&txn| Decision { txn, fate }));
        }
    }

    /// The undecided records of `shard`.
    pub(super) fn records_of(&self, shard: ShardId) -> Vec<Box<[u8]>> {
        let kept = self.kept();
        let records = kept.txns.values().flat_map(|open| &open.records);
        records.filter(|record| logged(record).shard == shard).cloned().collect()
    }

    /// `txn` is aborted: its records are dropped.
    pub(in crate::xenic) fn abort(&self, txn: TxnId) {
        let mut kept = self.kept();
        kept.aborted.insert(txn);
        drop(kept.take(txn));
    }

    /// The number that the next record gets, and that of the oldest which is undecided: all with
    /// lower numbers are decided.
    pub(super) fn numbers(&self) -> (u64, u64) {
        let kept = self.kept();
        (kept.records, kept.numbers.first().copied().unwrap_or(kept.records))
    }

    /// Calls `each` with every undecided transaction and the keys that it writes.
    pub(super) fn for_each(&self, each: &mut dyn FnMut(TxnId, &mut dyn Iterator<Item = Key>)) {
        for (&txn, Open { records, .. }) in &self.kept().txns {
            each(txn, &mut records.iter().flat_map(|body| logged(body)).map(|(key, ..)| key));
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::fabric::Message;
    use nicol_core::ids::{Epoch, Version};
    use nicol_core::txn::{ProcedureId, Txn};
    use nicol_core::wire::Writer;

    use super::*;
    use crate::writes::{Log, Updated};

    /// The LOG of a transaction that sets `key`, of `shard`.
    fn log(id: u64, shard: u16, key: u64) -> Vec<u8> {
        let mut txn = Txn::default();
        txn.reset(ProcedureId(0), &[]);
        txn.id = TxnId(id);
        txn.write(Key(key));
        txn.fetched(0, Version(1), None);
        txn.put(0, b"new");
        let shards = [ShardId(1), ShardId(2)];
        let updated = Updated::Listed { began: Epoch::FIRST, shards: &shards };
        let (shard, mut body) = (ShardId(shard), Vec::new());
        Log { txn: &txn, shard, updated, keys: &[0] }.emit(&mut Writer::new(&mut body));
        body
    }

    fn kept(undecided: &Undecided) -> Vec<(u64, Vec<u64>)> {
        let mut kept = Vec::new();
        undecided.for_each(&mut |txn, keys| kept.push((txn.0, keys.map(|key| key.0).collect())));
        kept
    }

    #[test]
    fn records_wait_for_their_decision_and_the_oldest_is_known() {
        let undecided = Undecided::default();
        assert_eq!(undecided.numbers(), (0, 0));
        for (id, shard, key) in [(7, 1, 10), (9, 1, 11), (7, 2, 12)] {
            undecided.keep(&log(id, shard, key));
        }
        assert_eq!(kept(&undecided), [(7, vec![10, 12]), (9, vec![11])]);
        assert_eq!(undecided.numbers(), (3, 0));
        let records: Vec<Vec<u8>> =
            undecided.commit(TxnId(7)).into_iter().map(<[u8]>::into_vec).collect();
        assert_eq!(records, [log(7, 1, 10), log(7, 2, 12)]);
        assert_eq!(undecided.numbers(), (3, 1));
        assert!(undecided.commit(TxnId(7)).is_empty(), "it is told once");
        let told = |txn| {
            let mut account = Account::default();
            undecided.tell(&mut account, |of| of == TxnId(txn));
            (account.records.len(), account.decisions.first().map(|decision| decision.fate))
        };
        assert_eq!((told(7), told(9)), ((0, Some(Fate::Committed)), (1, None)));
        undecided.forget(TxnId(7));
        assert_eq!(told(7), (0, None));
        undecided.abort(TxnId(9));
        assert_eq!((kept(&undecided), undecided.numbers()), (vec![], (3, 3)));
        // One whose sender died on the way.
        undecided.keep(&log(9, 2, 13));
        assert_eq!((kept(&undecided), undecided.numbers()), (vec![], (3, 3)));
    }
}
