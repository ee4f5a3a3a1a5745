//! Host workers: they apply what the NIC has logged. [Xenic21 4.2 step 7]

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, Work};

use super::log_acks::LogAcks;
use crate::decided::{Fate, decisions_of};
use crate::log::{LogReader, RecordKind, logged};
use crate::log_worker::ApplyLog;
use crate::xenic::node::Node;
use crate::xenic::node::undecided::Undecided;
use crate::xenic::replica::Replica;

/// Writes whose homes are prefetched before the first of them is applied.
const AHEAD: usize = 32;

/// Segments of a growing table that an idle worker splits before it looks at the log again.
const IDLE_SPLITS: u64 = 4;

/// Applies the log of one NIC core to the host tables.
pub(in crate::xenic) struct Worker<F: Fabric> {
    pub(in crate::xenic) fabric: F,
    pub(in crate::xenic) node: Arc<Node>,
    pub(in crate::xenic) acks: Rc<LogAcks<F>>,
    /// The NIC core whose log it is.
    pub(in crate::xenic) core: u8,
}

impl<F: Fabric> ApplyLog for Worker<F> {
    const BATCH: usize = 32;
    // A core that also serves clients or a NIC has few turns to give, and a worker that falls
    // behind lets every local transaction find the table out of date.
    const BATCHES: usize = 16;

    fn apply(&self, reader: &LogReader) {
        if let Some(undecided) = self.node.undecided(self.core) {
            return self.apply_decided(reader, undecided);
        }
        let install = |writes: &[Option<(&Replica, _, _, _)>]| {
            // Their slots are on the way to the cache, or there.
            for &(replica, key, ..) in writes.iter().flatten() {
                replica.touch_value(key);
            }
            for &(replica, key, version, value) in writes.iter().flatten() {
                self.fabric.work(Work::TableApply);
                replica.apply(key, version, value);
            }
        };
        let (mut ahead, mut held, mut written) = ([None; AHEAD], 0, 0);
        for (kind, body) in reader.records() {
            let logged = logged(body);
            let replica = self.node.replica(logged.shard, kind);
            for (key, version, change) in logged {
                let Some(value) = change.installed() else { continue };
                if held == AHEAD {
                    install(&ahead);
                    (held, written) = (0, written + AHEAD);
                }
                replica.touch(key);
                ahead[held] = Some((replica, key, version, value));
                held += 1;
            }
        }
        install(&ahead[..held]);
        // A segment per insert keeps a doubling ahead of the inserts.
        self.grow((written + held) as u64);
    }

    fn applied(&self, _records: u64, position: u64) {
        // [Xenic21 4.2 step 7] The ack travels with the next message to the NIC.
        self.acks.applied(self.core, position, self.node.log(self.core).size());
        self.node.forget_deletions();
    }

    fn work_while_idle(&self) -> bool {
        self.grow(IDLE_SPLITS) > 0
    }
}

impl<F: Fabric> Worker<F> {
    /// Applies COMMITs and what is decided; keeps the rest. (decision 0101)
    fn apply_decided(&self, reader: &LogReader, undecided: &Undecided) {
        let mut written = 0;
        for (kind, body) in reader.records() {
            match kind {
                RecordKind::Log if self.node.config().hooks().applies_undecided() => {
                    written += self.install_logged(body);
                }
                RecordKind::Log => undecided.keep(body),
                RecordKind::Decisions => {
                    for decision in decisions_of(body) {
                        match decision.fate {
                            Fate::Committed => {
                                for record in undecided.commit(decision.txn) {
                                    written += self.install_logged(&record);
                                }
                            }
                            Fate::Aborted => undecided.abort(decision.txn),
                            Fate::KnownToAll => undecided.forget(decision.txn),
                        }
                    }
                }
                _ => written += self.install(kind, body),
            }
        }
        self.grow(written);
    }

    /// Applies a LOG's record whose transaction is committed; returns how many writes it had. What
    /// a primary has logged, its COMMIT has brought, or a recovery's INSTALL. AMB-50
    fn install_logged(&self, body: &[u8]) -> u64 {
        match self.node.is_primary(logged(body).shard) {
            true => 0,
            false => self.install(RecordKind::Log, body),
        }
    }

    /// Applies one record; returns how many writes it had.
    fn install(&self, kind: RecordKind, body: &[u8]) -> u64 {
        let (logged, mut written) = (logged(body), 0);
        let replica = self.node.replica(logged.shard, kind);
        for (key, version, change) in logged {
            let Some(value) = change.installed() else { continue };
            self.fabric.work(Work::TableApply);
            replica.apply(key, version, value);
            written += 1;
        }
        written
    }

    /// Splits segments of the tables that are doubling; returns how many.
    fn grow(&self, segments: u64) -> u64 {
        let done = self.node.grow(segments);
        for _ in 0..done.records {
            self.fabric.work(Work::TableApply);
        }
        done.segments
    }
}
