//! LOG: every backup of every shard written has the record before anyone may see the write.
//! One-sided into rings (`log_rings`), or by RPC.

use std::ops::Range;
use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError, Message, RequestId};
use nicol_core::ids::{NodeId, ShardId, TxnId};
use nicol_core::txn::{Abort, Outcome, Txn};
use nicol_core::view::View;
use nicol_core::wire::Writer;

use super::context::Context;
use super::log_ack::LogAcks;
use super::log_rings::LogRing;
use super::open_txn::{OpenTxn, Record, Way};
use super::validate::Validated;
use crate::log::{self, RecordKind};
use crate::rdma_occ::config::{LogContent, Primitive};
use crate::rdma_occ::local_log::LocalLog;
use crate::rdma_occ::log_acks::Acknowledged;
use crate::rdma_occ::messages::{FramedLog, logged_keys};
use crate::rdma_occ::reach::LogHandle;
use crate::rdma_occ::rings::write_in_time;
use crate::survivor::{Survivor, Without};
use crate::writes::{Log, Updated};

/// Proof that every backup has logged every write, or will: it is asked until it has.
#[must_use = "the primaries must install it"]
pub(super) struct Logged {
    /// The client's outcome: committed, or unknown if a backup has not answered in time.
    outcome: Outcome,
}

impl Logged {
    pub(super) fn outcome(self) -> Outcome {
        self.outcome
    }
}

/// The logs that one host engine's transactions write.
pub(super) struct Logging<F: Fabric> {
    context: Rc<Context<F>>,
    /// What this engine backs up.
    here: Rc<LocalLog<F>>,
    /// The logs that this engine writes at other nodes, by node.
    rings: Vec<LogRing>,
    acks: LogAcks<F>,
}

impl<F: Fabric> Logging<F> {
    pub(super) fn new(
        context: &Rc<Context<F>>,
        here: Rc<LocalLog<F>>,
        acknowledged: Rc<Acknowledged>,
    ) -> Self {
        let fabric = &context.fabric;
        let ring = |_| LogRing::new(here.size(), fabric.signal());
        let rings = (0..fabric.view().nodes()).map(ring).collect();
        let acks = LogAcks::new(context, acknowledged);
        Self { context: context.clone(), here, rings, acks }
    }

    /// Nodes are gone: what was to be written to their logs never lands.
    pub(super) fn give_up_lost(&self, view: &View) {
        let lost = self.context.node.lost();
        for node in view.node_ids().filter(|&node| lost.contain(node)) {
            self.ring(node).give_up();
        }
        self.acks.look_again();
    }

    /// The second round of what `open` has logged, where there is one.
    pub(super) async fn acknowledge(&self, txn: TxnId, open: &mut OpenTxn<F>) {
        let has_record = |open: &OpenTxn<F>, node| self.bodies_for(open, node).next().is_some();
        self.acks.acknowledge(txn, open, has_record).await;
    }

    /// Logs at every backup. Records that did not arrive in time stay in `open`.
    ///
    /// Errors: only before the first record is sent.
    pub(super) async fn log(
        &self,
        txn: &Txn,
        open: &mut OpenTxn<F>,
        validated: Validated,
    ) -> Result<Logged, Abort> {
        let _ = validated.granted();
        if txn.updates().next().is_none() {
            self.context.node.check_lease(&self.context.fabric)?;
            return Ok(Logged { outcome: Outcome::Committed });
        }
        let _phase = self.context.fabric.phase("LOG");
        self.context.node.check_served(txn, |index, _| txn.update(index).is_some())?;
        self.emit_bodies(txn, open);
        if self.context.fabric.view().node_ids().any(|node| !self.ever_fits(open, node)) {
            return Err(Abort::NoResources);
        }
        if self.context.node.config().log_by == Primitive::OneSided {
            self.meet_backups(open).await.map_err(Abort::Fabric)?;
        }
        // Nothing is awaited between the last look for space and the last reservation.
        while let Some(node) = self.node_without_space(open) {
            self.free_log_space(node).await.map_err(Abort::Fabric)?;
        }
        self.acks.begin(txn.id);
        self.post_records(open);
        let logged = self.take_records(open).await;
        if logged.outcome == Outcome::Committed {
            self.acknowledge(txn.id, open).await;
        }
        Ok(logged)
    }

    /// Puts what is to be logged of each shard into `open.bodies`.
    fn emit_bodies(&self, txn: &Txn, open: &mut OpenTxn<F>) {
        open.shards.clear();
        open.bodies.clear();
        open.bytes.clear();
        let updated = Updated::Counted(open.count_shards_updated(txn));
        let mut last = None;
        while let Some(shard) = open.next_shard(last, |index, _| txn.update(index).is_some()) {
            let OpenTxn { keys, bodies, shards, .. } = open;
            let start = bodies.len();
            if self.context.node.config().log_content == LogContent::Whole {
                keys.set(0..txn.entries().len());
            }
            Log { txn, shard, updated, keys }.emit(&mut Writer::new(bodies));
            shards.push((shard, start..bodies.len()));
            last = Some(shard);
        }
    }

