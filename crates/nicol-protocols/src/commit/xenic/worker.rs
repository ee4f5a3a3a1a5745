//! Host workers: they apply what the NIC has logged. [Xenic21 4.2 (7)]

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, HasDoorbell, Work};

use super::log_acks::LogAcks;
use super::node::Node;
use crate::commit::log::{LogReader, RecordKind, logged};
use crate::commit::messages::Writes;

/// Records read, touched and applied at a time.
const BATCH: usize = 32;
/// Batches applied before the worker acknowledges and lets others run. A core that also serves
/// clients or a NIC has few turns to give, and a worker that falls behind lets every local
/// transaction find the table out of date.
const BATCHES: usize = 16;
/// Segments of a growing table that an idle worker splits before it looks at the log again.
const IDLE_SPLITS: u64 = 4;

/// Polls the log of NIC core `core` for ever and applies its records to the host tables.
pub(super) async fn apply_log<F: Fabric>(
    fabric: F,
    node: Arc<Node>,
    core: u8,
    acks: Rc<LogAcks<F>>,
) {
    let memory = node.log(core).clone();
    let doorbell: Arc<dyn HasDoorbell> = memory.region().clone();
    let size = memory.size();
    let mut reader = LogReader::new(memory);
    loop {
        let seen = doorbell.doorbell().rings();
        let mut applied = 0;
        for _ in 0..BATCHES {
            let read = reader.read(BATCH);
            apply_batch(&fabric, &node, &reader);
            applied += read;
            if read < BATCH {
                break;
            }
        }
        if applied > 0 {
            acks.applied(core, reader.applied(), size);
            node.forget_deletions();
            fabric.yield_now().await;
        } else if grow(&fabric, &node, IDLE_SPLITS) > 0 {
            fabric.yield_now().await;
        } else {
            fabric.wait_for_doorbell(&doorbell, seen).await;
        }
    }
}

/// Applies the records read last.
fn apply_batch<F: Fabric>(fabric: &F, node: &Node, reader: &LogReader) {
    for (kind, body) in reader.records() {
        let writes = logged(body);
        node.replica(writes.shard, kind).touch(writes.iter().map(|(key, ..)| key));
    }
    for (kind, body) in reader.records() {
        let written = apply(fabric, node, kind, &logged(body));
        // A segment per insert keeps a doubling ahead of the inserts.
        grow(fabric, node, written);
    }
}

/// Splits segments of the tables that are doubling; returns how many.
fn grow<F: Fabric>(fabric: &F, node: &Node, segments: u64) -> u64 {
    let done = node.grow(segments);
    for _ in 0..done.records {
        fabric.work(Work::TableApply);
    }
    done.segments
}

/// Applies one record; returns how many writes it had.
fn apply<F: Fabric>(fabric: &F, node: &Node, kind: RecordKind, writes: &Writes<'_>) -> u64 {
    let replica = node.replica(writes.shard, kind);
    let mut written = 0;
    for (key, version, value) in writes.installs() {
        fabric.work(Work::TableApply);
        replica.apply(key, version, value);
        written += 1;
    }
    written
}
