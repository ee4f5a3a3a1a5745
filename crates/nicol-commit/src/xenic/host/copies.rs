//! The host's part of a copy: it reads ranges of a shard that its node leads, and applies those of
//! one for which its node catches up. (decision 0105)

use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::{Key, ShardId};
use nicol_store::host_table::WalkPosition;

use crate::xenic::messages::copy::{Copied, CopyRange, Place, RangeReply, Records};
use crate::xenic::node::Node;
use crate::xenic::replica::Replica;

/// A range ends behind so many bytes of records: two jumbo frames.
const RANGE_BYTES: usize = 16 << 10;

/// The range of a shard that begins at a place. Whatever is written meanwhile: a record that is
/// there from the first range to the last is in one of them.
pub(super) fn read_range<F: Fabric>(fabric: &F, replica: &Replica, asked: CopyRange) -> RangeReply {
    let (mut records, mut next) = (Records::default(), Some(asked.from));
    while let Some(place) = next
        && records.len() < RANGE_BYTES
    {
        next = match replica.tables.iter().nth(usize::from(place.table)) {
            Some(table) => {
                let mut keys = Vec::new();
                let behind =
                    WalkPosition::from_word(place.at).step(table, &mut |key| keys.push(key));
                keys.into_iter().for_each(|key| add(replica, key, &mut records));
                Some(match behind {
                    Some(behind) => Place { at: behind.word(), ..place },
                    None => Place { table: place.table + 1, at: 0 },
                })
            }
            None => read_ordered(replica, place, &mut records),
        };
    }
    (0..records.count()).for_each(|_| fabric.work(Work::TableLookup));
    RangeReply { next, records }
}

/// Adds the record of a key, if it is there still.
fn add(replica: &Replica, key: Key, records: &mut Records) {
    let mut value = Vec::new();
    let found = replica.get(key, &mut value);
    if found.present {
        records.add(key, found.version, &value);
    }
}

/// The same of ordered tables, whose ranges are those of their keys.
fn read_ordered(replica: &Replica, place: Place, records: &mut Records) -> Option<Place> {
    let mut next = None;
    replica.ordered.tree().scan(Key(place.at)..=Key(u64::MAX), &mut |key, version, value| {
        if records.len() >= RANGE_BYTES {
            next = Some(Place { at: key.0, ..place });
            return false;
        }
        records.add(key, version, value);
        true
    });
    next
}

/// Applies records of a shard for which the node catches up. What it has is newer, or was deleted
/// later, if its version is higher.
pub(super) fn apply_copy<F: Fabric>(
    fabric: &F,
    node: &Node,
    shard: ShardId,
    records: &[Copied<'_>],
) {
    let Some(replica) = node.held(shard) else { return };
    for &(key, version, value) in records {
        fabric.work(Work::TableApply);
        replica.apply(key, version, Some(value));
        node.grow(1);
    }
}
