//! A B+ tree for ordered tables: a node's own, in host memory, never read remotely.
//! [Xenic21 5.2, 5.6: TPC-C]
//!
//! Many readers or one writer at a time. Versions and deletions follow the host table's contract
//! (decision 0003, AMB-37), so that a tree is replicated by the same log.

mod node;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use nicol_core::ids::{IdMap, Key, Version};

use crate::digest;
use crate::high_water::{HighWater, prefix_group};
use crate::host_table::{Applied, Lookup};
use crate::tombstones::Tombstones;
use node::Nodes;

/// Records that a tree may hold: they are numbered with 32 bits.
pub const RECORDS_MAX: u64 = u32::MAX as u64 - 1;

/// A record's version and value.
#[derive(Clone, Debug, Default)]
struct Record {
    version: Version,
    value: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Tree {
    nodes: Nodes,
    records: Vec<Record>,
    /// Numbers of records that were deleted; their memory serves the next insertions.
    vacant: Vec<u32>,
    tombstones: Tombstones,
    /// The highest version at which a key was deleted.
    floor: Version,
    /// The greatest deleted key of each key-prefix group.
    deleted: IdMap<u64, HighWater>,
}

/// See the module documentation.
pub struct BTree(RwLock<Tree>);

impl Default for BTree {
    fn default() -> Self {
        Self::new()
    }
}

impl BTree {
    /// An empty tree.
    pub fn new() -> Self {
        Self(RwLock::new(Tree {
            nodes: Nodes::new(),
            records: Vec::new(),
            vacant: Vec::new(),
            tombstones: Tombstones::default(),
            floor: Version(0),
            deleted: IdMap::default(),
        }))
    }

    /// A deep copy. Requires exclusive access.
    pub fn copy(&self) -> Self {
        Self(RwLock::new(self.read().clone()))
    }

