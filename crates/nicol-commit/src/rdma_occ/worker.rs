//! Host workers: they apply what others have logged here.

use std::sync::Arc;

use nicol_core::fabric::{Fabric, Work};
use nicol_core::ids::TxnId;

use super::config::LogContent;
use super::log_acks::Retained;
use super::node::Node;
use crate::log::{LogReader, logged};
use crate::log_worker::ApplyLog;
use crate::survivor::Survivor;

/// Applies the records of a log to the backups.
pub(super) struct Worker<F> {
    pub(super) fabric: F,
    pub(super) node: Arc<Node>,
    /// The records that wait for their second round, if there is one.
    pub(super) retained: Option<Retained>,
}

impl<F: Fabric> ApplyLog for Worker<F> {
    const BATCH: usize = 64;
    const BATCHES: usize = 1;

    fn apply(&self, reader: &LogReader) {
        for ((_, body), &end) in reader.records().zip(reader.ends()) {
            let writes = logged(body);
            let whole = self.node.config().log_content == LogContent::Whole;
            for (key, version, change) in writes {
                let Some(value) = change.installed() else { continue };
                let shard = self.node.shard_of(key);
                let Some(replica) = self.node.backup(shard) else {
                    assert!(
                        whole,
                        "{shard:?} is not backed up here: its coordinator has another view"
                    );
                    continue;
                };
                self.fabric.work(Work::TableApply);
                replica.apply(key, version, value);
            }
            if let Some(retained) = &self.retained {
                retained.applied(writes.txn, end);
            }
        }
    }

    fn free_up_to(&self, read: u64) -> u64 {
        let is_lost = |txn: TxnId| self.node.lost().have_left(txn);
        self.retained.as_ref().map_or(read, |retained| retained.free_up_to(read, is_lost))
    }

    fn applied(&self, records: u64, _position: u64) {
        // The log's writer reads how far it is free from the memory behind it.
        self.node.applied(records);
    }
}
