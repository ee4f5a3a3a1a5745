//! Host workers: they apply what others have logged here.

use std::sync::Arc;

use nicol_core::fabric::{Fabric, Work};

use super::node::Node;
use crate::commit::log::{LogReader, logged};
use crate::commit::log_worker::ApplyLog;

/// Applies the records of a log to the backups.
pub(super) struct Worker<F> {
    pub(super) fabric: F,
    pub(super) node: Arc<Node>,
}

impl<F: Fabric> ApplyLog for Worker<F> {
    const BATCH: usize = 64;
    const BATCHES: usize = 1;

    fn apply(&self, reader: &LogReader) {
        for (_, body) in reader.records() {
            let writes = logged(body);
            let Some(replica) = self.node.backup(writes.shard) else {
                panic!(
                    "{:?} is not backed up here: its coordinator has another view",
                    writes.shard
                );
            };
            for (key, version, value) in writes.installs() {
                self.fabric.work(Work::TableApply);
                replica.apply(key, version, value);
            }
        }
    }

    fn applied(&self, records: u64, _position: u64) {
        // The log's writer reads how far it is free from the memory behind it.
        self.node.applied(records);
    }
}
