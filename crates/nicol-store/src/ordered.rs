//! A shard's ordered tables, and the validation of their scans. [Xenic21 5.2, 5.6: B+ trees for
//! TPC-C's local tables]
//!
//! The records stand in a B+ tree in host memory ([`OrderedTable`]), at the primary and at every
//! backup; Workers apply logged writes to it. Locks and committed writes are on Xenic's NIC
//! ([`WriteCounters`]). Both sides count the writes of each [`VersionRange`]: the host those that
//! it has applied, the NIC those that it has installed.
//!
//! A scan is current at the instant at which the NIC finds equal counts and no foreign lock in the
//! range. A write that only the host has counted is locked until it is installed, so equal counts
//! without a lock mean the same writes.
//!
//! Without a NIC, the host keeps both counts: it installs a write when it applies it.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nicol_core::ids::{IdMap, Key, TxnId, Version};
use nicol_core::txn::{KeyRange, RangeVersion, Txn, VersionRange};

use crate::btree::BTree;
use crate::high_water::{HighWater, HighWaterMarks, prefix_group};
use crate::host_table::{Applied, Lookup};

/// Mutexes that the ranges are spread over.
const STRIPES: usize = 64;

type Striped<T> = Vec<Mutex<IdMap<u32, T>>>;

fn striped<T>() -> Striped<T> {
    (0..STRIPES).map(|_| Mutex::default()).collect()
}

fn stripe<T>(stripes: &Striped<T>, range: VersionRange) -> MutexGuard<'_, IdMap<u32, T>> {
    let spread = range.0 as usize ^ (range.0 >> 8) as usize;
    stripes[spread % STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
}

/// The ordered tables of a shard, at one replica.
pub struct OrderedTable {
    tree: BTree,
    /// Writes applied, by range.
    applied: Striped<u64>,
}

impl Default for OrderedTable {
    fn default() -> Self {
        Self { tree: BTree::new(), applied: striped() }
    }
}

impl OrderedTable {
    /// A deep copy. Requires exclusive access.
    pub fn copy(&self) -> Self {
        let counts = |ranges: &Mutex<IdMap<u32, u64>>| {
            Mutex::new(ranges.lock().unwrap_or_else(PoisonError::into_inner).clone())
        };
        Self { tree: self.tree.copy(), applied: self.applied.iter().map(counts).collect() }
    }

    /// Its records, for reading.
    pub fn tree(&self) -> &BTree {
        &self.tree
    }

    /// Loads a record before the run, at version 1; it does not count as a write.
    ///
    /// # Panics
    /// If the key exists already.
    pub fn load(&self, key: Key, value: &[u8]) {
        self.tree.load(key, value);
    }

    /// Applies a logged write like [`BTree::apply`], and counts it each time: a primary installs
    /// and logs each write once.
    pub fn apply(&self, key: Key, version: Version, value: Option<&[u8]>) -> Applied {
        let applied = self.tree.apply(key, version, value);
        // After the write: a reader of the new count sees the write.
        let range = VersionRange::of(key);
        *stripe(&self.applied, range).entry(range.0).or_default() += 1;
        applied
    }

    /// The version of a range. Take it before reading anything there.
    pub fn range_version(&self, range: VersionRange) -> RangeVersion {
        let writes = stripe(&self.applied, range).get(&range.0).copied().unwrap_or_default();
        RangeVersion { range, writes }
    }

    /// Looks `key` up; a value found is appended to `into`. See [`BTree::get`].
    pub fn get(&self, key: Key, into: &mut Vec<u8>) -> Lookup {
        self.tree.get(key, into)
    }

    /// The high-water mark of `key`'s group.
    pub fn high_water(&self, key: Key) -> HighWater {
        self.tree.high_water(key)
    }

    /// Makes the scan at index `scan` of `txn`, under its range's version. Returns false if it
    /// finds more than a transaction may touch, and the number of records found.
    pub fn scan_for(&self, txn: &mut Txn, scan: usize) -> (bool, u64) {
        let range = txn.scans()[scan].range;
        txn.note_range_version(self.range_version(VersionRange::of(range.first)));
        let mut found = 0;
        let fits = txn.scanned(scan, |into| {
            self.scan(&range, &mut |key, version, value| {
                found += 1;
                into.add(key, version, value)
            });
        });
        (fits, found)
    }

    /// Passes the records of a range to `each`, until it returns false. See [`BTree::scan`].
    pub fn scan(&self, range: &KeyRange, each: &mut dyn FnMut(Key, Version, &[u8]) -> bool) {
        let mut left = range.limit;
        if left == 0 {
            return;
        }
        let mut counted = |key, version, value: &[u8]| {
            left -= 1;
            each(key, version, value) && left > 0
        };
        if range.backward {
            self.tree.scan_back(range.first..=range.last, &mut counted);
        } else {
            self.tree.scan(range.first..=range.last, &mut counted);
        }
    }
}

