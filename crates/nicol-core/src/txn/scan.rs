//! Scans of ordered tables, and how they are validated.
//!
//! A scan reads a range of keys of an ordered table at the coordinator's own node. A version of
//! that range makes it serializable: the keys of ordered tables fall into version ranges, and each
//! range counts the writes that it has taken. A scan notes the count first; an equal count at
//! validation means that nothing has been written to the range since, new records included.

use super::{KEYS_MAX, Txn};
use crate::ids::{Key, Version};

/// Scans that one transaction may make.
pub const SCANS_MAX: usize = 64;
/// Bits of a key within its version range.
const RANGE_BITS: u32 = 32;

/// Keys of one ordered table that agree in all but their lowest 32 bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VersionRange(pub u32);

impl VersionRange {
    /// The version range of `key`.
    pub const fn of(key: Key) -> Self {
        Self((key.0 >> RANGE_BITS) as u32)
    }

    /// Its first key: stands for the version range where a key is wanted.
    pub const fn first(self) -> Key {
        Key((self.0 as u64) << RANGE_BITS)
    }
}

/// A version range's count of writes: nothing read under it has changed while the count is the
/// same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeVersion {
    pub range: VersionRange,
    /// Writes that it had taken before it was read.
    pub writes: u64,
}

/// The keys that a scan asks for: the first `limit` from one end of a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyRange {
    pub first: Key,
    /// The highest key, of the same version range.
    pub last: Key,
    /// From the highest key downwards?
    pub backward: bool,
    pub limit: u32,
}

/// A scan of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The range that it asks for.
    pub range: KeyRange,
    /// Where its finds stand, once it was made.
    found: Option<(u32, u32)>,
}

impl Scan {
    pub const fn is_done(&self) -> bool {
        self.found.is_some()
    }
}

impl Txn {
    /// Asks for a scan; returns its index. One that was asked for already keeps its index.
    ///
    /// Only a transaction that is [`Txn::local`] may scan; another one is refused.
    ///
    /// # Panics
    /// If there are [`SCANS_MAX`] scans, or the range is not within one version range.
    pub fn scan(&mut self, range: KeyRange) -> usize {
        if let Some(index) = self.scans.iter().position(|scan| scan.range == range) {
            return index;
        }
        assert!(self.scans.len() < SCANS_MAX, "a transaction makes at most {SCANS_MAX} scans");
        assert!(range.first.is_ordered(), "only an ordered table is scanned");
        assert!(
            VersionRange::of(range.first) == VersionRange::of(range.last),
            "a scan stays within one version range"
        );
        self.scans.push(Scan { range, found: None });
        self.scans.len() - 1
    }

    /// Does it wait for a scan that cannot be made, as it is not [`Txn::local`]?
    pub(crate) fn scans_in_vain(&self) -> bool {
        !self.local && self.scans.iter().any(|scan| !scan.is_done())
    }

    /// Every scan, in the order in which they were asked for.
    pub fn scans(&self) -> &[Scan] {
        &self.scans
    }

    /// The indices of the entries that a scan found, in its order; `None` before it was made.
    pub fn found(&self, scan: usize) -> Option<&[u32]> {
        let (start, len) = self.scans[scan].found?;
        Some(&self.found[start as usize..(start + len) as usize])
    }

    /// Makes the scan at index `scan`: `fill` hands over what it finds. The range's version must
    /// have been taken before. Returns false, and the transaction is of no more use, if it has
    /// found more keys than a transaction may touch.
    ///
    /// # Panics
    /// If the scan was made already.
    pub fn scanned(&mut self, scan: usize, fill: impl FnOnce(&mut Collector<'_>)) -> bool {
        let mut collector = self.collect(scan);
        fill(&mut collector);
        collector.end()
    }

    /// Begins the scan at index `scan`: what it returns takes what the scan finds, and must be
    /// told when that is all. For scans that await something.
    ///
    /// # Panics
    /// If the scan was made already.
    pub fn collect(&mut self, scan: usize) -> Collector<'_> {
        assert!(!self.scans[scan].is_done(), "a scan is made once");
        Collector { scan, start: self.found.len() as u32, txn: self, full: false }
    }

    /// Notes a version range's state, before anything is read there.
    pub fn note_range_version(&mut self, version: RangeVersion) {
        if !self.range_versions.contains(&version) {
            self.range_versions.push(version);
        }
    }

