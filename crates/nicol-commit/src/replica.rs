//! The records that a node holds of a shard, as primary or as backup.

use nicol_core::ids::{Key, Version};
use nicol_core::memory::Copies;
use nicol_store::ordered::OrderedTable;

use crate::tables::ByTable;

/// A hash table of a shard: what differs between systems.
pub trait ShardTable: Sized {
    /// Deep copies of a shard's tables, in their order. Requires exclusive access to them.
    fn copies<'a>(tables: impl Iterator<Item = &'a Self> + Clone, pages: Copies) -> Vec<Self>
    where
        Self: 'a;

    /// Prefetches where a key is at home.
    fn touch(&self, key: Key);

    /// Loads an initial record.
    fn load(&self, key: Key, value: &[u8]);

    /// Applies a write if it is newer than the record; `None` deletes.
    fn apply(&self, key: Key, version: Version, value: Option<&[u8]>);

    /// An ordered table's record of `key` was deleted at `version`. For tables whose versions of
    /// absent keys cover ordered tables as well.
    fn deleted_elsewhere(&self, _key: Key, _version: Version) {}

    /// Forgets the deletions that were old the last time.
    fn forget_old_deletions(&self);

    /// Calls `each` with every record.
    fn for_each(&self, each: &mut dyn FnMut(Key, Version, &[u8]));

    /// Records.
    fn len(&self) -> u64;

    /// A digest of all records that does not depend on their order.
    fn digest(&self) -> u64;

    /// Checks every structural invariant; one line for each breach.
    fn check(&self) -> Vec<String>;
}

/// A hash table as a [`ShardTable`], by its own methods of the same names; in braces, those that
/// differ.
macro_rules! shard_table {
    ($table:ty { $($own:item)* }) => {
        impl ShardTable for $table {
            fn touch(&self, key: Key) {
                Self::touch(self, key);
            }

            fn load(&self, key: Key, value: &[u8]) {
                Self::load(self, key, value);
            }

            fn apply(&self, key: Key, version: Version, value: Option<&[u8]>) {
                Self::apply(self, key, version, value);
            }

            fn forget_old_deletions(&self) {
                Self::forget_old_deletions(self);
            }

            fn for_each(&self, each: &mut dyn FnMut(Key, Version, &[u8])) {
                Self::for_each(self, each);
            }

            fn len(&self) -> u64 {
                Self::len(self)
            }

            fn digest(&self) -> u64 {
                Self::digest(self)
            }

            $($own)*
        }
    };
}
pub(super) use shard_table;

/// A shard's records at one node: most in hash tables, one for each table of the workload, those of
/// ordered tables in a B+ tree. [Xenic21 4.1, 5.2]
#[derive(Debug)]
pub struct Replica<T> {
    pub(super) tables: ByTable<T>,
    pub(super) ordered: OrderedTable,
}

impl<T: ShardTable> Replica<T> {
    /// An empty one, with these tables.
    pub(super) fn new(tables: ByTable<T>) -> Self {
        Self { tables, ordered: OrderedTable::default() }
    }

    /// Deep copy. Requires exclusive access to the replica.
    pub(super) fn copy_in(&self, pages: Copies) -> Self {
        let tables = self.tables.with(T::copies(self.tables.iter(), pages));
        Self { tables, ordered: self.ordered.copy() }
    }

    /// Prefetches where a key is at home, if that is in a hash table.
    pub(super) fn touch(&self, key: Key) {
        if !key.is_ordered() {
            self.tables.of(key).touch(key);
        }
    }

    /// Loads an initial record.
    pub(super) fn load(&self, key: Key, value: &[u8]) {
        if key.is_ordered() {
            self.ordered.load(key, value);
        } else {
            self.tables.of(key).load(key, value);
        }
    }

    /// Applies a logged write. AMB-37: a write that is not newer than the record changes nothing,
    /// since logs have no common order and may repeat a record.
    pub(super) fn apply(&self, key: Key, version: Version, value: Option<&[u8]>) {
        if !key.is_ordered() {
            return self.tables.of(key).apply(key, version, value);
        }
        self.ordered.apply(key, version, value);
        if value.is_none() {
            self.tables.of(key).deleted_elsewhere(key, version);
        }
    }

    /// Forgets the deletions that were old the last time.
    pub(super) fn forget_old_deletions(&self) {
        self.tables.iter().for_each(T::forget_old_deletions);
        self.ordered.tree().forget_old_deletions();
    }

    /// Calls `each` with every record.
    pub(super) fn for_each(&self, each: &mut dyn FnMut(Key, &[u8])) {
        self.for_each_version(&mut |key, _, value| each(key, value));
    }

    /// Calls `each` with every record and its version.
    pub(super) fn for_each_version(&self, each: &mut dyn FnMut(Key, Version, &[u8])) {
        self.tables.iter().for_each(|table| table.for_each(each));
        self.ordered.tree().for_each(each);
    }

    /// Records.
    pub(super) fn len(&self) -> u64 {
        let hashed: u64 = self.tables.iter().map(T::len).sum();
        hashed + self.ordered.tree().len()
    }

    /// A digest of all records, wherever they stand.
    pub(super) fn digest(&self) -> u64 {
        let ordered = self.ordered.tree().digest();
        self.tables.iter().fold(ordered, |all, table| all.wrapping_add(table.digest()))
    }

    /// Checks every structural invariant; one line for each breach.
    pub(super) fn check(&self) -> Vec<String> {
        let mut lines: Vec<_> = self.tables.iter().flat_map(T::check).collect();
        lines.extend(self.ordered.tree().check());
        lines
    }
}
