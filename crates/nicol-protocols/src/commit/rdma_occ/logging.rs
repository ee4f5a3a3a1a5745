//! LOG: every backup of every shard written has the record before anyone may see the write.
//!
//! One-sided: each host engine has a ring of its own at each other node and WRITEs into it. A
//! record counts once all that were reserved before it in its ring have landed, as completions on
//! one queue pair come in order.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use nicol_core::exec::Signal;
use nicol_core::fabric::{Fabric, FabricError, Message, RequestId, Work};
use nicol_core::ids::NodeId;
use nicol_core::txn::{Abort, Outcome, Txn};
use nicol_core::wire::Writer;

use super::Primitive;
use super::host::{Host, Open, RETRY_WAIT};
use super::messages::FramedLog;
use super::rings::LogHandle;
use crate::commit::log::{self, LogMemory, RecordKind, Tail};
use crate::commit::messages::Log;

/// The writer's end of a ring at another node.
#[derive(Debug)]
pub(super) struct Ring {
    size: u64,
    tail: Cell<Tail>,
    /// Bytes that the backup has applied, as last read.
    freed: Cell<u64>,
    /// Everything below has landed.
    landed: Cell<u64>,
    /// The ends of WRITEs above, in order, and whether each has landed.
    flying: RefCell<VecDeque<(u64, bool)>>,
    progress: Signal,
}

impl Ring {
    pub(super) fn new(size: u64, progress: Signal) -> Self {
        Self {
            size,
            tail: Cell::new(Tail::new(size)),
            freed: Cell::new(0),
            landed: Cell::new(0),
            flying: RefCell::default(),
            progress,
        }
    }

    fn has_space(&self, bodies: impl Iterator<Item = usize>) -> bool {
        let mut tail = self.tail.get();
        bodies.for_each(|body| tail.pass(body));
        tail.at() - self.freed.get() <= self.size
    }

    /// Notes that the WRITE that ends at `end` has landed.
    fn land(&self, end: u64) {
        let mut flying = self.flying.borrow_mut();
        for (other, landed) in flying.iter_mut() {
            *landed |= *other == end;
        }
        while let Some(&(end, true)) = flying.front() {
            flying.pop_front();
            self.landed.set(end);
        }
        self.progress.notify();
    }

    async fn landed_up_to(&self, end: u64) {
        while self.landed.get() < end {
            self.progress.wait().await;
        }
    }
}

/// This engine's own log: what it backs up for itself, and for others by RPC.
#[derive(Debug)]
pub(super) struct LocalLog {
    memory: Arc<LogMemory>,
    tail: Cell<Tail>,
    staging: RefCell<Vec<u8>>,
}

impl LocalLog {
    pub(super) fn new(memory: Arc<LogMemory>) -> Self {
        let tail = Cell::new(Tail::new(memory.size()));
        Self { memory, tail, staging: RefCell::default() }
    }

    fn has_space(&self, bodies: impl Iterator<Item = usize>) -> bool {
        let mut tail = self.tail.get();
        bodies.for_each(|body| tail.pass(body));
        tail.at() - self.memory.applied() <= self.memory.size()
    }

    fn append(&self, body: &[u8]) {
        let mut tail = self.tail.get();
        let region = self.memory.region();
        if let Some((offset, word)) = tail.skip(body.len()) {
            self.write(offset, &word.to_le_bytes());
        }
        let mut staging = self.staging.borrow_mut();
        staging.clear();
        let offset = tail.frame(RecordKind::Log, body, &mut staging);
        self.write(offset, &staging);
        self.tail.set(tail);
        region.doorbell().ring();
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        if let Err(error) = self.memory.region().write(offset, bytes) {
            panic!("a log's own access failed: {error}");
        }
    }
}

/// A log record on its way to another node.
pub(super) struct Record<F: Fabric> {
    to: NodeId,
    /// Of the transaction's log bytes.
    bytes: Range<usize>,
    way: Way<F>,
}

enum Way<F: Fabric> {
    /// A LOG that carries the record's body.
    Rpc { reply: F::Completion },
    /// A WRITE of the framed record to `offset`; the ring's tail was at `end` behind it.
    Write { offset: u64, end: u64, done: F::Completion },
}

/// A log record that did not arrive in time, or perhaps did.
pub(super) struct Lost {
    to: NodeId,
    bytes: Range<usize>,
    way: LostWay,
}

#[derive(Clone, Copy)]
enum LostWay {
    /// Its LOG failed; the request, if it may still take effect.
    Rpc(Option<RequestId>),
    /// Its WRITE failed.
    Write { offset: u64, end: u64 },
}

