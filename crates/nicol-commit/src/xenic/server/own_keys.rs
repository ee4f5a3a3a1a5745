//! This shard's keys, as transactions that run on this NIC core use them: it looks them up, and
//! locks and reads those of a whole transaction at once. [Xenic21 4.2.3]

use std::sync::Arc;

use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::Key;
use nicol_core::txn::Abort;

use super::lookup::Lookups;
use crate::xenic::node::Node;
use crate::xenic::open_txn::OpenTxn;

/// Proof that this shard's keys of a transaction were all locked at one instant, at which what was
/// read of them was current.
#[must_use = "release the locks, or commit"]
pub(in crate::xenic) struct ReadAtOnce(());

/// The keys of this node's shard, at one NIC engine.
pub(in crate::xenic) struct OwnKeys<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    lookups: Lookups<F>,
}

impl<F: Fabric> OwnKeys<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>) -> Self {
        Self { lookups: Lookups::new(fabric.clone(), node.clone()), fabric, node }
    }

    /// Looks them up.
    pub(in crate::xenic) fn lookups(&self) -> &Lookups<F> {
        &self.lookups
    }

    /// Are these read without waiting? Those of ordered tables the host may have to be asked for.
    pub(super) fn are_read_at_once(&self, mut keys: impl Iterator<Item = Key>) -> bool {
        self.fabric.transfers_at_once() && keys.all(|key| !key.is_ordered())
    }

    /// Locks this shard's keys of a transaction, all or nothing, and reads them. What it only
    /// reads is locked for reading if `protect` is set, until [`OwnKeys::unlock_shared`].
    ///
    /// All locks are held at one instant, at which everything read is current: keys that are read
    /// here need no VALIDATE.
    pub(in crate::xenic) async fn lock_and_read(
        &self,
        open: &mut OpenTxn<F>,
        protect: bool,
    ) -> Result<ReadAtOnce, Abort> {
        match self.node.shard() {
            Some(own) => open.select(own, |_| true),
            None => open.keys.clear(),
        }
        self.lock_own_keys(open, protect)?;
        let mut found = self.lookups.batch();
        let entries = open.txn.entries();
        let keys = open.keys.iter().map(|&index| entries[index].key);
        let read = self.lookups.read_all(keys, &mut found).await.map_err(Abort::Fabric);
        for (position, now) in found.iter().enumerate() {
            let index = open.keys[position];
            let bytes =
                now.value.map(|(start, len)| &found.values[start as usize..(start + len) as usize]);
            open.txn.fetched(index, now.version, bytes);
        }
        self.lookups.give_back(found);
        if read.is_err() {
            self.leave(open);
        }
        open.exhausted = open.exhausted.or(self.node.exhausted_space());
        read.map(ReadAtOnce)
    }

    fn lock_own_keys(&self, open: &mut OpenTxn<F>, protect: bool) -> Result<(), Abort> {
        assert!(open.shared_locks.is_empty(), "a transaction is executed remotely once");
        for position in 0..open.keys.len() {
            let index = open.keys[position];
            let entry = open.txn.entries()[index];
            self.fabric.work(Work::IndexLookup);
            let granted = match (entry.write, protect) {
                (true, _) => self.node.lock(entry.key, open.txn.id),
                (false, true) => self.node.lock_shared(entry.key),
                (false, false) => match self.node.holder(entry.key) {
                    Some(holder) => {
                        let conflict = Abort::LockConflict { key: entry.key };
                        Err(self.node.conflict(entry.key, holder, conflict))
                    }
                    None => Ok(()),
                },
            };
            if let Err(abort) = granted {
                open.keys.truncate(position);
                self.leave(open);
                return Err(abort);
            }
            if !entry.write && protect {
                open.shared_locks.push(index);
            }
        }
        Ok(())
    }

    /// Gives back every lock on `open.keys`.
    pub(super) fn leave(&self, open: &mut OpenTxn<F>) {
        for &index in open.keys.iter() {
            let entry = &open.txn.entries()[index];
            if entry.write {
                self.fabric.work(Work::IndexLookup);
                self.node.unlock(entry.key, open.txn.id);
            }
        }
        self.unlock_shared(open);
    }

    /// Gives the read locks back.
    pub(in crate::xenic) fn unlock_shared(&self, open: &mut OpenTxn<F>) {
        let OpenTxn { txn, shared_locks, .. } = open;
        for index in shared_locks.drain(..) {
            self.fabric.work(Work::IndexLookup);
            self.node.unlock_shared(txn.entries()[index].key);
        }
    }
}