impl fmt::Debug for OrderedTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OrderedTable({:?})", self.tree)
    }
}

/// A range's locks and installed writes, at a primary's NIC.
#[derive(Debug, Default)]
struct RangeState {
    installed: u64,
    /// Transactions that are about to install records of their own, whose keys are not locked.
    inserting: Vec<TxnId>,
    /// Has there been such a record? Then the host may lack one of which no index knows.
    has_inserts: bool,
    /// Keys that are locked, and for whom.
    held: Vec<(Key, TxnId)>,
}

/// Locks on keys of ordered tables, installed writes by range, and high-water marks. Kept by a
/// primary's NIC beside its index, or by its host. [AMB-36]
pub struct WriteCounters {
    ranges: Striped<RangeState>,
    high_water_marks: HighWaterMarks,
}

impl Default for WriteCounters {
    fn default() -> Self {
        Self { ranges: striped(), high_water_marks: HighWaterMarks::default() }
    }
}

impl WriteCounters {
    /// Records that `txn` has locked `key` in the index. May be repeated.
    pub fn lock(&self, key: Key, txn: TxnId) {
        let range = VersionRange::of(key);
        let mut stripe = stripe(&self.ranges, range);
        let held = &mut stripe.entry(range.0).or_default().held;
        if !held.contains(&(key, txn)) {
            held.push((key, txn));
        }
    }

    /// Locks `key` for `txn`; false if another transaction holds it. May be repeated. For a primary
    /// that keeps its locks here and not in an index.
    pub fn try_lock(&self, key: Key, txn: TxnId) -> bool {
        let range = VersionRange::of(key);
        let mut stripe = stripe(&self.ranges, range);
        let held = &mut stripe.entry(range.0).or_default().held;
        match held.iter().find(|(locked, _)| *locked == key) {
            Some(&(_, holder)) => holder == txn,
            None => {
                held.push((key, txn));
                true
            }
        }
    }

    /// Returns true if a transaction holds `key`.
    pub fn is_locked(&self, key: Key) -> bool {
        let range = VersionRange::of(key);
        let stripe = stripe(&self.ranges, range);
        stripe
            .get(&range.0)
            .is_some_and(|range| range.held.iter().any(|(locked, _)| *locked == key))
    }

    /// The transaction that holds `key`.
    pub fn holder(&self, key: Key) -> Option<TxnId> {
        let range = VersionRange::of(key);
        let stripe = stripe(&self.ranges, range);
        let held = &stripe.get(&range.0)?.held;
        held.iter().find(|(locked, _)| *locked == key).map(|&(_, holder)| holder)
    }

    /// Calls `each` with every key that is locked, and the transaction that holds it, in no order
    /// that means anything: for audits.
    pub fn for_each_locked(&self, each: &mut dyn FnMut(Key, TxnId)) {
        for stripe in &self.ranges {
            let stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            let held = stripe.values().flat_map(|range| &range.held);
            held.for_each(|&(key, holder)| each(key, holder));
        }
    }

    /// Releases `key` if `txn` holds it.
    pub fn unlock(&self, key: Key, txn: TxnId) {
        let range = VersionRange::of(key);
        if let Some(range) = stripe(&self.ranges, range).get_mut(&range.0) {
            range.held.retain(|held| *held != (key, txn));
        }
    }

    /// A COMMIT is about to install a write of `key`, which is locked, in the index. Call before
    /// installing, so that a concurrent lookup never misses both the mark and the write.
    pub fn install(&self, key: Key) {
        self.high_water_marks.raise(key);
        let range = VersionRange::of(key);
        stripe(&self.ranges, range).entry(range.0).or_default().installed += 1;
    }

    /// Records that `txn` is about to install new records of these keys, which it does not lock:
    /// their ranges are not current for others until [`WriteCounters::release_inserts`]. Returns
    /// how many ranges there are in a row. May be repeated.
    pub fn hold_inserts(&self, keys: impl Iterator<Item = Key>, txn: TxnId) -> u64 {
        runs(keys.map(VersionRange::of), |range, _| {
            let mut stripe = stripe(&self.ranges, range);
            let state = stripe.entry(range.0).or_default();
            state.has_inserts = true;
            if !state.inserting.contains(&txn) {
                state.inserting.push(txn);
            }
        })
    }