impl<F: Fabric> Host<F> {
    /// Logs at every backup. An abort is possible only before the first record is sent. Records
    /// that did not arrive in time stay in `open`, and the outcome is unknown to the client.
    pub(super) async fn log_backups(
        &self,
        txn: &Txn,
        open: &mut Open<F>,
    ) -> Result<Outcome, Abort> {
        let _phase = self.fabric.phase("LOG");
        self.emit_bodies(txn, open);
        if self.fabric.view().node_ids().any(|node| !self.ever_fits(open, node)) {
            return Err(Abort::NoResources);
        }
        if self.node.config().log_by == Primitive::OneSided {
            self.meet_backups(open).await.map_err(Abort::Fabric)?;
        }
        // Nothing is awaited between the last look for space and the last reservation.
        while let Some(node) = self.node_without_space(open) {
            self.free_log_space(node).await.map_err(Abort::Fabric)?;
        }
        self.post_records(open);
        Ok(self.take_records(open).await)
    }

    /// Puts what is to be logged of each shard into `open.bodies`.
    fn emit_bodies(&self, txn: &Txn, open: &mut Open<F>) {
        open.shards.clear();
        open.bodies.clear();
        open.bytes.clear();
        for shard in self.fabric.view().shard_ids() {
            let written = |index| txn.update(index).is_some();
            if !open.select_any(|index, access| access.shard == shard && written(index)) {
                continue;
            }
            let Open { keys, bodies, shards, .. } = open;
            let start = bodies.len();
            Log { txn, shard, keys }.emit(&mut Writer::new(bodies));
            shards.push((shard, start..bodies.len()));
        }
    }

    async fn meet_backups(&self, open: &Open<F>) -> Result<(), FabricError> {
        for (shard, _) in &open.shards {
            for backup in self.fabric.view().backups(*shard) {
                if !self.is_here(backup) {
                    self.remote_handles(backup).await?;
                }
            }
        }
        Ok(())
    }

    /// The sizes of the bodies that `node` backs up.
    fn bodies_for(&self, open: &Open<F>, node: NodeId) -> impl Iterator<Item = usize> {
        let view = self.fabric.view();
        let theirs = move |shard| view.backups(shard).any(|backup| backup == node);
        open.shards.iter().filter(move |(shard, _)| theirs(*shard)).map(|(_, body)| body.len())
    }

    /// Could the log of `node` take all its records at once, were it empty?
    fn ever_fits(&self, open: &Open<F>, node: NodeId) -> bool {
        let size = self.rings[usize::from(node.0)].size;
        let lengths = || self.bodies_for(open, node).map(log::record_len);
        // One of them may have to leave the end of the ring unused.
        lengths().sum::<u64>() + lengths().max().unwrap_or_default() <= size
    }

    /// A node whose log has no space for what it is to get.
    fn node_without_space(&self, open: &Open<F>) -> Option<NodeId> {
        let one_sided = self.node.config().log_by == Primitive::OneSided;
        self.fabric.view().node_ids().find(|&node| {
            let bodies = self.bodies_for(open, node);
            match self.is_here(node) {
                true => !self.local_log.has_space(bodies),
                false => one_sided && !self.rings[usize::from(node.0)].has_space(bodies),
            }
        })
    }

    /// Back-pressure: looks how far the workers of `node` have come, and waits if that is no
    /// further than before.
    async fn free_log_space(&self, node: NodeId) -> Result<(), FabricError> {
        if !self.is_here(node) {
            let ring = &self.rings[usize::from(node.0)];
            let log = self.log_handle(node);
            let applied = self.read_log_word(log, log::applied_offset(ring.size)).await?;
            if applied > ring.freed.get() {
                ring.freed.set(applied);
                return Ok(());
            }
        }
        self.fabric.sleep_until(self.fabric.now() + RETRY_WAIT).await;
        Ok(())
    }

    fn post_records(&self, open: &mut Open<F>) {
        let by_rpc = self.node.config().log_by == Primitive::Rpc;
        for number in 0..open.shards.len() {
            let (shard, body) = open.shards[number].clone();
            for backup in self.fabric.view().backups(shard) {
                if self.is_here(backup) {
                    self.fabric.work(Work::Copy { bytes: body.len() as u32 });
                    self.local_log.append(&open.bodies[body.clone()]);
                } else if by_rpc {
                    let start = open.bytes.len();
                    open.bytes.extend_from_slice(&open.bodies[body.clone()]);
                    let bytes = start..open.bytes.len();
                    let reply = self.ask(backup, &FramedLog(&open.bytes[bytes.clone()]));
                    open.records.push(Record { to: backup, bytes, way: Way::Rpc { reply } });
                } else {
                    self.post_to_ring(open, backup, body.clone());
                }
            }
        }
    }

