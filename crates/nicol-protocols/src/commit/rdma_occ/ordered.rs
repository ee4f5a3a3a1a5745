//! Scans of ordered tables at their shard's node, and their validation.

use nicol_core::fabric::{Fabric, Work};
use nicol_core::txn::{Abort, Txn};

use super::Sabotage;
use super::host::{Held, Host, Open};
use crate::commit::make_scans;

impl<F: Fabric> Host<F> {
    /// Makes the scans that a local transaction waits for, each under its range's version. One with
    /// a key or a range elsewhere is refused.
    pub(super) fn scan_here(&self, txn: &mut Txn) -> Result<(), Abort> {
        let keys = txn.entries().iter().map(|entry| entry.key);
        let ranges = txn.scans().iter().map(|scan| scan.range.first);
        if !keys.chain(ranges).all(|key| self.node.is_primary_of(key)) {
            return Err(Abort::Refused);
        }
        match make_scans(&self.fabric, &self.node.primary().replica.ordered, txn) {
            true => Ok(()),
            false => Err(Abort::NoResources),
        }
    }

    /// Checks that what was scanned has not changed, and that nobody is about to change it.
    pub(super) fn check_ranges(&self, txn: &Txn) -> Result<(), Abort> {
        for version in txn.range_versions() {
            self.fabric.work(Work::TableLookup);
            let current = self.node.primary().is_range_current(*version, txn.id);
            if !current && self.sabotage() != Sabotage::IgnoresRangeVersions {
                return Err(Abort::Stale { key: version.range.first() });
            }
        }
        Ok(())
    }

    /// Why a local transaction ends that its procedure refuses: what it has read may be out of
    /// date, or of several states, and then it is to be tried again.
    pub(super) fn refused_here(&self, txn: &Txn, open: &Open<F>) -> Abort {
        let read = txn.entries().iter().zip(&open.accesses);
        let own = read.filter(|(entry, access)| {
            entry.fetched && !entry.range_checked && access.held == Held::No
        });
        for (entry, _) in own {
            if let Err(abort) = self.check_own(entry.key, entry.version, entry.present) {
                return abort;
            }
        }
        self.check_ranges(txn).err().unwrap_or(Abort::Refused)
    }
}
