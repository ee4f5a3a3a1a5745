//! Group commit: what transactions have written becomes durable by epochs, and whoever has
//! committed in an epoch is answered when it is durable. [Silo13 4.10]
//!
//! | step | what | where |
//! |---|---|---|
//! | 1 | the commit point names the epoch, between the locks and the writes | `Worker::commit_point` |
//! | 2 | the writes, with the versions that they install, are gathered by their core | `Worker::gather` |
//! | 3 | a core persists what it has gathered, and says up to which epoch that is all | `Worker::flush` |
//! | 4 | an epoch is durable once every core has said so | `log.rs` (`NodeLog::durable`) |
//! | 5 | recovery takes the transactions of durable epochs | `recovery.rs` |
//!
//! Whoever reads or overwrites what a transaction has installed reaches its own commit point later,
//! and so its epoch is the same or a later one: what is durable is closed under both, in every
//! protocol. A transaction that has overwritten what another has read may be durable without that
//! one, of which nothing is left then that anybody has seen.
//!
//! DEVIATION [Silo13 4.10]: each core persists its own log, by the node's log device, which syncs
//! what several have asked for at once; there are no logger threads.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use nicol_core::fabric::{Fabric, FabricError, Work};
use nicol_core::ids::TxnId;
use nicol_core::txn::Abort;
use nicol_core::units::Nanos;

use super::log::{CHUNK_BYTES, Committed, CoreLog, NodeLog};
use super::recovery::{CHUNK_HEADER, chunk_header, emit_record, record_bytes, whole_records};
use super::sets::Sets;
use super::worker::{Protocol, Worker};

/// Looks of a core at its log in an epoch.
const LOOKS: u64 = 4;

impl<F: Fabric, P: Protocol> Worker<F, P> {
    /// The epoch of a transaction that holds what it writes, and has not written it yet.
    /// [Silo13 4.4, the serialization point]
    ///
    /// # Errors
    /// If its writes do not fit the log.
    pub(super) fn commit_point(&self, sets: &mut Sets) -> Result<u64, Abort> {
        let epoch = self.store().epochs().now();
        if let Some(log) = &self.log {
            if record_bytes(sets) > CHUNK_BYTES {
                return Err(Abort::NoResources);
            }
            let committing = log.committing(epoch);
            committing.set(committing.get() + 1);
            sets.epoch = epoch;
        }
        Ok(epoch)
    }

    /// Gathers the writes of a transaction that has ended, if it has committed.
    pub(super) fn gather(&self, id: TxnId, sets: &mut Sets, has_committed: bool) -> Committed {
        let epoch = std::mem::take(&mut sets.epoch);
        if let Some(log) = self.log.as_ref().filter(|_| epoch > 0) {
            let failed = self.node.log().is_some_and(|node| node.failed.load(Ordering::Relaxed));
            // Nobody takes what is gathered from a log whose device has failed.
            if has_committed && !sets.writes.is_empty() && !failed {
                let mut gathered = log.gathered.borrow_mut();
                let before = gathered.len();
                emit_record(epoch, id, sets, &mut gathered);
                let bytes = (gathered.len() - before) as u32;
                self.fabric.work(Work::Copy { bytes });
            }
            let committing = log.committing(epoch);
            committing.set(committing.get() - 1);
        }
        Committed { epoch }
    }

    /// Waits until a transaction is durable; false if it never will be, or nobody knows.
    pub(super) async fn durable(&self, Committed { epoch }: Committed) -> bool {
        let (Some(log), Some(node)) = (&self.log, self.node.log()) else { return true };
        node.want(epoch);
        while log.seen.get() < epoch {
            if node.failed.load(Ordering::Relaxed) {
                return false;
            }
            log.moved.wait().await;
        }
        true
    }

    /// Must whoever has committed wait?
    pub(super) const fn logs(&self) -> bool {
        self.log.is_some()
    }

    /// Moves the epoch on, and persists what the core's transactions have written, again and again.
    pub(super) async fn flush(self: Rc<Self>) {
        let (Some(log), Some(node)) = (&self.log, self.node.log()) else { return };
        let pause = Nanos((self.node.config().epoch.0 / LOOKS).max(1));
        while !node.failed.load(Ordering::Relaxed) {
            self.fabric.sleep_until(self.fabric.now() + pause).await;
            self.move_epoch();
            if self.persist(log, node).await.is_err() {
                // What it holds nobody knows: no later record may be taken for durable.
                node.failed.store(true, Ordering::Relaxed);
            }
            let durable = node.durable();
            if durable > log.seen.get() {
                log.seen.set(durable);
                log.moved.notify();
            }
        }
        log.moved.notify();
    }

    /// Persists what was gathered, in chunks, one after the other: so none is durable without those
    /// before it. The last one says up to which epoch the core's log is complete.
    async fn persist(&self, log: &CoreLog, node: &NodeLog) -> Result<(), FabricError> {
        let own = &node.through[self.core].0;
        let now = self.store().epochs().now();
        let complete = self.hooks.claims(now, log.complete(now));
        let claims = complete > own.load(Ordering::Relaxed);
        let is_wanted = node.wanted.0.load(Ordering::Relaxed) > own.load(Ordering::Relaxed);
        if log.gathered.borrow().is_empty() && !(claims && is_wanted) {
            return Ok(());
        }
        let mut sending = log.sending.take();
        std::mem::swap(&mut sending, &mut log.gathered.borrow_mut());
        let mut rest = &sending[..];
        loop {
            let (chunk, others) = whole_records(rest, CHUNK_BYTES);
            let claim = if others.is_empty() { complete } else { 0 };
            let header = chunk_header(self.core, claim, chunk.len());
            let fits = "a chunk fits its region, which this core alone writes";
            log.region.write(0, &header).expect(fits);
            log.region.write(CHUNK_HEADER as u64, chunk).expect(fits);
            self.fabric.persist(&log.region, 0, CHUNK_HEADER + chunk.len()).await?;
            rest = others;
            if rest.is_empty() {
                break;
            }
        }
        sending.clear();
        log.sending.replace(sending);
        own.store(complete, Ordering::Release);
        Ok(())
    }
}