    fn post_to_ring(&self, open: &mut Open<F>, to: NodeId, body: Range<usize>) {
        let Open { bodies, bytes, records, .. } = open;
        let (ring, log) = (&self.rings[usize::from(to.0)], self.log_handle(to));
        let mut tail = ring.tail.get();
        let mut post = |offset: u64, range: Range<usize>, end: u64, bytes: &[u8]| {
            ring.flying.borrow_mut().push_back((end, false));
            let done = self.write_log(log, offset, &bytes[range.clone()]);
            records.push(Record { to, bytes: range, way: Way::Write { offset, end, done } });
        };
        if let Some((offset, word)) = tail.skip(body.len()) {
            let start = bytes.len();
            bytes.extend_from_slice(&word.to_le_bytes());
            post(offset, start..bytes.len(), tail.at(), bytes);
        }
        let start = bytes.len();
        let offset = tail.frame(RecordKind::Log, &bodies[body], bytes);
        post(offset, start..bytes.len(), tail.at(), bytes);
        ring.tail.set(tail);
    }

    /// Where this engine's log of `node` is.
    fn log_handle(&self, node: NodeId) -> LogHandle {
        let size = self.rings[usize::from(node.0)].size;
        LogHandle { node, rkey: self.known_handles(node).ring, size }
    }

    /// Waits for every record; notes those that failed.
    async fn take_records(&self, open: &mut Open<F>) -> Outcome {
        let mut records = std::mem::take(&mut open.records);
        for record in records.drain(..) {
            let Record { to, bytes, way } = record;
            let (way, failed) = match way {
                Way::Rpc { reply } => {
                    let error = reply.await.err();
                    (LostWay::Rpc(error.and_then(unanswered)), error.is_some())
                }
                Way::Write { offset, end, done } => {
                    let failed = done.await.is_err();
                    if !failed {
                        self.rings[usize::from(to.0)].land(end);
                    }
                    open.ends.push((to, end));
                    (LostWay::Write { offset, end }, failed)
                }
            };
            if failed {
                open.lost.push(Lost { to, bytes, way });
            }
        }
        open.records = records;
        if !open.lost.is_empty() {
            return Outcome::Unknown;
        }
        self.wait_in_line(open).await;
        Outcome::Committed
    }

    /// Waits for whatever was reserved before this transaction's records.
    async fn wait_in_line(&self, open: &mut Open<F>) {
        for (to, end) in open.ends.drain(..) {
            self.rings[usize::from(to.0)].landed_up_to(end).await;
        }
    }

    /// Gets every lost record to its backup, however long it takes.
    pub(super) async fn recover_records(&self, open: &mut Open<F>) {
        let mut lost = std::mem::take(&mut open.lost);
        for Lost { to, bytes, way } in lost.drain(..) {
            let bytes = &open.bytes[bytes];
            match way {
                LostWay::Rpc(request) => self.log_again(to, bytes, request).await,
                LostWay::Write { offset, end } => {
                    self.write_in_time(self.log_handle(to), bytes, offset, end).await;
                    self.rings[usize::from(to.0)].land(end);
                }
            }
        }
        open.lost = lost;
        self.wait_in_line(open).await;
    }

    async fn log_again(&self, to: NodeId, body: &[u8], mut request: Option<RequestId>) {
        let message = FramedLog(body);
        loop {
            let Err(error) = self.demand(to, &message, request).await else { return };
            assert!(error != FabricError::Malformed, "a backup refused a record");
            // One that found no slot was never sent.
            request = unanswered(error).or(request);
            self.fabric.sleep_until(self.fabric.now() + RETRY_WAIT).await;
        }
    }

    /// Appends to this engine's own log, if there is space.
    pub(super) fn log_own(&self, body: &[u8]) -> bool {
        let fits = self.local_log.has_space(std::iter::once(body.len()));
        if fits {
            self.fabric.work(Work::Copy { bytes: body.len() as u32 });
            self.local_log.append(body);
        }
        fits
    }

    /// Appends to this engine's own log once there is space.
    pub(super) async fn log_own_in_time(&self, body: &[u8]) {
        while !self.log_own(body) {
            self.fabric.sleep_until(self.fabric.now() + RETRY_WAIT).await;
        }
    }
}

/// The request that may still take effect after this error.
fn unanswered(error: FabricError) -> Option<RequestId> {
    match error {
        FabricError::TimedOut { request } => Some(request),
        _ => None,
    }
}
