//! How large the tables and indices of a node are.

use nicol_store::host_table::{Geometry, Growth, HostTable, LOAD_MAX_PERCENT};
use nicol_store::nic_index::IndexConfig;

use crate::xenic::config::XenicConfig;
use crate::xenic::replica::Replica;

/// Objects of the NIC index that may be locked or pinned beyond those that it may cache. Beyond,
/// transactions abort for want of resources; with one object per key in flight that is far off.
const BUSY_OBJECTS_MAX: usize = 1 << 18;
/// Slots of the smallest table.
const SLOTS_MIN: u64 = 1_024;

/// The form of the NIC's index of a shard with these records.
pub(super) fn index_of(replica: &Replica, config: &XenicConfig) -> IndexConfig {
    IndexConfig {
        segments: replica.table.geometry().segments(),
        cached_objects_max: config.index_objects,
        busy_objects_max: BUSY_OBJECTS_MAX,
        homes_per_hint: config.homes_per_hint,
        value_bytes_max: config.index_value_bytes,
    }
}

/// An empty replica with space for so many records, or for as many as its first slots hold if it
/// may grow.
pub(super) fn table_for(records: u64, config: &XenicConfig) -> Replica {
    let geometry = Geometry::new(
        (records * config.slots_percent / 100).max(SLOTS_MIN),
        config.displacement_max,
        config.inline_value,
    );
    let admitted = match config.growth {
        Growth::Off => records,
        Growth::Doubling { .. } => records.min(geometry.slots() * LOAD_MAX_PERCENT / 100),
    };
    Replica::new(HostTable::new(geometry, admitted, config.growth))
}
