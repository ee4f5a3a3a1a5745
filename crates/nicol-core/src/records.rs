//! Records: where a system loads them from, and how they are read when everything is quiet.

use crate::ids::{Key, ShardId, TableId};
use crate::view::ShardMap;

/// The records that a system loads before it starts.
pub trait RecordSource: Send + Sync {
    /// Calls `each` with every initial record of `shard`, in a fixed order, without holding more
    /// than one in memory.
    fn load(&self, shards: &dyn ShardMap, shard: ShardId, each: &mut dyn FnMut(Key, &[u8]));

    /// How many records [`RecordSource::load`] yields for one shard, at most.
    fn records_per_shard(&self) -> u64;

    /// How many of these stand in ordered tables ([`Key::is_ordered`]), at least.
    fn ordered_per_shard(&self) -> u64 {
        0
    }

    /// How many records a table should have capacity for beyond the initial ones, per shard.
    fn growth_per_shard(&self) -> u64 {
        0
    }

    /// The hashed tables of a shard, the largest of them not empty. Every key that is loaded,
    /// written or looked up in a hashed table is of one of them. Together they have capacity for as
    /// many records as a shard: see above. Without any, one hash table takes all keys.
    fn hashed_tables(&self) -> Vec<TableSize> {
        Vec::new()
    }

    /// How large each table is beside the others, for feature vectors: disjoint features in these
    /// shares. That of table 0 is for every table that has none. Without any, all keys share all
    /// features. [AlNiCo22, requirements]
    fn feature_shares(&self) -> Vec<(TableId, u32)> {
        Vec::new()
    }

    /// A number of a key among those of its table, for feature vectors: keys with successive
    /// numbers have different features, as long as there are enough.
    fn feature_number(&self) -> fn(Key) -> u64 {
        Key::row
    }

    /// Of the values that a shard has capacity for, at most how many have which length: (bytes,
    /// records). A table that keeps long values apart sizes their memory by it. Short ones, that
    /// any table slot holds, may be left out.
    fn value_lengths(&self) -> Vec<(u32, u64)> {
        Vec::new()
    }
}

/// A hashed table of a shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableSize {
    /// Which one.
    pub table: TableId,
    /// Initial records, at most.
    pub records: u64,
    /// Records that may come in addition.
    pub growth: u64,
    /// Bytes of its longest value, of those that a slot ought to hold.
    pub value_bytes: usize,
    /// Of values that are longer, at most how many have which length: (bytes, records).
    pub longer: Vec<(u32, u64)>,
}

impl TableSize {
    /// A table with so many records, none of them longer than `value_bytes`, to which none comes.
    pub const fn fixed(table: TableId, records: u64, value_bytes: usize) -> Self {
        Self { table, records, growth: 0, value_bytes, longer: Vec::new() }
    }
}

/// No records: a store that starts empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Empty {
    /// Records that each shard has capacity for.
    pub capacity_per_shard: u64,
}

impl RecordSource for Empty {
    fn load(&self, _: &dyn ShardMap, _: ShardId, _: &mut dyn FnMut(Key, &[u8])) {}

    fn records_per_shard(&self) -> u64 {
        0
    }

    fn growth_per_shard(&self) -> u64 {
        self.capacity_per_shard
    }
}

/// The records of a cluster that is quiet.
pub trait Records {
    /// The value of `key`, if there is such a record.
    fn read(&mut self, key: Key) -> Option<Vec<u8>>;

    /// Calls `each` with every record, in the order in which they come cheapest: a fraction of the
    /// cost of reading each.
    fn for_each(&mut self, each: &mut dyn FnMut(Key, &[u8]));

    /// True if it can be told whether there is a record of `key`, and which. Not where a crash has
    /// taken the primary of its shard, or has left a transaction undecided that writes it.
    fn is_known(&self, key: Key) -> bool {
        let _everything_is_known = key;
        true
    }
}
