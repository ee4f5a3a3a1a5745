//! A shard's records at one node: most in host tables that NICs read by DMA, those of ordered
//! tables in a B+ tree. [Xenic21 4.1, 5.2]

use nicol_core::ids::{Key, Version};
use nicol_core::memory::Copies;
use nicol_store::host_table::{Advance, HostTable, LocatedRecord, Lookup};

use crate::replica::{self, ShardTable, shard_table};

/// The records that a node holds of a shard.
pub type Replica = replica::Replica<HostTable>;

shard_table!(HostTable {
    fn copies<'a>(tables: impl Iterator<Item = &'a Self> + Clone, pages: Copies) -> Vec<Self> {
        tables.map(|table| table.copy_in(pages)).collect()
    }

    /// The NIC's index has one floor for all keys of an entry, those of ordered tables included.
    fn deleted_elsewhere(&self, key: Key, version: Version) {
        Self::deleted_elsewhere(self, key, version);
    }

    /// Panics at the first breach instead of returning it.
    fn check(&self) -> Vec<String> {
        Self::check(self);
        Vec::new()
    }
});

impl Replica {
    /// Looks `key` up in local memory; a value found is appended to `into`.
    pub(super) fn get(&self, key: Key, into: &mut Vec<u8>) -> Lookup {
        if !key.is_ordered() {
            return self.tables.of(key).get(key, into);
        }
        let mut found = self.ordered.get(key, into);
        // A key that was never there was not deleted either: its version stays 0.
        if !found.present && found.version > Version(0) {
            found.version = found.version.max(self.tables.of(key).floor(key));
        }
        found
    }

    /// Prefetches a value that stands apart from its slot, after [`Replica::touch`].
    pub(super) fn touch_value(&self, key: Key) {
        if !key.is_ordered() {
            self.tables.of(key).touch_value(key);
        }
    }

    /// Calls `each` with every record and how far it stands from its home.
    pub(super) fn for_each_located(&self, each: &mut dyn FnMut(LocatedRecord<'_>)) {
        self.tables.iter().for_each(|table| table.for_each_located(each));
        // Trees have no homes.
        let displacement = 0;
        self.ordered.tree().for_each(&mut |key, version, value| {
            each(LocatedRecord { key, version, value, displacement });
        });
    }

    /// Splits up to `segments` segments of each table that is doubling.
    pub(super) fn advance(&self, segments: u64) -> Advance {
        let tables = self.tables.iter().map(|table| table.advance(segments));
        tables.fold(Advance::default(), Advance::and)
    }
}
