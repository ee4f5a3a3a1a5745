//! New records of ordered tables that are the coordinator's own: nobody else knows their keys yet,
//! so that no NIC index locks or looks them up; only their ranges are held. (decision 0110)
//! [Xenic21 5.2, 5.6]

use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::{Key, TxnId};
use nicol_core::txn::{Abort, Entry, Procedures, Txn, Verdict, VersionRange};

use super::Node;

/// The own inserts of transactions that a node coordinates.
#[derive(Clone, Copy)]
pub(in crate::xenic) struct OwnInserts<'n>(&'n Node);

impl<'n> OwnInserts<'n> {
    /// Those of transactions that `node` coordinates.
    pub(in crate::xenic) fn of(node: &'n Node) -> Self {
        Self(node)
    }

    /// Executes `txn` at the node that coordinates it, which takes the inserts of its own ordered
    /// tables as its own.
    pub(in crate::xenic) fn execute(self, procedures: &Procedures, txn: &mut Txn) -> Verdict {
        match procedures.execute(txn) {
            Verdict::More if self.own_inserts(txn) => procedures.execute(txn),
            verdict => verdict,
        }
    }

    /// Takes what `txn` inserts into this node's ordered tables as the coordinator's own, if it
    /// locks another record here and neither reads nor writes others in the same ranges. Returns
    /// true if nothing else is left to fetch.
    fn own_inserts(self, txn: &mut Txn) -> bool {
        let is_guard = |entry: &Entry| entry.write && !entry.insert && entry.fetched;
        let guarded =
            txn.entries().iter().any(|entry| is_guard(entry) && self.0.is_primary_of(entry.key));
        if !guarded {
            return false;
        }
        let others = txn.entries().iter().filter(|entry| !entry.insert && entry.key.is_ordered());
        let mut shared: Vec<VersionRange> = Vec::new();
        for range in others.map(|entry| VersionRange::of(entry.key)) {
            if !shared.contains(&range) {
                shared.push(range);
            }
        }
        txn.own_inserts(|entry| {
            let alone = !shared.contains(&VersionRange::of(entry.key));
            entry.key.is_ordered() && self.0.is_primary_of(entry.key) && alone
        })
    }

    /// Are the records that `txn` has as its coordinator's own those of this node's ordered tables?
    pub(in crate::xenic) fn are_all_of(self, txn: &Txn) -> bool {
        let mut own = txn.entries().iter().filter(|entry| entry.own);
        own.all(|entry| entry.key.is_ordered() && self.0.is_primary_of(entry.key))
    }

    /// Holds the ranges of the own records of `txn`: no scan of them is current, and no key there
    /// is locked or read by others, until they are installed or given up.
    pub(in crate::xenic) fn hold<F: Fabric>(self, fabric: &F, txn: &Txn) {
        if self.0.config.hooks().covers_inserts() {
            let ranges = self.0.write_counters().hold_inserts(own_updates(txn), txn.id);
            (0..ranges).for_each(|_| fabric.work(Work::IndexLookup));
        }
    }

    /// Gives up the own records of `txn`.
    pub(in crate::xenic) fn give_up<F: Fabric>(self, fabric: &F, txn: &Txn) {
        self.release(fabric, own_updates(txn), txn.id);
    }

    /// Releases the ranges of `keys`, own records of `txn`.
    pub(in crate::xenic) fn release<F: Fabric>(
        self,
        fabric: &F,
        keys: impl Iterator<Item = Key>,
        txn: TxnId,
    ) {
        let ranges = self.0.write_counters().release_inserts(keys, txn);
        (0..ranges).for_each(|_| fabric.work(Work::IndexLookup));
    }

    /// Installs own records: their keys are known from here on.
    pub(in crate::xenic) fn install<F: Fabric>(
        self,
        fabric: &F,
        keys: impl Iterator<Item = Key> + Clone,
    ) {
        let ranges = self.0.write_counters().install_inserts(keys);
        (0..ranges).for_each(|_| fabric.work(Work::IndexLookup));
    }

    /// Errors: a transaction other than `own` is about to insert records in the range of `key`.
    pub(super) fn refuse_beside_others(self, key: Key, own: Option<TxnId>) -> Result<(), Abort> {
        match self.inserter(key) {
            Some(inserter) if Some(inserter) != own => {
                Err(self.0.conflict(key, inserter, Abort::LockConflict { key }))
            }
            _ => Ok(()),
        }
    }

    /// Who is about to insert records in the range of `key`, if that is an ordered table's.
    pub(in crate::xenic) fn inserter(self, key: Key) -> Option<TxnId> {
        if key.is_ordered() { self.0.write_counters().inserter(key) } else { None }
    }
}

/// The own records that `txn` inserts.
fn own_updates(txn: &Txn) -> impl Iterator<Item = Key> + '_ {
    let own = txn.entries().iter().filter(|entry| entry.own && entry.is_updated());
    own.map(|entry| entry.key)
}
