//! The shapes of a shard's hash tables: coordinators reckon with them where a record stands.

use nicol_core::records::RecordSource;
use nicol_core::units::Bytes;
use nicol_store::remote_table::{Geometry, TableConfig};

use super::config::RdmaOccConfig;
use crate::tables::{ByTable, Rows, tables_of};

/// Bytes of value in the smallest slot.
const INLINE_MIN: usize = 8;

/// A table's shape, and the records that it has space for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) geometry: Geometry,
    pub(super) records: u64,
}

impl Shape {
    /// The shapes of the tables of a shard of `source`, which stand in one region.
    pub(super) fn all(config: &RdmaOccConfig, source: &dyn RecordSource) -> ByTable<Self> {
        let tables = tables_of(source);
        if let Some(rows) = tables.only().filter(|rows| rows.value_bytes.is_none()) {
            return ByTable::alone(Self::of_all(config, rows));
        }
        let mut end = Bytes(0);
        tables.map(|rows| {
            let shape = Self::of_one(config, rows);
            let geometry = shape.geometry.behind(end);
            end = geometry.end();
            Self { geometry, ..shape }
        })
    }

    /// That of the one table that has all rows.
    fn of_all(config: &RdmaOccConfig, rows: &Rows) -> Self {
        let mut table = config.table;
        table.size_heap_for(&rows.longer);
        // Sources name the lengths that no slot might hold. Where slots hold less than they might,
        // the other values need memory, too.
        table.size_heap_for(&[(config.short_value as u32, config.records)]);
        Self { geometry: Geometry::new(table), records: config.records }
    }

    /// That of one of several: as many slots per row as the configuration has in all, each as wide
    /// as the table's own rows. (decision 0112)
    fn of_one(config: &RdmaOccConfig, rows: &Rows) -> Self {
        let records = rows.capacity.max(RECORDS_MIN);
        let share = |slots: u64| {
            let all = u128::from(config.records.max(1));
            (u128::from(slots) * u128::from(records)).div_ceil(all) as u64
        };
        let value = rows.value_bytes.unwrap_or(config.short_value);
        let limit = config.table.inline;
        let mut table = TableConfig {
            slots: share(config.table.slots),
            overflow_slots: share(config.table.overflow_slots) + OVERFLOW_MIN,
            // Where no row would fit, a slot has space for the reference to one.
            inline: if value > limit { INLINE_MIN } else { value.max(INLINE_MIN) },
            ..config.table
        };
        table.size_heap_for(&rows.longer);
        table.size_heap_for(&[(value as u32, records)]);
        // Where none comes, keys that are not there are locked and released all the same, as of
        // items that do not exist.
        let records = if rows.grow { records } else { table.slots + table.overflow_slots };
        Self { geometry: Geometry::new(table), records }
    }
}

/// Records that the smallest table has space for, and its slots in chains.
const RECORDS_MIN: u64 = 64;
const OVERFLOW_MIN: u64 = 256;

#[cfg(test)]
mod tests {
    use nicol_core::ids::{Key, ShardId, TableId, TxnId};
    use nicol_core::records::TableSize;
    use nicol_core::view::ShardMap;

    use super::*;
    use crate::rdma_occ::replica::Replica;

    const NARROW: TableId = TableId(1);
    const WIDE: TableId = TableId(2);
    const LONG: TableId = TableId(3);

    struct Three;

    impl RecordSource for Three {
        fn load(&self, _: &dyn ShardMap, _: ShardId, _: &mut dyn FnMut(Key, &[u8])) {}

        fn records_per_shard(&self) -> u64 {
            1_200
        }

        fn hashed_tables(&self) -> Vec<TableSize> {
            let sizes = [(NARROW, 1_000, 18), (WIDE, 100, 95), (LONG, 100, 655)];
            sizes.map(|(table, records, bytes)| TableSize::fixed(table, records, bytes)).to_vec()
        }
    }

    #[test]
    fn a_read_of_a_bucket_moves_rows_of_its_own_table_only() {
        let config = RdmaOccConfig::drtm_h_nc(1_200, 96);
        let shapes = Shape::all(&config, &Three);
        let home = |table| {
            let key = Key::new(table, 7);
            shapes.of(key).geometry.home(key).len
        };
        // Three words, and eight slots of five words and the value. (decision 0112)
        assert_eq!([NARROW, WIDE, LONG].map(home), [24 + 8 * 64, 24 + 8 * 136, 24 + 8 * 48]);
        let ends: Vec<_> = shapes.iter().map(|shape| shape.geometry.end()).collect();
        assert!(ends.is_sorted(), "one stands behind the other: {ends:?}");
        let replica = Replica::empty(&shapes);
        (0..1_000).for_each(|row| replica.load(Key::new(NARROW, row), &[1; 18]));
        let (table, absent) = (replica.tables.of(Key::new(NARROW, 0)), Key::new(NARROW, 1_000));
        assert_eq!(table.lock(absent, TxnId(1)).map(|granted| granted.present), Ok(false));
        assert!(table.has_capacity() && table.unlock(absent, TxnId(1)), "its rows are all there");
        for (before, shape) in ends.iter().zip(shapes.iter().skip(1)) {
            let first = (0..10_000).map(|row| shape.geometry.home(Key::new(WIDE, row)).offset);
            assert!(first.min() >= Some(before.0), "no table begins within another");
        }
    }
}
