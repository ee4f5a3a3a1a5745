//! Is what the host has read for a local transaction current? Its NIC knows. [Xenic21 4.2.4]

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, Work};
use nicol_core::txn::{Abort, Entry, Txn};
use nicol_kit::Selection;

use crate::xenic::config::Faithful;
use crate::xenic::node::Node;
use crate::xenic::open_txn::OpenTxn;
use crate::xenic::server::OwnKeys;

/// Proof that what the host has read is current, with the write set locked.
pub(super) struct CurrentHere(());

/// The checks of one NIC engine's local transactions.
pub(super) struct Checks<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    own: Rc<OwnKeys<F>>,
}

impl<F: Fabric> Checks<F> {
    pub(super) fn new(fabric: &F, node: &Arc<Node>, own: &Rc<OwnKeys<F>>) -> Self {
        Self { fabric: fabric.clone(), node: node.clone(), own: own.clone() }
    }

    /// With the write set locked: is there space for what is inserted, and is what was read
    /// current?
    pub(super) async fn check(
        &self,
        open: &mut OpenTxn<F>,
        reads_only: bool,
    ) -> Result<CurrentHere, Abort> {
        let _phase = self.fabric.phase("4.2.4: check of a local transaction");
        let inserts =
            open.txn.entries().iter().filter(|entry| entry.is_updated() && !entry.present);
        // As the NIC knows it: its host may be lost since it has executed.
        let refuses = |key| !self.node.table_of(key).has_capacity();
        if inserts.map(|entry| entry.key).any(refuses) {
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
            if entry.own {
                continue;
            }
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
        let is_absent = |entry: &&Entry| entry.range_checked && !entry.present && !entry.own;
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
