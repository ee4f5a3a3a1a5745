//! Host workers: they poll a log in host memory and apply its records.

use std::sync::Arc;

use nicol_core::fabric::{Fabric, HasDoorbell};

use super::log::{LogMemory, LogReader};

/// The actions of a worker on the records of its log.
pub(super) trait ApplyLog {
    /// Records read and applied at a time.
    const BATCH: usize;
    /// Batches applied before the worker publishes its progress and lets others run.
    const BATCHES: usize;

    /// Applies the records read last.
    fn apply(&self, reader: &LogReader);

    /// Up to where the log is free, now that all up to `read` has been applied.
    fn free_up_to(&self, read: u64) -> u64 {
        read
    }

    /// So many more `records` have been applied; the log is free up to `position`.
    fn applied(&self, records: u64, position: u64);

    /// Does what there is to do while the log is empty; returns whether there was anything.
    fn work_while_idle(&self) -> bool {
        false
    }
}

/// Polls the log in `memory` for ever and has `worker` apply its records.
pub(super) async fn apply_log<F: Fabric, W: ApplyLog>(
    fabric: F,
    memory: Arc<LogMemory>,
    worker: W,
) {
    let doorbell: Arc<dyn HasDoorbell> = memory.region().clone();
    let mut reader = LogReader::new(memory);
    loop {
        let seen = doorbell.doorbell().rings();
        let mut records = 0;
        for _ in 0..W::BATCHES {
            let read = reader.read(W::BATCH);
            let _phase = (read > 0).then(|| fabric.phase("apply the log"));
            worker.apply(&reader);
            records += read;
            if read < W::BATCH {
                break;
            }
        }
        reader.note_in_tables();
        let position = worker.free_up_to(reader.position());
        reader.free(position);
        if records > 0 {
            worker.applied(records as u64, position);
            fabric.yield_now().await;
        } else if worker.work_while_idle() {
            fabric.yield_now().await;
        } else {
            reader.rest();
            fabric.wait_for_doorbell(&doorbell, seen).await;
        }
    }
}