    /// Records in it.
    pub fn len(&self) -> u64 {
        self.read().len()
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Looks `key` up; a value found is appended to `into`. The version of an absent key is 0 if
    /// the key is above its group's high-water mark, else the highest version at which any key was
    /// deleted, and at least 1.
    pub fn get(&self, key: Key, into: &mut Vec<u8>) -> Lookup {
        let tree = self.read();
        let next = tree.nodes.forward(tree.nodes.first_from(key));
        let version = match next {
            Some((found, record, _)) if found == key => {
                let record = &tree.records[record as usize];
                into.extend_from_slice(&record.value);
                return Lookup { version: record.version, present: true };
            }
            Some((next, ..)) if prefix_group(next) == prefix_group(key) => {
                tree.floor.max(Version(1))
            }
            _ if tree.deleted_up_to(key).covers(key) => tree.floor.max(Version(1)),
            _ => Version(0),
        };
        Lookup { version, present: false }
    }

    /// The high-water mark of `key`'s group.
    pub fn high_water(&self, key: Key) -> HighWater {
        let tree = self.read();
        let last = tree.nodes.backward(tree.behind(HighWater::last_key(key)));
        let last = last.filter(|(last, ..)| prefix_group(*last) == prefix_group(key));
        let found = last.map(|(last, ..)| HighWater::through(last)).unwrap_or_default();
        found.max(tree.deleted_up_to(key))
    }

    /// Like [`BTree::get`], but the version of an absent key belongs to the key: it advances only
    /// when the key is inserted and deleted, and when [`BTree::forget_old_deletions`] drops
    /// deletions. A transaction that inserts the key at the next version while this one is current
    /// is therefore ordered after every transaction that found the key absent.
    pub fn get_exact(&self, key: Key, into: &mut Vec<u8>) -> Lookup {
        let tree = self.read();
        match tree.value(key, into) {
            Some(version) => Lookup { version, present: true },
            None => Lookup { version: tree.tombstones.deleted_up_to(key), present: false },
        }
    }

    /// Like [`BTree::get_exact`], without the value.
    pub fn state_of(&self, key: Key) -> Lookup {
        let tree = self.read();
        match tree.nodes.find(key) {
            Some(record) => {
                Lookup { version: tree.records[record as usize].version, present: true }
            }
            None => Lookup { version: tree.tombstones.deleted_up_to(key), present: false },
        }
    }

    /// Loads a record before the run, at version 1.
    ///
    /// # Panics
    /// If the key exists already.
    pub fn load(&self, key: Key, value: &[u8]) {
        let applied = self.apply(key, Version(1), Some(value));
        assert!(applied == Applied::Changed, "an initial record is loaded once");
    }

    /// Inserts or replaces a record; `None` deletes it. Skips a version that is not newer than the
    /// tree's version, so the writes of a key may be repeated and arrive in any order (AMB-37).
    ///
    /// # Panics
    /// If the tree has [`RECORDS_MAX`] records.
    pub fn apply(&self, key: Key, version: Version, value: Option<&[u8]>) -> Applied {
        self.write().apply(key, version, value)
    }

    /// Drops the deletions that were recorded before the previous call. Between the two calls,
    /// every older write of those keys must have been applied.
    pub fn forget_old_deletions(&self) {
        self.write().tombstones.forget_old();
    }

    /// Calls `each` with the records of `keys` in ascending order until it returns false. The tree
    /// does not change meanwhile: `each` must not write to it.
    pub fn scan(
        &self,
        keys: RangeInclusive<Key>,
        each: &mut dyn FnMut(Key, Version, &[u8]) -> bool,
    ) {
        let tree = self.read();
        let mut at = tree.nodes.first_from(*keys.start());
        while let Some((key, record, behind)) = tree.nodes.forward(at) {
            let record = &tree.records[record as usize];
            if key > *keys.end() || !each(key, record.version, &record.value) {
                return;
            }
            at = behind;
        }
    }

    /// Calls `each` with the records of `keys` in descending order until it returns false. The tree
    /// does not change meanwhile: `each` must not write to it.
    pub fn scan_back(
        &self,
        keys: RangeInclusive<Key>,
        each: &mut dyn FnMut(Key, Version, &[u8]) -> bool,
    ) {
        let tree = self.read();
        let mut at = tree.behind(*keys.end());
        while let Some((key, record, before)) = tree.nodes.backward(at) {
            let record = &tree.records[record as usize];
            if key < *keys.start() || !each(key, record.version, &record.value) {
                return;
            }
            at = before;
        }
    }

    /// The record with the greatest key below `key`; its value is appended to `into`.
    pub fn last_below(&self, key: Key, into: &mut Vec<u8>) -> Option<(Key, Version)> {
        let tree = self.read();
        let (found, record, _) = tree.nodes.backward(tree.nodes.first_from(key))?;
        let record = &tree.records[record as usize];
        into.extend_from_slice(&record.value);
        Some((found, record.version))
    }

    /// Calls `each` with every record, in order.
    pub fn for_each(&self, each: &mut dyn FnMut(Key, Version, &[u8])) {
        self.scan(Key(0)..=Key(u64::MAX), &mut |key, version, value| {
            each(key, version, value);
            true
        });
    }

    /// A digest of all records: that of [`crate::host_table::HostTable::digest`].
    pub fn digest(&self) -> u64 {
        digest::of_records(|each| self.for_each(each))
    }

    /// Checks every structural invariant; one line for each violation.
    pub fn check(&self) -> Vec<String> {
        let tree = self.read();
        let mut lines = Vec::new();
        let (mut used, mut wrong) = (vec![false; tree.records.len()], Vec::new());
        tree.nodes.check(&mut lines, &mut |key, record| match used.get_mut(record as usize) {
            Some(used) if !*used => *used = true,
            _ => wrong.push(format!("{key:?} has record {record}, which is not its own")),
        });
        lines.append(&mut wrong);
        if tree.vacant.iter().any(|vacant| used[*vacant as usize]) {
            lines.push("a vacant record is used".to_owned());
        }
        let found = used.iter().filter(|used| **used).count() as u64;
        if found != tree.len() {
            lines.push(format!("found {found} records, counted {}", tree.len()));
        }
        lines
    }

    fn read(&self) -> RwLockReadGuard<'_, Tree> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Tree> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Tree {
    fn len(&self) -> u64 {
        (self.records.len() - self.vacant.len()) as u64
    }

    /// Appends the value of `key` to `into`; its version, if it is there.
    fn value(&self, key: Key, into: &mut Vec<u8>) -> Option<Version> {
        let record = &self.records[self.nodes.find(key)? as usize];
        into.extend_from_slice(&record.value);
        Some(record.version)
    }

    /// The cursor behind the last record whose key is `key` or less.
    fn behind(&self, key: Key) -> node::Cursor {
        let at = self.nodes.first_from(key);
        match self.nodes.forward(at) {
            Some((found, _, behind)) if found == key => behind,
            _ => at,
        }
    }

    fn deleted_up_to(&self, key: Key) -> HighWater {
        self.deleted.get(&prefix_group(key)).copied().unwrap_or_default()
    }

    fn apply(&mut self, key: Key, version: Version, value: Option<&[u8]>) -> Applied {
        let found = self.nodes.find(key);
        let current = match found {
            Some(record) => self.records[record as usize].version,
            None => self.tombstones.deleted_at(key),
        };
        if version <= current {
            return Applied::Skipped;
        }
        let Some(value) = value else {
            self.floor = self.floor.max(version);
            self.tombstones.insert(key, version);
            let deleted = self.deleted.entry(prefix_group(key)).or_default();
            *deleted = HighWater::through(key).max(*deleted);
            if let Some(record) = self.nodes.remove(key) {
                self.records[record as usize].value.clear();
                self.vacant.push(record);
            }
            return Applied::Changed;
        };
        let number = found.unwrap_or_else(|| {
            let number = self.vacant.pop().unwrap_or_else(|| self.add_record());
            self.nodes.insert(key, number);
            self.tombstones.remove(key);
            number
        });
        let record = &mut self.records[number as usize];
        record.version = version;
        record.value.clear();
        record.value.extend_from_slice(value);
        Applied::Changed
    }

    fn add_record(&mut self) -> u32 {
        assert!((self.records.len() as u64) < RECORDS_MAX, "a tree's records are numbered");
        self.records.push(Record::default());
        (self.records.len() - 1) as u32
    }
}

impl fmt::Debug for BTree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BTree({} records)", self.len())
    }
}

#[cfg(test)]
mod tests;
