//! How large the tables and indices of a node are.

use nicol_store::host_table::{Geometry, Growth, HostTable, LOAD_MAX_PERCENT};
use nicol_store::nic_index::IndexConfig;

use crate::log::LogMemory;
use crate::tables::{ByTable, Rows};
use crate::xenic::config::XenicConfig;
use crate::xenic::replica::Replica;

/// Objects of a table's NIC index that may be locked or pinned beyond those that it may cache.
/// Beyond, transactions abort for want of resources; with one object per key in flight that is far
/// off.
const BUSY_OBJECTS_MAX: usize = 1 << 18;
/// Slots of the smallest table.
const SLOTS_MIN: u64 = 1_024;
/// Bytes of value in the smallest slot that has a value at all.
const INLINE_MIN: usize = 8;

/// The forms of the NIC's indices of a shard with these records, one for each table.
pub(super) fn indices_of(replica: &Replica, config: &XenicConfig) -> ByTable<IndexConfig> {
    let geometries: Vec<Geometry> = replica.tables.iter().map(HostTable::geometry).collect();
    let slots: Vec<usize> = geometries.iter().map(|geometry| geometry.slots() as usize).collect();
    let objects = divided(config.index_objects, &slots);
    let taken = |(objects, geometry): (&usize, &Geometry)| {
        *objects as u128 * u128::from(geometry.slot_bytes())
    };
    let all: u128 = objects.iter().zip(&geometries).map(taken).sum();
    let indices = objects.iter().zip(&geometries).map(|(objects, geometry)| IndexConfig {
        segments: geometry.segments(),
        cached_objects_max: *objects,
        busy_objects_max: BUSY_OBJECTS_MAX,
        homes_per_hint: config.homes_per_hint,
        value_bytes_max: match geometries.len() {
            1 => config.index_value_bytes,
            _ => {
                let share = config.index_value_bytes as u128 * taken((objects, geometry));
                (share / all.max(1)) as usize
            }
        },
    });
    replica.tables.with(indices.collect())
}

/// How many of `all` objects the index of each table may cache, whose slots these are. Small tables
/// get a place for each slot, up to an equal share, and the largest what is left. (decision 0112)
fn divided(all: usize, slots: &[usize]) -> Vec<usize> {
    let mut shares = vec![0; slots.len()];
    let mut smallest_first: Vec<usize> = (0..slots.len()).collect();
    smallest_first.sort_by_key(|&table| slots[table]);
    let mut left = all;
    for (done, &table) in smallest_first.iter().enumerate() {
        let equal = left / (slots.len() - done);
        let is_largest = done + 1 == slots.len();
        shares[table] = if is_largest { left } else { equal.min(slots[table]) };
        left -= shares[table];
    }
    shares
}

/// An empty replica with space for so many records, or for as many as its first slots hold if it
/// may grow.
pub(super) fn empty(tables: &ByTable<Rows>, config: &XenicConfig) -> Replica {
    Replica::new(tables.map(|rows| table_for(rows, config)))
}

/// The empty log of a NIC core.
pub(super) fn empty_log(config: &XenicConfig) -> LogMemory {
    LogMemory::with_laps(config.log, config.log_lap.unwrap_or(config.log))
}

/// The same tables without space for any row.
pub(super) fn without_rows(tables: &ByTable<Rows>) -> ByTable<Rows> {
    tables.map(|rows| Rows { capacity: 0, ..rows.clone() })
}

fn table_for(rows: &Rows, config: &XenicConfig) -> HostTable {
    let geometry = Geometry::new(
        (rows.capacity * config.slots_percent / 100).max(SLOTS_MIN),
        config.displacement_max,
        inline(rows, config.inline_value),
    );
    let admitted = match config.growth {
        Growth::Off if rows.grow => rows.capacity,
        // Nobody inserts, but that a record which was deleted may come again.
        Growth::Off => geometry.slots(),
        Growth::Doubling { .. } => rows.capacity.min(geometry.slots() * LOAD_MAX_PERCENT / 100),
    };
    HostTable::new(geometry, admitted, config.growth)
}

/// Bytes of value that a slot holds, of the `limit` that it may. Where no row would fit, slots are
/// pointers. [Xenic21 4.1.2]
fn inline(rows: &Rows, limit: usize) -> usize {
    match rows.value_bytes {
        None => limit,
        Some(value) if value > limit => 0,
        Some(value) => value.max(INLINE_MIN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_tables_are_cached_whole_and_the_largest_gets_the_rest() {
        assert_eq!(divided(100, &[1_000]), [100]);
        assert_eq!(divided(1_000, &[50, 5_000, 20]), [50, 930, 20]);
        assert_eq!(divided(90, &[50, 5_000, 20]), [35, 35, 20]);
        assert_eq!(divided(1, &[7, 7]).iter().sum::<usize>(), 1);
    }

    #[test]
    fn a_slot_holds_the_rows_of_its_own_table() {
        let config = XenicConfig::paper(1_000, 96);
        let rows = |value_bytes| Rows { capacity: 9, grow: false, value_bytes, longer: Vec::new() };
        let slot = |rows: Rows| table_for(&rows, &config).geometry().slot_bytes();
        assert_eq!(
            [Some(18), Some(95), Some(4), None].map(|of| slot(rows(of))),
            [64, 136, 48, 136]
        );
        assert_eq!(slot(rows(Some(655))), 32, "a pointer");
        let off = XenicConfig { growth: Growth::Off, ..config.clone() };
        let full = table_for(&Rows { capacity: 0, ..rows(Some(8)) }, &off);
        assert!(full.has_capacity(), "a table that does not grow refuses nothing of others");
        assert!(!table_for(&Rows { capacity: 0, grow: true, ..rows(None) }, &off).has_capacity());
    }
}
