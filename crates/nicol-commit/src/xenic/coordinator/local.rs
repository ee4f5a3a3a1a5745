//! Local transactions at their NIC: it locks and checks what the host has executed on its own
//! table. [Xenic21 4.2.4]
//!
//! The NIC may know newer versions than the table: what it has committed and the host has not
//! applied, and locks. So it checks what every local transaction has read, one that only reads
//! included. [AMB-07, AMB-08]

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, Work};
use nicol_core::txn::{Abort, Entry, Txn};
use nicol_core::wire::Malformed;
use nicol_kit::{Selection, lock_all};

use super::steps::Steps;
use crate::xenic::config::Faithful;
use crate::xenic::messages::local::parse_txn_local;
use crate::xenic::node::{Node, Path};
use crate::xenic::open_txn::OpenTxn;
use crate::xenic::server::OwnKeys;

/// Proof that what the host has read is current, with the write set locked.
pub(super) struct CurrentHere(());

/// The local transactions of one NIC engine.
pub(super) struct LocalTxns<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    own: Rc<OwnKeys<F>>,
    steps: Rc<Steps<F>>,
}

impl<F: Fabric> LocalTxns<F> {
    pub(super) fn new(
        fabric: &F,
        node: &Arc<Node>,
        own: &Rc<OwnKeys<F>>,
        steps: &Rc<Steps<F>>,
    ) -> Self {
        let (fabric, node, own) = (fabric.clone(), node.clone(), own.clone());
        Self { fabric, node, own, steps: steps.clone() }
    }

    /// Fills `open` from a TXN_LOCAL; returns whether the application has refused.
    pub(super) fn parse(
        &self,
        delivery: Delivery<'_>,
        open: &mut OpenTxn<F>,
    ) -> Result<bool, Malformed> {
        let refused = parse_txn_local(delivery.body, &mut open.txn)?;
        open.place_keys(&self.node);
        let ranges = open.txn.range_versions().iter().map(|version| version.range.first());
        if !open.shards.iter().all(|shard| self.node.is_primary(shard))
            || !self.node.is_local(ranges)
        {
            return Err(Malformed { what: "a local transaction with keys of another shard" });
        }
        Ok(refused)
    }

    /// Commits a transaction that its host has executed, unless the application has `refused`: then
    /// it only looks whether what the host has read was current.
    ///
    /// Errors: it has not committed, and must release what it holds.
    pub(super) async fn commit(&self, open: &mut OpenTxn<F>, refused: bool) -> Result<(), Abort> {
        let reads_only = open.txn.entries().iter().all(|entry| !entry.write);
        open.path = if reads_only { Path::LocalRead } else { Path::LocalWrite };
        // [Xenic21 4.2.4] "Acquires write-set locks in its index and aborts if any is held."
        self.lock_write_set(&open.txn)?;
        if let Some(own) = self.node.shard()
            && !reads_only
        {
            open.holds_locks_at(own);
        }
        let current = self.check(open, reads_only).await?;
        if refused {
            return Err(Abort::Refused);
        }
        // [Xenic21 4.2 step 5] LOG at every backup.
        let logged = self.steps.log(open, current.into()).await?;
        // [Xenic21 4.2 step 6] Committed: the host is told, then COMMIT at this primary.
        let reported = self.steps.report_logged(open, logged);
        self.steps.commit(open, reported).await;
        Ok(())
    }

    fn lock_write_set(&self, txn: &Txn) -> Result<(), Abort> {
        let written = txn.entries().iter().filter(|entry| entry.write).map(|entry| entry.key);
        let lock = |key| {
            self.fabric.work(Work::IndexLookup);
            self.node.lock(key, txn.id)
        };
        let unlock = |key| {
            self.node.unlock(key, txn.id);
        };
        lock_all(written, lock, unlock)
    }

    async fn check(&self, open: &mut OpenTxn<F>, reads_only: bool) -> Result<CurrentHere, Abort> {
        let _phase = self.fabric.phase("4.2.4: check of a local transaction");
        let inserts = open.txn.entries().iter().any(|entry| entry.is_updated() && !entry.present);
        if inserts && !self.node.has_capacity() {
            return Err(Abort::NoResources);
        }
        if reads_only || self.node.config().faithful == Faithful::Fixed {
            self.check_current(open).await
        } else {
            // AMB-07: as printed, a writing transaction locks and checks nothing.
            Ok(CurrentHere(()))
        }
    }

