//! Host workers: they apply what others have logged here.

use std::sync::Arc;

use nicol_core::fabric::{Bell, Fabric, Work};

use super::node::Node;
use crate::commit::log::{LogMemory, LogReader, logged};
use crate::commit::messages::Writes;

/// Records applied before the worker frees their space and lets others run.
const BATCH: usize = 64;

/// Polls a log for ever and applies its records to the backups.
pub(super) async fn apply_log<F: Fabric>(fabric: F, node: Arc<Node>, memory: Arc<LogMemory>) {
    let bell: Arc<dyn Bell> = memory.region().clone();
    let mut reader = LogReader::new(memory);
    loop {
        let seen = bell.bell().rings();
        let applied = reader.read(BATCH);
        for (_, body) in reader.records() {
            apply(&fabric, &node, &logged(body));
        }
        // The log's writer reads this word when it runs short of space.
        reader.applied();
        if applied > 0 {
            node.applied(applied as u64);
            fabric.yield_now().await;
        } else {
            fabric.rung(&bell, seen).await;
        }
    }
}

fn apply<F: Fabric>(fabric: &F, node: &Node, writes: &Writes<'_>) {
    let Some(replica) = node.backup(writes.shard) else {
        panic!("{:?} is not backed up here: its coordinator has another view", writes.shard);
    };
    for (key, version, value) in writes.installs() {
        fabric.work(Work::TableApply);
        replica.apply(key, version, value);
    }
}
