//! What the steps of `NicCoordinator::commit_transaction` do: each sends to every node concerned,
//! waits for all of them, and hands the next one proof. [Xenic21 4.2]

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, FabricError, Message, RequestId, Timeout};
use nicol_core::ids::{EngineId, NodeId, ShardId};
use nicol_core::txn::{Abort, Entry, Outcome};
use nicol_kit::{AllGranted, HeldLocks, VIEW_WAIT};

use super::current::CurrentHere;
use super::decisions::Decisions;
use crate::messages::{AbortLocks, Execute, Validate, parse_execute_reply, parse_verdict};
use crate::survivor::{Survivor, Without};
use crate::writes::{Commit, Log};
use crate::xenic::capacity;
use crate::xenic::config::{CombinedOps, SLOT_WAIT};
use crate::xenic::messages::HostReply;
use crate::xenic::node::{Node, OwnInserts};
use crate::xenic::open_txn::{LogCall, OpenTxn, PrimaryCall};
use crate::xenic::server::ReadAtOnce;

/// Proof that every key has been read and every write-set key is locked.
#[must_use = "release the locks or carry them to the next step"]
pub(super) struct Executed(AllGranted);

impl Executed {
    /// The keys were read first, and the write set was locked at the versions read.
    pub(super) fn separately(read: AllGranted, locked: AllGranted) -> Self {
        Self(read.and(locked))
    }
}

/// Proof that nothing read has changed since, so that the transaction will commit: by VALIDATE, or
/// by what makes it needless.
#[must_use = "log it or release the locks"]
pub(super) struct Validated(());

/// The primaries of all keys that are not locked say so; where there are none, EXECUTE does.
impl From<AllGranted> for Validated {
    fn from(_: AllGranted) -> Self {
        Self(())
    }
}

/// The locks on every key were all held at one instant. [Xenic21 4.2.3]
impl From<ReadAtOnce> for Validated {
    fn from(_: ReadAtOnce) -> Self {
        Self(())
    }
}

/// The NIC of the only node concerned says so. [Xenic21 4.2.4]
impl From<CurrentHere> for Validated {
    fn from(_: CurrentHere) -> Self {
        Self(())
    }
}

/// Proof that every backup that is left has logged every write. Holds the outcome: unknown where no
/// replica of a shard is left.
#[must_use = "the host must learn the outcome, and the primaries must install it"]
pub(super) struct Logged(Outcome);

/// Proof that the host knows the outcome.
#[must_use = "the primaries must install it"]
pub(super) struct Reported(());

/// The steps of one NIC engine's transactions.
pub(in crate::xenic) struct Steps<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    decisions: Rc<Decisions<F>>,
}