    /// With the write set locked: is everything that the host has read current, and nobody's to
    /// write? [AMB-07]
    ///
    /// The order of the checks matters. The first two end with the only wait; the last three are
    /// made at the one instant after it, for which the transaction is validated.
    async fn check_current(&self, open: &mut OpenTxn<F>) -> Result<CurrentHere, Abort> {
        let OpenTxn { txn, keys, .. } = open;
        // 1. Versions that the index knows: the cheapest check, and it finds what must be looked
        // up.
        self.check_versions_in_index(txn, keys)?;
        // 2. Versions that it does not know, by DMA. While it waits, anything may be written.
        self.check_versions_in_table(txn, keys).await?;
        // 3. Ranges, after the wait: they vouch for what scans have read until now.
        self.check_ranges(txn)?;
        // 4. Keys that a range showed to be absent: told to the index only once the range is
        // current.
        self.confirm_absent(txn)?;
        // 5. Locks, after all versions: a writer that locked since a version was compared may have
        // been reported to its client already, and installs its write later.
        self.check_unlocked(txn)?;
        Ok(CurrentHere(()))
    }

    /// Compares the versions that the index knows; `unknown` are the keys that it does not know.
    fn check_versions_in_index(&self, txn: &Txn, unknown: &mut Selection) -> Result<(), Abort> {
        unknown.clear();
        for (index, entry) in txn.entries().iter().enumerate() {
            self.fabric.work(Work::IndexLookup);
            if entry.range_checked {
                continue;
            }
            match self.node.is_current(txn.id, entry) {
                Some(true) => {}
                Some(false) => return Err(self.node.staleness(entry.key)),
                None => unknown.push(index),
            }
        }
        Ok(())
    }

    /// Compares the versions of the keys `unknown` to the index with the host table's.
    async fn check_versions_in_table(&self, txn: &Txn, unknown: &Selection) -> Result<(), Abort> {
        if unknown.is_empty() {
            return Ok(());
        }
        let lookups = self.own.lookups();
        let mut found = lookups.batch();
        let keys = unknown.iter().map(|&index| txn.entries()[index].key);
        let mut checked = lookups.read_all(keys, &mut found).await.map_err(Abort::Fabric);
        for (&index, now) in unknown.iter().zip(found.iter()) {
            let entry = &txn.entries()[index];
            let same = match entry.present {
                true => now.value.is_some() && now.version == entry.version,
                false => now.value.is_none() && now.version <= entry.version,
            };
            // Asked again: the lookup may have cached a negative entry.
            let current = same && self.node.is_current(txn.id, entry) != Some(false);
            if checked.is_ok() && !current {
                checked = Err(self.node.staleness(entry.key));
            }
        }
        lookups.give_back(found);
        checked
    }

    fn check_ranges(&self, txn: &Txn) -> Result<(), Abort> {
        for version in txn.range_versions() {
            self.fabric.work(Work::IndexLookup);
            if !self.node.is_range_current(txn.id, *version) {
                return Err(self.node.staleness_of_range(version));
            }
        }
        Ok(())
    }

    fn confirm_absent(&self, txn: &Txn) -> Result<(), Abort> {
        let is_absent = |entry: &&Entry| entry.range_checked && !entry.present;
        let mut absent = txn.entries().iter().filter(is_absent);
        match absent.find(|entry| !self.node.confirm_absent_at(txn.id, entry)) {
            Some(entry) => Err(Abort::Stale { key: entry.key }),
            None => Ok(()),
        }
    }

    fn check_unlocked(&self, txn: &Txn) -> Result<(), Abort> {
        let read_only = txn.entries().iter().filter(|entry| !entry.write);
        let mut held =
            read_only.filter_map(|entry| Some((entry.key, self.node.holder(entry.key)?)));
        match held.next() {
            Some((key, holder)) => {
                Err(self.node.conflict(key, holder, Abort::ValidateLocked { key }))
            }
            None => Ok(()),
        }
    }
}
