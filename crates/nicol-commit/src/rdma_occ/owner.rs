//! What a host engine's CPU does to the records of its own node's shard, for its coordinator and,
//! by RPC, for others'.

use std::cell::RefCell;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::{Key, TxnId, Version};
use nicol_core::txn::{Abort, RangeVersion};
use nicol_kit::lock_all;
use nicol_store::host_table::Lookup;
use nicol_store::remote_table::Found as Looked;

use super::node::Node;
use crate::messages::{Found, ReadOf};

/// The owner of a shard, as the steps and the server ask it. `OwnShard` is the true one; another
/// one is broken for the checkers' negative tests (`broken`). Keys are of its shard.
pub(super) trait Owner {
    /// Locks `key` for `txn`, perhaps again.
    ///
    /// Errors: another transaction holds it, perhaps for good; there is no space for what may be
    /// inserted.
    fn lock(&self, key: Key, txn: TxnId) -> Result<(), Abort>;

    /// Unlocks `key` if `txn` holds it.
    fn unlock(&self, key: Key, txn: TxnId);

    /// Checks that a key that `txn` has locked is still as it was read.
    fn check_locked(&self, txn: TxnId, read: ReadOf) -> Result<(), Abort>;

    /// Reads `key`; its value is appended to `values`. `mine` says that the transaction has locked
    /// it.
    ///
    /// Errors: another transaction holds it.
    fn read(&self, key: Key, mine: bool, values: &mut Vec<u8>) -> Result<Found, Abort>;

    /// Checks that a key that its reader has not locked is still as it was read, and not locked.
    fn check(&self, read: ReadOf) -> Result<(), Abort>;

    /// Checks that the range scanned under `version` by `txn` is current, and not locked by others.
    fn check_range(&self, version: RangeVersion, txn: TxnId) -> Result<(), Abort>;

    /// Takes space for a value of `len` bytes for `key`, which `txn` has locked. Gives it up with
    /// the lock.
    fn reserve(&self, key: Key, txn: TxnId, len: usize) -> Result<(), Abort>;

    /// Installs a write of `txn`, which has locked `key`, and unlocks it; `None` deletes.
    fn install(&self, key: Key, txn: TxnId, version: Version, value: Option<&[u8]>);
}

impl dyn Owner {
    /// Locks every key or none.
    pub(super) fn lock_all(
        &self,
        keys: impl Iterator<Item = Key> + Clone,
        txn: TxnId,
    ) -> Result<(), Abort> {
        lock_all(keys, |key| self.lock(key, txn), |key| self.unlock(key, txn))
    }
}

/// The shard whose primary is this node.
pub(super) struct OwnShard<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    /// Takes the values of records that are looked up for their versions.
    unread: RefCell<Vec<u8>>,
}

impl<F: Fabric> OwnShard<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>) -> Self {
        Self { fabric, node, unread: RefCell::default() }
    }

    /// As [`Owner::check`]; locks matter if `heeds_locks`.
    pub(super) fn validate(&self, read: ReadOf, heeds_locks: bool) -> Result<(), Abort> {
        self.fabric.work(Work::TableLookup);
        let mut unread = self.unread.borrow_mut();
        let ReadOf { key, version, present } = read;
        let read = Lookup { version, present };
        let checked = self.node.primary().validate(key, read, heeds_locks, &mut unread);
        checked.map_err(|abort| self.node.explained(abort))
    }
}

impl<F: Fabric> Owner for OwnShard<F> {
    fn lock(&self, key: Key, txn: TxnId) -> Result<(), Abort> {
        self.fabric.work(Work::TableLookup);
        let primary = self.node.primary();
        let granted = primary.lock(key, txn).map_err(|abort| self.node.explained(abort))?;
        if !granted.present && !primary.has_capacity(key) {
            primary.unlock(key, txn);
            return Err(Abort::NoResources);
        }
        Ok(())
    }

    fn unlock(&self, key: Key, txn: TxnId) {
        self.fabric.work(Work::TableLookup);
        self.node.primary().unlock(key, txn);
    }

    fn check_locked(&self, txn: TxnId, read: ReadOf) -> Result<(), Abort> {
        let ReadOf { key, version, present } = read;
        let same = self.node.primary().is_locked_as_read(key, txn, Lookup { version, present });
        if same { Ok(()) } else { Err(Abort::Stale { key }) }
    }

    fn read(&self, key: Key, mine: bool, values: &mut Vec<u8>) -> Result<Found, Abort> {
        if !mine {
            // Else it was looked up to be locked.
            self.fabric.work(Work::TableLookup);
        }
        let start = values.len() as u32;
        match self.node.primary().get(key, values) {
            Ok(Looked { version, present, locked }) if mine || !locked => {
                let value = present.then_some((start, values.len() as u32 - start));
                Ok(Found { version, value })
            }
            // Locked, or in the middle of a one-sided commit.
            Ok(_) | Err(_) => Err(self.node.explained(Abort::LockConflict { key })),
        }
    }

    fn check(&self, read: ReadOf) -> Result<(), Abort> {
        self.validate(read, true)
    }

    fn check_range(&self, version: RangeVersion, txn: TxnId) -> Result<(), Abort> {
        self.fabric.work(Work::TableLookup);
        match self.node.primary().is_range_current(version, txn) {
            true => Ok(()),
            false => Err(self.node.staleness_of_range(&version)),
        }
    }

    fn reserve(&self, key: Key, txn: TxnId, len: usize) -> Result<(), Abort> {
        self.fabric.work(Work::TableLookup);
        match self.node.primary().replica.tables.of(key).reserve(key, txn, len) {
            true => Ok(()),
            false => Err(Abort::NoResources),
        }
    }

    fn install(&self, key: Key, txn: TxnId, version: Version, value: Option<&[u8]>) {
        self.fabric.work(Work::TableApply);
        self.node.primary().install(key, txn, version, value);
    }
}