    /// A COMMIT installs the new records of these keys, whose ranges are held. Returns how many
    /// ranges there are in a row.
    pub fn install_inserts(&self, keys: impl Iterator<Item = Key> + Clone) -> u64 {
        // Marks first, as in `install`.
        keys.clone().for_each(|key| self.high_water_marks.raise(key));
        runs(keys.map(VersionRange::of), |range, times| {
            stripe(&self.ranges, range).entry(range.0).or_default().installed += times;
        })
    }

    /// The records of `txn` in these ranges are installed, or never will be. Returns how many
    /// ranges there are in a row.
    pub fn release_inserts(&self, keys: impl Iterator<Item = Key>, txn: TxnId) -> u64 {
        runs(keys.map(VersionRange::of), |range, _| {
            if let Some(state) = stripe(&self.ranges, range).get_mut(&range.0) {
                state.inserting.retain(|inserting| *inserting != txn);
            }
        })
    }

    /// A transaction that is about to install new records in the range of `key`.
    pub fn inserter(&self, key: Key) -> Option<TxnId> {
        let range = VersionRange::of(key);
        stripe(&self.ranges, range).get(&range.0)?.inserting.first().copied()
    }

    /// Transactions that are about to install new records, each once in every range.
    pub fn inserting_count(&self) -> usize {
        let stripes = self.ranges.iter().map(|stripe| {
            let stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            stripe.values().map(|range| range.inserting.len()).sum::<usize>()
        });
        stripes.sum()
    }

    /// May the host, which has counted so many writes, lack a new record of the range that no index
    /// knows? Then that a key is absent there says nothing.
    pub fn may_lack_inserts(&self, version: RangeVersion) -> bool {
        stripe(&self.ranges, version.range)
            .get(&version.range.0)
            .is_some_and(|range| range.has_inserts && range.installed != version.writes)
    }

    /// Stores the high-water mark of `key`'s group that the host has answered with.
    pub fn learn_high_water(&self, key: Key, high_water: HighWater) {
        self.high_water_marks.learn(key, high_water);
    }

    /// Learns the high-water marks of all groups that have records in `table`.
    pub fn preload(&self, table: &OrderedTable) {
        let mut last = None;
        table.tree.for_each(&mut |key, _, _| {
            let ended = last.replace(key).filter(|last| prefix_group(*last) != prefix_group(key));
            ended
                .into_iter()
                .for_each(|last| self.learn_high_water(last, HighWater::through(last)));
        });
        last.into_iter().for_each(|last| self.learn_high_water(last, HighWater::through(last)));
    }

    /// Returns true if `key` certainly never had a record, committed or in progress.
    pub fn confirm_absent(&self, key: Key) -> bool {
        self.high_water_marks.confirm_absent(key)
    }

    /// Returns true if what `txn` has read under `version` is current and no other transaction
    /// holds a lock in the range.
    pub fn is_current(&self, version: RangeVersion, txn: TxnId) -> bool {
        match stripe(&self.ranges, version.range).get(&version.range.0) {
            Some(range) => {
                range.installed == version.writes
                    && range.held.iter().all(|&(_, holder)| holder == txn)
                    && range.inserting.iter().all(|&inserting| inserting == txn)
            }
            None => version.writes == 0,
        }
    }

    /// The keys of `range` that are locked, and by whom.
    pub fn locked_in(&self, range: VersionRange) -> Vec<(Key, TxnId)> {
        let stripe = stripe(&self.ranges, range);
        stripe.get(&range.0).map_or_else(Vec::new, |range| range.held.clone())
    }

    /// Keys that are locked.
    pub fn locked_count(&self) -> usize {
        let stripes = self.ranges.iter().map(|stripe| {
            let stripe = stripe.lock().unwrap_or_else(PoisonError::into_inner);
            stripe.values().map(|range| range.held.len()).sum::<usize>()
        });
        stripes.sum()
    }
}

/// Calls `each` with every value of `values` that is not the one before it, and how often it comes
/// in a row; returns how many such runs there are.
fn runs<T: Copy + PartialEq>(values: impl Iterator<Item = T>, mut each: impl FnMut(T, u64)) -> u64 {
    let (mut run, mut count) = (None::<(T, u64)>, 0);
    for value in values {
        run = Some(match run {
            Some((same, times)) if same == value => (same, times + 1),
            ended => {
                if let Some((value, times)) = ended {
                    each(value, times);
                }
                count += 1;
                (value, 1)
            }
        });
    }
    if let Some((value, times)) = run {
        each(value, times);
    }
    count
}

impl fmt::Debug for WriteCounters {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "WriteCounters({} locked)", self.locked_count())
    }
}

#[cfg(test)]
mod tests;
