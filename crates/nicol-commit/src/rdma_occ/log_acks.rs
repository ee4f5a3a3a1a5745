//! The second round of the public code: a coordinator tells every backup that all of them have
//! logged a transaction, and only then may its records be truncated. AMB-44
//!
//! One exception keeps two transactions from waiting for each other's space at two backups, each
//! with a record at one of them: while a LOG that came by RPC finds no space, records that have
//! been applied are truncated as they are without a second round. A ring that a coordinator writes
//! itself needs none, since space is reserved at every backup before the first record is written.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::ids::TxnId;

use crate::log::LogMemory;

/// What one host engine has been told of the logs that it applies.
#[derive(Default)]
pub(super) struct Acknowledged {
    /// The logs that this engine applies.
    logs: RefCell<Vec<Arc<LogMemory>>>,
    logged: RefCell<LoggedEverywhere>,
    /// LOGs that wait for space.
    waiting: Cell<usize>,
}

/// The transactions that every backup has logged.
#[derive(Default)]
struct LoggedEverywhere {
    /// All before this one, by the first that its engine could have in that life.
    oldest: BTreeMap<TxnId, TxnId>,
    /// Later ones: as many as a coordinator logs at a time.
    txns: BTreeSet<TxnId>,
}

impl Acknowledged {
    /// This engine applies `log` as well. Nothing has been told of it yet.
    pub(super) fn add(&self, log: Arc<LogMemory>) {
        self.logs.borrow_mut().push(log);
    }

    /// Every backup has logged `txn`, and whatever its coordinator has logged before `oldest`. A
    /// record of them may still come: a LOG that was sent twice is logged twice.
    pub(super) fn acknowledge(&self, txn: TxnId, oldest: TxnId) {
        let LoggedEverywhere { oldest: known, txns } = &mut *self.logged.borrow_mut();
        txns.insert(txn);
        let first = first_of(txn);
        let known = known.entry(first).or_insert(first);
        *known = oldest.max(*known);
        while let Some(&before) = txns.range(first..*known).next() {
            txns.remove(&before);
        }
        self.look_again();
    }

    /// A LOG waits for space, until what is returned is dropped: nothing is retained meanwhile.
    pub(super) fn wait_for_space(self: &Rc<Self>) -> WaitsForSpace {
        self.waiting.set(self.waiting.get() + 1);
        self.look_again();
        WaitsForSpace(self.clone())
    }

    /// Lets the workers look at the records that they have retained.
    pub(super) fn look_again(&self) {
        self.logs.borrow().iter().for_each(|log| log.region().doorbell().ring());
    }

    /// May the records of `txn` be truncated?
    fn has(&self, txn: TxnId) -> bool {
        let LoggedEverywhere { oldest, txns } = &*self.logged.borrow();
        oldest.get(&first_of(txn)).is_some_and(|oldest| txn < *oldest) || txns.contains(&txn)
    }
}

/// A LOG that waits for space.
#[must_use = "what is retained may be what it waits for"]
pub(super) struct WaitsForSpace(Rc<Acknowledged>);

impl Drop for WaitsForSpace {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
    }
}

/// Before the first transaction of the same life of the same engine.
fn first_of(txn: TxnId) -> TxnId {
    TxnId(txn.0 - txn.sequence())
}

/// Records of one log that have been applied and may not be truncated yet.
pub(super) struct Retained {
    acknowledged: Rc<Acknowledged>,
    records: RefCell<VecDeque<RetainedRecord>>,
    /// Where the last one ends that has been applied.
    last: Cell<u64>,
}

/// One of them.
struct RetainedRecord {
    txn: TxnId,
    /// Where it begins in the log.
    start: u64,
    /// True once its second round has come.
    acknowledged: bool,
}

impl Retained {
    /// None yet.
    pub(super) fn new(acknowledged: Rc<Acknowledged>) -> Self {
        Self { acknowledged, records: RefCell::default(), last: Cell::new(0) }
    }

    /// A record of `txn` that ends at `end` has been applied.
    pub(super) fn applied(&self, txn: TxnId, end: u64) {
        // What is skipped before it belongs to it.
        let start = self.last.replace(end);
        self.records.borrow_mut().push_back(RetainedRecord { txn, start, acknowledged: false });
    }

    /// Up to where the log is free: up to the first record that was not acknowledged and whose
    /// coordinator is not `lost`; up to `read` if there is none, or a LOG waits for space.
    pub(super) fn free_up_to(&self, read: u64, lost: impl Fn(TxnId) -> bool) -> u64 {
        let mut records = self.records.borrow_mut();
        if self.acknowledged.waiting.get() > 0 {
            records.clear();
        }
        for record in records.iter_mut().filter(|record| !record.acknowledged) {
            record.acknowledged = self.acknowledged.has(record.txn) || lost(record.txn);
        }
        while records.front().is_some_and(|first| first.acknowledged) {
            records.pop_front();
        }
        records.front().map_or(read, |first| first.start)
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::{EngineId, Incarnation, NodeId};
    use nicol_core::units::Bytes;

    use super::*;

    fn txn(number: u64) -> TxnId {
        TxnId::new(EngineId::host(NodeId(1), 0), Incarnation::FIRST, number)
    }

    #[test]
    fn a_log_is_free_up_to_the_first_record_that_was_not_acknowledged() {
        let log = Arc::new(LogMemory::new(Bytes(1_000)));
        let acknowledged = Rc::new(Acknowledged::default());
        acknowledged.add(log.clone());
        let retained = Retained::new(acknowledged.clone());
        let free = |read| retained.free_up_to(read, |of| of == txn(9));
        assert_eq!(free(0), 0);
        // The second one has two records here, and is acknowledged before they are read.
        acknowledged.acknowledge(txn(2), txn(1));
        for (number, end) in [(1, 40), (2, 80), (2, 120), (3, 160), (9, 200)] {
            retained.applied(txn(number), end);
        }
        assert_eq!(free(200), 0, "the first is not acknowledged");
        let rings = log.region().doorbell().rings();
        acknowledged.acknowledge(txn(1), txn(1));
        assert!(log.region().doorbell().rings() > rings, "the worker is told");
        assert_eq!(free(200), 120);
        acknowledged.acknowledge(txn(3), txn(3));
        assert_eq!(free(200), 200, "nobody will acknowledge what a lost coordinator has logged");
        retained.applied(txn(4), 240);
        assert_eq!(free(240), 200, "space that was free stays free");
        retained.applied(txn(2), 280);
        acknowledged.acknowledge(txn(4), txn(4));
        assert_eq!(free(280), 280, "a record that was sent twice came late");
        assert_eq!(acknowledged.logged.borrow().txns, BTreeSet::from([txn(4)]), "it is the oldest");
    }
}
