//! Host workers: they apply what the NIC has logged. [Xenic21 4.2 (7)]

use std::sync::Arc;

use nicol_core::fabric::{Bell, Fabric, Work};
use nicol_core::ids::EngineId;

use super::messages::LogAck;
use super::node::Node;
use crate::commit::log::{LogReader, RecordKind};
use crate::commit::messages::{Change, Writes};

/// Records applied before the worker acknowledges and lets others run.
const BATCH: usize = 64;

/// Polls the log of NIC core `core` for ever and applies its records to the host tables.
pub(super) async fn apply_log<F: Fabric>(fabric: F, node: Arc<Node>, core: u8) {
    let memory = node.log(core).clone();
    let bell: Arc<dyn Bell> = memory.region().clone();
    let nic = EngineId::nic(fabric.here().node, core);
    let mut reader = LogReader::new(memory);
    loop {
        let seen = bell.bell().rings();
        let mut applied = 0;
        while applied < BATCH {
            let Some((kind, body)) = reader.next() else { break };
            apply(&fabric, &node, kind, body);
            applied += 1;
        }
        if applied > 0 {
            // [Xenic21 4.2 (7)] The ack joins whatever else goes to the NIC in this round.
            fabric.send(nic, &LogAck { applied: reader.applied() });
            node.forget_deletions();
            fabric.yield_now().await;
        } else {
            fabric.rung(&bell, seen).await;
        }
    }
}

fn apply<F: Fabric>(fabric: &F, node: &Node, kind: RecordKind, body: &[u8]) {
    let Ok(writes) = Writes::parse(body) else {
        // The NIC parsed it before it was logged: memory was corrupted, and the node must stop.
        panic!("a log record that was valid when written cannot be parsed any more");
    };
    let table = node.table(writes.shard, kind);
    for (key, version, change) in writes.iter() {
        let value = match change {
            Change::Put(value) => Some(value),
            Change::Delete => None,
            Change::UnlockOnly => continue,
        };
        fabric.work(Work::TableApply);
        // AMB-37: version-guarded and idempotent, since per-core logs have no common order.
        table.apply(key, version, value);
    }
}