impl<F: Fabric> Steps<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>) -> Self {
        let decisions = Decisions::new(fabric.clone(), node.clone());
        Self { fabric, node, decisions }
    }

    /// The node that takes them.
    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// EXECUTE: locks and reads the keys that have not been fetched yet, at all primaries at once.
    pub(super) async fn execute(&self, open: &mut OpenTxn<F>) -> Result<Executed, Abort> {
        let _phase = self.fabric.phase("step 2: EXECUTE");
        open.note_fetched();
        self.node.check_served(&open.txn, |_, entry| !entry.fetched)?;
        let mut last = None;
        while let Some(shard) = open.next_shard(last, |entry| !entry.fetched) {
            if open.keys.iter().any(|&index| open.txn.entries()[index].write) {
                open.locks.asked(shard);
            }
            let reply =
                self.ask(shard, &Execute { txn: &open.txn, began: open.began, keys: &open.keys });
            open.calls.push(PrimaryCall::to(shard), reply);
            last = Some(shard);
        }
        Ok(Executed(self.gather_values(open).await?))
    }

    /// Sends the primaries what `ask` makes of the keys in `open.keys`: of all wanted keys of a
    /// shard or, where keys are not combined, of one. [Xenic21 5.7] AMB-45
    pub(super) fn scatter(
        &self,
        open: &mut OpenTxn<F>,
        wanted: impl Fn(&Entry) -> bool,
        ask: impl Fn(&mut OpenTxn<F>, ShardId) -> F::Completion,
    ) {
        if self.node.config().combined_ops == CombinedOps::None {
            for index in 0..open.txn.entries().len() {
                if wanted(&open.txn.entries()[index]) {
                    let shard = open.shards[index];
                    open.keys.set(std::iter::once(index));
                    let reply = ask(open, shard);
                    let call = PrimaryCall { only: Some(index), ..PrimaryCall::to(shard) };
                    open.calls.push(call, reply);
                }
            }
            return;
        }
        let mut last = None;
        while let Some(shard) = open.next_shard(last, &wanted) {
            let reply = ask(open, shard);
            open.calls.push(PrimaryCall::to(shard), reply);
            last = Some(shard);
        }
    }

    /// Takes what the primaries have read, and notes which of them hold locks now.
    pub(super) async fn gather_values(&self, open: &mut OpenTxn<F>) -> Result<AllGranted, Abort> {
        let OpenTxn { calls, txn, shards, keys, locks, exhausted, .. } = open;
        let take = |call: PrimaryCall, reply: Result<F::Payload, FabricError>| {
            let PrimaryCall { shard, only, .. } = call;
            match only {
                Some(index) => keys.set(std::iter::once(index)),
                None => _ = keys.of(shard, shards.of(txn, |entry| !entry.fetched)),
            }
            let granted = reply.map_err(|error| self.node.failure(shard, error)).and_then(|body| {
                parse_execute_reply(body.as_ref(), txn, keys)
                    .unwrap_or(Err(Abort::Fabric(FabricError::Malformed)))
            });
            *exhausted = exhausted.or(note_locks(locks, shard, granted)?);
            Ok(())
        };
        calls.gather(take).await
    }

    /// VALIDATE: what was read and is not locked has not changed, say its primaries.
    pub(super) async fn validate(
        &self,
        open: &mut OpenTxn<F>,
        executed: Executed,
    ) -> Result<Validated, Abort> {
        let _phase = self.fabric.phase("step 4: VALIDATE");
        let Executed(granted) = executed;
        let entries = open.txn.entries();
        // AMB-34: one key, read in one request, was current at that instant.
        if entries.len() == 1 || entries.iter().all(|entry| entry.write) {
            return Ok(granted.into());
        }
        self.scatter(
            open,
            |entry| !entry.write,
            |open, shard| {
                let OpenTxn { txn, keys, began, .. } = open;
                self.ask(shard, &Validate { txn, began: *began, keys })
            },
        );
        let checked = open.calls.gather(|call, reply| self.node.verdict(call.shard, reply)).await?;
        Ok(granted.and(checked).into())
    }

    /// LOG at every backup of what is written.
    ///
    /// Errors: only before the first LOG is sent, or as of [`Steps::await_logs`]. A backup that
    /// does not answer in time makes the outcome unknown to the client, and is asked until it
    /// does.
    pub(super) async fn log(
        &self,
        open: &mut OpenTxn<F>,
        Validated(()): Validated,
    ) -> Result<Logged, Abort> {
        let _phase = self.fabric.phase("step 5: LOG");
        if !open.txn.has_updates() {
            self.node.check_lease(&self.fabric)?;
            return Ok(Logged(Outcome::Committed));
        }
        self.node.check_served(&open.txn, |_, entry| entry.write)?;
        // Locks of a shard that has changed since are known to nobody.
        self.node.begun().check_shards(open.began, open.shards.iter())?;
        let log = self.node.log(self.fabric.here().core);
        open.note_shards_updated();
        capacity::check_writes(open, log.body_max())?;
        capacity::check_shards(open.updates.count())?;
        let mut last = None;
        while let Some(shard) = open.next_shard(last, Entry::is_updated) {
            for to in self.log_holders(shard) {
                let timeout = Timeout::After(self.node.config().timeout);
                let call = LogCall { shard, to, delegated: RequestId::NONE };
                let reply = self.send_log(open, call, timeout, None);
                open.logs.push(call, reply);
            }
            last = Some(shard);
        }
        self.await_logs(open).await
    }

    /// Who gets the LOGs of `shard`: its backups, those that catch up and, where this node is one
    /// of these and that is asked for, its primary. AMB-50
    fn log_holders(&self, shard: ShardId) -> impl Iterator<Item = NodeId> + use<'_, F> {
        let view = self.fabric.view();
        let (primary, here) = (view.primary(shard), self.fabric.here().node);
        let at_primary = primary != here && self.node.logs_at_primary(here, shard);
        view.followers(shard).chain(at_primary.then_some(primary))
    }

    /// Waits for the acks of every backup that is left.
    ///
    /// A backup that the view has removed need not acknowledge: it holds nothing any more. Who has
    /// written a shard whose primary is gone commits all the same, since nobody serves the shard
    /// and its backups keep the write; unless none of them is left to keep it.
    ///
    /// Errors: a backup has refused, since a shard has changed. Nothing of the transaction is
    /// applied anywhere, and all backups have dropped it.
    pub(super) async fn await_logs(&self, open: &mut OpenTxn<F>) -> Result<Logged, Abort> {
        let mut refused = None;
        while let Some((call, mut reply)) = open.logs.next().await {
            let mut superseded = None;
            while let Err(error) = reply {
                if self.node.is_excused(call.to) {
                    self.node.did(Without::Backup);
                    open.excused.push(call.shard);
                    break;
                }
                match error {
                    // That life is over, as the next view says.
                    FabricError::Unreachable => self.wait_for_view().await,
                    error => {
                        self.report(open, Outcome::Unknown);
                        if let FabricError::TimedOut { request } = error {
                            superseded = Some(request);
                        }
                        self.wait_for_slot().await;
                    }
                }
                open.select(call.shard, Entry::is_updated);
                reply = self.send_log(open, call, Timeout::Never, superseded).await;
            }
            refused = refused.or(reply.ok().and_then(|body| refusal(body.as_ref())));
        }
        if let Some(abort) = refused {
            self.take_back(open, open.updates.list()).await;
            return Err(abort);
        }
        let is_kept = |&shard: &ShardId| {
            let excused = open.excused.iter().filter(|&&of| of == shard).count();
            !self.node.is_lost(shard) || excused < self.fabric.view().backups(shard).count()
        };
        let kept = open.excused.iter().all(is_kept);
        if !kept {
            self.node.did(Without::EveryReplica);
        }
        Ok(Logged(if kept { Outcome::Committed } else { Outcome::Unknown }))
    }

    /// Has the backups of `shards` drop what they may have of a transaction, which is aborted: its
    /// client may be told, and its locks may fall, when all that are left have.
    pub(super) async fn take_back(&self, open: &OpenTxn<F>, shards: &[ShardId]) {
        self.decisions.abort(open.txn.id, shards).await;
    }

    /// The commit point: the host learns the outcome, before the primaries do.
    pub(super) fn report_logged(&self, open: &mut OpenTxn<F>, logged: Logged) -> Reported {
        let Logged(outcome) = logged;
        self.report(open, outcome);
        Reported(())
    }

    /// Sends the writes in `open.keys` to a backup.
    pub(super) fn send_log(
        &self,
        open: &OpenTxn<F>,
        call: LogCall,
        timeout: Timeout,
        superseded: Option<RequestId>,
    ) -> F::Completion {
        let (shard, updated) = (call.shard, open.updates.told());
        let message = Log { txn: &open.txn, shard, updated, keys: &open.keys };
        let to = self.fabric.view().nic_of(call.to, self.fabric.here().core);
        match superseded {
            Some(request) => self.fabric.call_superseding(to, &message, request),
            None => self.fabric.call(to, &message, timeout),
        }
    }

    /// COMMIT at the primaries of the write set: they install the writes and unlock. One that has
    /// written nothing only gives its locks back.
    pub(super) async fn commit(&self, open: &mut OpenTxn<F>, Reported(()): Reported) {
        if !open.txn.has_updates() {
            return self.release(open).await;
        }
        let after_commit = self.node.config().hooks().decides_after_commit();
        if !after_commit {
            self.note_decided(open);
        }
        self.install(open).await;
        if after_commit {
            self.note_decided(open);
        }
    }

    /// Its backups will be told that a transaction has committed, where they wait for that.
    fn note_decided(&self, open: &OpenTxn<F>) {
        if open.began.is_some() {
            self.decisions.note(open.txn.id, open.updates.list());
        }
    }

    /// Has the primaries install the writes.
    pub(in crate::xenic) async fn install(&self, open: &mut OpenTxn<F>) {
        let _phase = self.fabric.phase("step 6: COMMIT");
        self.tell_primaries(open, |open, PrimaryCall { shard, .. }| {
            let updated = open.updates.told();
            self.demand(shard, &Commit { txn: &open.txn, shard, updated, keys: &open.keys })
        })
        .await;
    }

    /// Reports that the transaction has not committed, and releases its locks.
    pub(super) async fn abort(&self, open: &mut OpenTxn<F>, abort: Abort) {
        self.report(open, Outcome::Aborted(abort));
        self.release(open).await;
    }

    /// ABORT: releases every lock, of requests still under way too.
    pub(super) async fn release(&self, open: &mut OpenTxn<F>) {
        let _phase = self.fabric.phase("ABORT");
        OwnInserts::of(&self.node).give_up(&self.fabric, &open.txn);
        self.tell_primaries(open, |open, PrimaryCall { shard, fenced, .. }| {
            let message = AbortLocks { txn: &open.txn, keys: &open.keys };
            match fenced {
                RequestId::NONE => self.demand(shard, &message),
                fenced => self.fabric.call_superseding(self.primary_nic(shard), &message, fenced),
            }
        })
        .await;
    }

    /// Sends each primary that may hold locks its write-set keys, once for each request that must
    /// be fenced, and waits until it has answered. One that the view has removed has no locks to
    /// release, and nobody reads there what is not installed. Who leads its shard since learns from
    /// DECIDED what it needs to.
    async fn tell_primaries(
        &self,
        open: &mut OpenTxn<F>,
        send: impl Fn(&OpenTxn<F>, PrimaryCall) -> F::Completion,
    ) {
        let mut last = None;
        while let Some(shard) = open.locks.after(last) {
            open.select(shard, |entry| entry.write);
            if self.has_lost_locks(open, shard) {
                self.node.did(Without::Primary);
                last = Some(shard);
                continue;
            }
            for number in 0..open.locks.to_fence(shard).len().max(1) {
                let fenced = open.locks.to_fence(shard).get(number);
                let fenced = fenced.copied().unwrap_or(RequestId::NONE);
                let call = PrimaryCall { fenced, ..PrimaryCall::to(shard) };
                let reply = send(open, call);
                open.calls.push(call, reply);
            }
            last = Some(shard);
        }
        while let Some((call, mut reply)) = open.calls.next().await {
            let shard = call.shard;
            while let Err(error) = reply {
                if self.node.is_lost(shard) || self.has_lost_locks(open, shard) {
                    self.node.did(Without::Primary);
                    break;
                }
                match error {
                    FabricError::NoResources => self.wait_for_slot().await,
                    // That life is over, as the next view says.
                    FabricError::Unreachable => self.wait_for_view().await,
                    error => panic!("a primary refused to end a transaction: {error}"),
                }
                open.select(shard, |entry| entry.write);
                reply = send(open, call).await;
            }
        }
        open.locks.clear();
    }

    /// Have the locks that a transaction had in `shard` gone with an earlier primary of it?
    fn has_lost_locks(&self, open: &OpenTxn<F>, shard: ShardId) -> bool {
        open.began.is_some_and(|began| self.fabric.view().led_since(shard) > began)
    }

    /// Tells the host how the transaction ended, unless it has been told already.
    pub(in crate::xenic) fn report(&self, open: &mut OpenTxn<F>, outcome: Outcome) {
        if std::mem::replace(&mut open.reported, true) {
            return;
        }
        if outcome == Outcome::Committed {
            self.node.took(open.path);
        }
        let shipped = open.txn.ship && !matches!(outcome, Outcome::Aborted(_));
        let shipped = shipped.then_some(&open.txn);
        self.fabric.reply(open.host, &HostReply::Ended { outcome, shipped });
    }

    pub(super) async fn wait_for_slot(&self) {
        self.fabric.sleep_until(self.fabric.now() + SLOT_WAIT).await;
    }

    /// A node's life is over, and no view has said so yet.
    pub(super) async fn wait_for_view(&self) {
        self.fabric.sleep_until(self.fabric.now() + VIEW_WAIT).await;
    }

    /// The NIC engine that works for this one at the primary of `shard`.
    pub(super) fn primary_nic(&self, shard: ShardId) -> EngineId {
        let view = self.fabric.view();
        view.nic_of(view.primary(shard), self.fabric.here().core)
    }

    /// A request to the primary of `shard` that may go unanswered.
    pub(super) fn ask<M: Message>(&self, shard: ShardId, message: &M) -> F::Completion {
        let timeout = Timeout::After(self.node.config().timeout);
        self.fabric.call(self.primary_nic(shard), message, timeout)
    }

    /// A request to the primary of `shard` that must take effect.
    fn demand<M: Message>(&self, shard: ShardId, message: &M) -> F::Completion {
        self.fabric.call(self.primary_nic(shard), message, Timeout::Never)
    }
}

/// Why a backup does not take a LOG; `None`: it has it.
fn refusal(body: &[u8]) -> Option<Abort> {
    if body.is_empty() {
        return None;
    }
    parse_verdict(body).unwrap_or(Err(Abort::Fabric(FabricError::Malformed))).err()
}

/// Notes what a primary's answer says of the locks that it was asked for: all or none.
pub(super) fn note_locks<T>(
    locks: &mut HeldLocks,
    shard: ShardId,
    granted: Result<T, Abort>,
) -> Result<T, Abort> {
    match &granted {
        Ok(_) => locks.granted(shard),
        // It may have locked, or may still: its ABORT fences the request.
        Err(Abort::Fabric(FabricError::TimedOut { request })) => {
            locks.unanswered(shard, *request);
        }
        Err(_) => locks.denied(shard),
    }
    granted
}
