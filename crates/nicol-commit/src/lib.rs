//! The `commit` family: distributed, replicated, serializable transactions.
//!
//! `AMB-nn` is an entry of `docs/research/ambiguities.md`: a case that a paper leaves open, and its
//! reading.
#![forbid(unsafe_code)]

mod backups;
mod broken;
mod decided;
mod log;
mod log_worker;
mod messages;
mod part;
pub mod rdma_occ;
pub mod recovery;
mod replica;
mod survivor;
mod tables;
mod writes;
pub mod xenic;

use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::{Key, ShardId};
use nicol_core::records::RecordSource;
use nicol_core::txn::Txn;
use nicol_core::view::ShardMap;
use nicol_store::ordered::OrderedTable;

#[doc(hidden)]
pub use broken::Sabotage;

/// Records that are loaded at a time.
const LOAD_BATCH: usize = 64;

/// Loads the records of `shard` a batch at a time: where each key of a batch is at home is touched
/// first, so that their cache misses overlap.
fn load_shard(
    source: &dyn RecordSource,
    shards: &dyn ShardMap,
    shard: ShardId,
    touch: impl Fn(Key),
    load: impl Fn(Key, &[u8]),
) {
    let mut keys = Vec::with_capacity(LOAD_BATCH);
    let (mut values, mut ends) = (Vec::new(), Vec::with_capacity(LOAD_BATCH));
    let insert = |keys: &mut Vec<Key>, values: &mut Vec<u8>, ends: &mut Vec<usize>| {
        let mut start = 0;
        for (&key, &end) in keys.iter().zip(&*ends) {
            load(key, &values[start..end]);
            start = end;
        }
        keys.clear();
        values.clear();
        ends.clear();
    };
    source.load(shards, shard, &mut |key, value| {
        touch(key);
        keys.push(key);
        values.extend_from_slice(value);
        ends.push(values.len());
        if keys.len() == LOAD_BATCH {
            insert(&mut keys, &mut values, &mut ends);
        }
    });
    insert(&mut keys, &mut values, &mut ends);
}

/// Makes the scans of `txn` that wait for it, in its own node's trees; false if they find more than
/// a transaction may touch.
fn make_scans<F: Fabric>(fabric: &F, ordered: &OrderedTable, txn: &mut Txn) -> bool {
    for scan in 0..txn.scans().len() {
        if txn.scans()[scan].is_done() {
            continue;
        }
        fabric.work(Work::TableLookup);
        let (fits, found) = ordered.scan_for(txn, scan);
        for _ in 0..found {
            fabric.work(Work::TableLookup);
        }
        if !fits {
            return false;
        }
    }
    true
}