    /// The states of the version ranges that were read.
    pub fn range_versions(&self) -> &[RangeVersion] {
        &self.range_versions
    }

    /// Records what was read of the key at `index` under a range version.
    pub fn fetched_in_range(&mut self, index: usize, version: Version, value: Option<&[u8]>) {
        self.fetched(index, version, value);
        self.mark_range_checked(index);
    }

    /// Notes that a range version validates what was read of the key at `index`.
    pub fn mark_range_checked(&mut self, index: usize) {
        self.entries[index].range_checked = true;
    }

    pub(super) fn forget_scans(&mut self) {
        self.scans.clear();
        self.found.clear();
        self.range_versions.clear();
    }
}

/// Takes what a scan finds.
#[derive(Debug)]
#[must_use = "say when the scan has found everything"]
pub struct Collector<'t> {
    txn: &'t mut Txn,
    scan: usize,
    /// Where its finds begin.
    start: u32,
    full: bool,
}

impl Collector<'_> {
    /// The scan has found everything. Returns false, and the transaction is of no more use, if that
    /// is more keys than a transaction may touch.
    pub fn end(self) -> bool {
        let count = self.txn.found.len() as u32 - self.start;
        self.txn.scans[self.scan].found = Some((self.start, count));
        !self.full
    }

    /// Adds the next record. Returns false if the transaction can take no more.
    ///
    /// A key that is in a set already keeps its place and its set, and takes this value unless it
    /// was read under a range version before.
    pub fn add(&mut self, key: Key, version: Version, value: &[u8]) -> bool {
        let txn = &mut *self.txn;
        if txn.entries.len() == KEYS_MAX && txn.find(key).is_none() {
            self.full = true;
            return false;
        }
        let index = txn.add(key, false);
        if !txn.entries[index].range_checked {
            txn.fetched_in_range(index, version, Some(value));
        }
        txn.found.push(index as u32);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::TableId;
    use crate::txn::ProcedureId;

    fn key(row: u64) -> Key {
        Key::partitioned(TableId::ORDERED, 3, row)
    }

    fn range(first: u64, last: u64) -> KeyRange {
        KeyRange { first: key(first), last: key(last), backward: false, limit: 9 }
    }

    #[test]
    fn a_scan_is_asked_for_once_and_its_finds_are_entries() {
        let mut txn = Txn::default();
        txn.reset(ProcedureId(1), &[]);
        let scan = txn.scan(range(1, 9));
        assert_eq!((txn.scan(range(1, 9)), txn.found(scan)), (scan, None));
        let known = txn.write(key(5));
        txn.note_range_version(RangeVersion { range: VersionRange::of(key(1)), writes: 7 });
        assert!(txn.scanned(scan, |found| {
            assert!(found.add(key(2), Version(4), b"two"));
            assert!(found.add(key(5), Version(6), b"five"));
        }));
        assert_eq!(txn.found(scan), Some(&[1, known as u32][..]));
        assert_eq!(txn.value(known), Some(&b"five"[..]));
        assert!(txn.entries()[known].write && txn.entries()[known].range_checked);
        let later = txn.scan(range(20, 30));
        txn.rewind(0);
        assert_eq!((later, txn.scans().len(), txn.range_versions().len()), (1, 0, 0));
    }

    #[test]
    fn a_range_checked_value_is_kept_and_another_is_replaced() {
        let mut txn = Txn::default();
        txn.reset(ProcedureId(1), &[]);
        let index = txn.read(key(1));
        txn.fetched(index, Version(1), Some(b"old"));
        for (limit, value) in [(1, b"new"), (2, b"too")] {
            let scan = txn.scan(KeyRange { limit, ..range(1, 9) });
            assert!(txn.scanned(scan, |found| assert!(found.add(key(1), Version(2), value))));
        }
        assert_eq!(txn.value(index), Some(&b"new"[..]));
        txn.write(key(1));
        assert!(!txn.entries()[index].range_checked, "it is read again");
    }

    #[test]
    fn a_scan_that_finds_too_much_says_so() {
        let mut txn = Txn::default();
        txn.reset(ProcedureId(1), &[]);
        let scan = txn.scan(range(0, u64::from(u16::MAX)));
        let fits = txn.scanned(scan, |found| {
            let all = (0..).take_while(|row| found.add(key(*row), Version(1), b"")).count();
            assert_eq!(all, KEYS_MAX);
        });
        assert!(!fits);
    }
}