    /// Asks for the handles of the nodes whose rings are WRITTEN.
    async fn meet_backups(&self, open: &OpenTxn<F>) -> Result<(), FabricError> {
        for (shard, _) in &open.shards {
            for backup in self.context.fabric.view().backups(*shard) {
                if !self.context.reach.is_here(backup) && !self.context.reach.is_gone(backup) {
                    self.context.reach.handles_of(backup).await?;
                }
            }
        }
        Ok(())
    }

    /// The sizes of the bodies that `node` is to log: of each shard that it backs up or, if it is
    /// the whole write set, one.
    fn bodies_for(&self, open: &OpenTxn<F>, node: NodeId) -> impl Iterator<Item = usize> {
        let most = match self.context.node.config().log_content {
            LogContent::Shard => usize::MAX,
            LogContent::Whole => 1,
        };
        let theirs = open.shards.iter().filter(move |(shard, _)| self.backs_up(node, *shard));
        theirs.take(most).map(|(_, body)| body.len())
    }

    fn backs_up(&self, node: NodeId, shard: ShardId) -> bool {
        self.context.fabric.view().backups(shard).any(|backup| backup == node)
    }

    /// Does `backup` get the whole write set with an earlier record than that of number `number`?
    fn has_it_all(&self, open: &OpenTxn<F>, number: usize, backup: NodeId) -> bool {
        let mut earlier = open.shards[..number].iter();
        self.context.node.config().log_content == LogContent::Whole
            && earlier.any(|&(shard, _)| self.backs_up(backup, shard))
    }

    /// `backup`, which was to log the record of `shard`, is gone.
    fn excuse(&self, open: &mut OpenTxn<F>, shard: ShardId, backup: NodeId) {
        self.context.node.did(Without::Backup);
        let OpenTxn { excused, shards, .. } = open;
        match self.context.node.config().log_content {
            LogContent::Shard => excused.push(shard),
            LogContent::Whole => {
                let theirs = shards.iter().filter(|(shard, _)| self.backs_up(backup, *shard));
                excused.extend(theirs.map(|&(shard, _)| shard));
            }
        }
    }

    /// Could the log of `node` take all its records at once, were it empty?
    fn ever_fits(&self, open: &OpenTxn<F>, node: NodeId) -> bool {
        let lengths = || self.bodies_for(open, node).map(log::record_len);
        // One of them may have to leave the end of the ring unused.
        lengths().sum::<u64>() + lengths().max().unwrap_or_default() <= self.ring(node).size()
    }

    /// A node whose log has no space for what it is to get.
    fn node_without_space(&self, open: &OpenTxn<F>) -> Option<NodeId> {
        let one_sided = self.context.node.config().log_by == Primitive::OneSided;
        self.context.fabric.view().node_ids().find(|&node| {
            let bodies = self.bodies_for(open, node);
            match self.context.reach.is_here(node) {
                true => !self.here.has_space(bodies),
                false if self.context.reach.is_gone(node) => false,
                false => one_sided && !self.ring(node).has_space(bodies),
            }
        })
    }

    /// Back-pressure: looks how far the workers of `node` have come, and waits if that is no
    /// further than before.
    async fn free_log_space(&self, node: NodeId) -> Result<(), FabricError> {
        if !self.context.reach.is_here(node) {
            let log = self.log_handle(node);
            let applied =
                self.context.reach.read_log_word(log, log::applied_offset(log.size)).await?;
            if self.ring(node).free(applied) {
                return Ok(());
            }
        }
        self.context.reach.wait_to_retry().await;
        Ok(())
    }

    fn post_records(&self, open: &mut OpenTxn<F>) {
        let by_rpc = self.context.node.config().log_by == Primitive::Rpc;
        for number in 0..open.shards.len() {
            let (shard, body) = open.shards[number].clone();
            for backup in self.context.fabric.view().backups(shard) {
                if self.has_it_all(open, number, backup) {
                    continue;
                }
                if self.context.reach.is_here(backup) {
                    self.here.append(&open.bodies[body.clone()]);
                } else if self.context.node.lost().contain(backup) {
                    self.excuse(open, shard, backup);
                } else if by_rpc {
                    let start = open.bytes.len();
                    open.bytes.extend_from_slice(&open.bodies[body.clone()]);
                    let bytes = start..open.bytes.len();
                    let reply =
                        self.context.rpc.ask(backup, &FramedLog(&open.bytes[bytes.clone()]));
                    let way = Way::Rpc(None);
                    open.records.push(Record { shard, to: backup, bytes, way }, reply);
                } else {
                    self.post_to_ring(open, shard, backup, body.clone());
                }
            }
        }
    }

