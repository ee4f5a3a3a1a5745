//! A shard's records at one node: most in the host table that NICs read by DMA, those of ordered
//! tables in a B+ tree. [Xenic21 4.1, 5.2]

use nicol_core::ids::{Key, Version};
use nicol_store::host_table::{Advance, Geometry, Growth, HostTable, LocatedRecord, Lookup};
use nicol_store::ordered::OrderedTable;

/// See the module.
#[derive(Debug)]
pub struct Replica {
    pub(super) table: HostTable,
    pub(super) ordered: OrderedTable,
}

impl Replica {
    /// An empty one, whose host table is made for `records` records.
    pub(super) fn new(geometry: Geometry, records: u64, growth: Growth) -> Self {
        Self { table: HostTable::new(geometry, records, growth), ordered: OrderedTable::default() }
    }

    /// One of its own with the same records. Of a replica that nobody else uses.
    pub(super) fn copy(&self) -> Self {
        Self { table: self.table.copy(), ordered: self.ordered.copy() }
    }

    /// Loads an initial record.
    pub(super) fn load(&self, key: Key, value: &[u8]) {
        if key.is_ordered() {
            self.ordered.load(key, value);
        } else {
            self.table.load(key, value);
        }
    }

    /// Looks `key` up in local memory; a value found is appended to `into`.
    pub(super) fn get(&self, key: Key, into: &mut Vec<u8>) -> Lookup {
        if !key.is_ordered() {
            return self.table.get(key, into);
        }
        let mut found = self.ordered.get(key, into);
        // What was never there was not deleted either.
        if !found.present && found.version > Version(0) {
            found.version = found.version.max(self.table.floor(key));
        }
        found
    }

    /// Applies a logged write. AMB-37: idempotent by version, since per-core logs have no
    /// common order.
    pub(super) fn apply(&self, key: Key, version: Version, value: Option<&[u8]>) {
        if key.is_ordered() {
            self.ordered.apply(key, version, value);
            if value.is_none() {
                // The NIC's index has one floor for all keys of an entry, wherever they stand.
                self.table.deleted_elsewhere(key, version);
            }
        } else {
            self.table.apply(key, version, value);
        }
    }

    /// Calls `each` with every record and how far it stands from its home.
    pub(super) fn for_each_located(&self, each: &mut dyn FnMut(LocatedRecord<'_>)) {
        self.table.for_each_located(each);
        // Trees have no homes.
        let displacement = 0;
        self.ordered.tree().for_each(&mut |key, version, value| {
            each(LocatedRecord { key, version, value, displacement });
        });
    }

    /// Calls `each` with every record.
    pub(super) fn for_each(&self, each: &mut dyn FnMut(Key, &[u8])) {
        self.table.for_each(&mut |key, _, value| each(key, value));
        self.ordered.tree().for_each(&mut |key, _, value| each(key, value));
    }

    /// Begins to load where keys are at home: see [`HostTable::touch`].
    pub(super) fn touch(&self, keys: impl Iterator<Item = Key>) {
        self.table.touch(keys.filter(|key| !key.is_ordered()));
    }

    /// Records.
    pub(super) fn len(&self) -> u64 {
        self.table.len() + self.ordered.tree().len()
    }

    /// A digest of all records, wherever they stand.
    pub(super) fn digest(&self) -> u64 {
        self.table.digest().wrapping_add(self.ordered.tree().digest())
    }

    pub(super) fn advance(&self, segments: u64) -> Advance {
        self.table.advance(segments)
    }

    pub(super) fn forget_old_deletions(&self) {
        self.table.forget_old_deletions();
        self.ordered.tree().forget_old_deletions();
    }

    /// Checks every structural invariant.
    ///
    /// # Panics
    /// If one does not hold.
    pub(super) fn check(&self) {
        self.table.check();
        let breaches = self.ordered.tree().check();
        assert!(breaches.is_empty(), "an ordered table is broken: {breaches:?}");
    }
}