    fn post_to_ring(&self, open: &mut OpenTxn<F>, shard: ShardId, to: NodeId, body: Range<usize>) {
        let OpenTxn { bodies, bytes, records, .. } = open;
        let (ring, log) = (self.ring(to), self.log_handle(to));
        let mut tail = ring.tail();
        let mut post = |offset: u64, range: Range<usize>, end: u64, bytes: &[u8]| {
            ring.post(end);
            let done = self.context.reach.write_log(log, offset, &bytes[range.clone()]);
            records.push(Record { shard, to, bytes: range, way: Way::Write { offset, end } }, done);
        };
        if let Some((offset, word)) = tail.skip(body.len()) {
            let start = bytes.len();
            bytes.extend_from_slice(&word.to_le_bytes());
            post(offset, start..bytes.len(), tail.at(), bytes);
        }
        let start = bytes.len();
        let offset = tail.frame(RecordKind::Log, &bodies[body.clone()], bytes);
        self.context.fabric.about_each(|each| logged_keys(&bodies[body], each));
        post(offset, start..bytes.len(), tail.at(), bytes);
        ring.advance(tail);
    }

    fn ring(&self, node: NodeId) -> &LogRing {
        &self.rings[usize::from(node.0)]
    }

    /// Where this engine's log of `node` is.
    fn log_handle(&self, node: NodeId) -> LogHandle {
        let size = self.ring(node).size();
        LogHandle { node, rkey: self.context.reach.known_handles(node).ring, size }
    }

    /// Is a replica left of every shard written, which keeps the write? A backup that the view has
    /// removed need not acknowledge, and a shard whose primary is gone is not served: its backups
    /// keep the write for a recovery.
    fn is_kept(&self, open: &OpenTxn<F>) -> bool {
        let is_kept = |&shard: &ShardId| {
            let backups = self.context.fabric.view().backups(shard);
            !self.context.node.is_lost(shard)
                || backups.into_iter().any(|node| !self.context.reach.is_gone(node))
        };
        let kept = open.excused.iter().all(is_kept);
        if !kept {
            self.context.node.did(Without::EveryReplica);
        }
        kept
    }

    /// Waits for every record; notes those that failed.
    async fn take_records(&self, open: &mut OpenTxn<F>) -> Logged {
        while let Some((mut record, arrived)) = open.records.next().await {
            match &mut record.way {
                Way::Rpc(request) => *request = arrived.as_ref().err().and_then(unanswered),
                Way::Write { end, .. } => {
                    if arrived.is_ok() {
                        self.ring(record.to).land(*end);
                    }
                    open.ends.push((record.to, *end));
                }
            }
            if arrived.is_err() && self.context.node.is_excused(record.to) {
                self.excuse(open, record.shard, record.to);
            } else if arrived.is_err() {
                open.lost.push(record);
            }
        }
        if !open.lost.is_empty() || !self.is_kept(open) {
            return Logged { outcome: Outcome::Unknown };
        }
        self.wait_in_line(open).await;
        Logged { outcome: Outcome::Committed }
    }

    /// Waits for whatever was reserved before this transaction's records.
    async fn wait_in_line(&self, open: &mut OpenTxn<F>) {
        for (to, end) in open.ends.drain(..) {
            self.ring(to).landed_up_to(end).await;
        }
    }

    /// Gets every lost record to its backup, however long it takes, or until the backup is gone.
    pub(super) async fn recover_records(&self, open: &mut OpenTxn<F>) {
        let mut lost = std::mem::take(&mut open.lost);
        for Record { to, bytes, way, .. } in lost.drain(..) {
            let bytes = &open.bytes[bytes];
            match way {
                Way::Rpc(request) => self.log_again(to, bytes, request).await,
                Way::Write { offset, end } => {
                    write_in_time(&self.context.reach, self.log_handle(to), bytes, offset, end)
                        .await;
                    self.ring(to).land(end);
                }
            }
        }
        open.lost = lost;
        self.wait_in_line(open).await;
    }

    async fn log_again(&self, to: NodeId, body: &[u8], mut request: Option<RequestId>) {
        let message = FramedLog(body);
        while !self.context.reach.is_gone(to) {
            let Err(error) = self.context.rpc.demand(to, &message, request).await else { return };
            assert!(error != FabricError::Malformed, "a backup refused a record");
            // One that found no slot was never sent.
            request = unanswered(&error).or(request);
            self.context.reach.wait_after(to, error).await;
        }
    }
}

/// The request that may still take effect after this error.
fn unanswered(error: &FabricError) -> Option<RequestId> {
    match error {
        FabricError::TimedOut { request } => Some(*request),
        _ => None,
    }
}
