//! The coordinator's NIC engine: drives a transaction through its phases. [Xenic21 4.2]

use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError, Message, ReplyTo, RequestId, Timeout, Work};
use nicol_core::ids::{EngineId, NodeId, ShardId};
use nicol_core::txn::{Abort, Outcome, Txn, Verdict};
use nicol_core::units::Nanos;
use nicol_core::view::ShardSet;
use nicol_store::host_table::ExhaustedSpace;

use super::messages::HostReply;
use super::messages::split_requests::Read;
use super::nic::{Nic, OpenTxn, Sent};
use super::{ROUNDS_MAX, Sabotage};
use crate::commit::messages::{
    AbortLocks, Commit, Execute, Log, Validate, parse_execute_reply, verdict,
};

/// Bytes that a write takes in a message besides its value.
const WRITE_FRAMING: usize = 20;
/// Bytes of a LOG's or COMMIT's own header.
const SET_FRAMING: usize = 12;
/// How long a request that found no free call slot waits before it tries again.
pub(super) const SLOT_WAIT: Nanos = Nanos::from_micros(5);

/// Proof that every key so far has been read and, with combined operations, every write-set key is
/// locked.
#[must_use = "release the locks or carry them to the next step"]
pub(super) struct Executed(());

impl Executed {
    /// The write set is locked now.
    pub(super) fn locked(self) -> Locked {
        Locked(())
    }
}

/// Proof that every key has been read and every write-set key is locked.
#[must_use = "release the locks or carry them to the next step"]
pub(super) struct Locked(());

/// Proof that nothing read has changed since; the transaction will commit.
#[must_use = "log it or release the locks"]
pub(super) struct Validated(pub(super) ());

/// Proof that every backup has logged every write: the transaction is committed.
#[must_use = "the primaries must install it"]
pub(super) struct Logged(());

/// Does the transaction write a value that there is no room for? Those of ordered tables stand
/// elsewhere. [`ExhaustedSpace`]
pub(super) fn refuses(exhausted: ExhaustedSpace, txn: &Txn) -> bool {
    !exhausted.is_none()
        && (0..txn.entries().len()).any(|index| {
            let put = txn.update(index).filter(|write| !write.key.is_ordered());
            let old = txn.value(index).map(<[u8]>::len);
            put.and_then(|write| write.value).is_some_and(|new| exhausted.refuses(old, new.len()))
        })
}

impl<F: Fabric> Nic<F> {
    /// Steps 2 and 3 of a transaction that its host has begun.
    pub(super) async fn begin(self: Rc<Self>, open: Box<OpenTxn<F>>, reply_to: ReplyTo) {
        self.fabric.work(Work::TxnSetup);
        // [Xenic21 4.2.3] The coordinator NIC determines the execution node: a primary's.
        if let Some(shard) = self.execution_shard(&open.txn) {
            return self.run_at(open, shard, reply_to).await;
        }
        self.run_here(open, reply_to).await;
    }

    /// The coordinator collects the state of every key. [Xenic21 4.2 (2)]
    pub(super) async fn run_here(&self, mut open: Box<OpenTxn<F>>, reply_to: ReplyTo) {
        match self.execute(&mut open).await {
            Err(abort) => self.end_aborted(open, abort, reply_to).await,
            Ok(executed) if open.txn.ship => self.run_shipped(open, executed, reply_to).await,
            Ok(executed) => self.hand_to_host(open, executed, reply_to),
        }
    }

    /// A further EXECUTE round of a multi-shot transaction. [Xenic21 4.2 (3)]
    pub(super) async fn execute_more(self: Rc<Self>, mut open: Box<OpenTxn<F>>, reply_to: ReplyTo) {
        match self.execute(&mut open).await {
            Err(abort) => self.end_aborted(open, abort, reply_to).await,
            Ok(executed) => self.hand_to_host(open, executed, reply_to),
        }
    }

    /// The host has computed the writes: commit.
    pub(super) async fn finish(self: Rc<Self>, open: Box<OpenTxn<F>>, reply_to: ReplyTo) {
        let complete = open.txn.entries().iter().all(|entry| entry.fetched);
        assert!(complete, "a transaction is parked only after EXECUTE fetched every key");
        self.commit(open, Executed(()), reply_to).await;
    }

    /// The host's logic refused.
    pub(super) async fn refuse(self: Rc<Self>, open: Box<OpenTxn<F>>, reply_to: ReplyTo) {
        self.end_aborted(open, Abort::Refused, reply_to).await;
    }

    fn hand_to_host(&self, open: Box<OpenTxn<F>>, executed: Executed, reply_to: ReplyTo) {
        // [Xenic21 4.2 step 3] The read values go to the host, which computes the writes. The
        // proof is given again when the host answers (see `finish`).
        let Executed(()) = executed;
        self.fabric
            .reply(reply_to, &HostReply::Executed { txn: &open.txn, fetched: &open.fetched });
        self.park(open);
    }

    /// [Xenic21 4.2.2] Execution logic on the NIC: repeated while it adds keys.
    pub(super) async fn run_shipped(
        &self,
        mut open: Box<OpenTxn<F>>,
        mut executed: Executed,
        reply_to: ReplyTo,
    ) {
        for _ in 0..ROUNDS_MAX {
            self.fabric.work(Work::Execute { keys: open.txn.entries().len() as u16 });
            match self.procedures.execute(&mut open.txn) {
                Verdict::Commit => return self.commit(open, executed, reply_to).await,
                Verdict::Refuse => return self.end_aborted(open, Abort::Refused, reply_to).await,
                Verdict::More => match self.execute(&mut open).await {
                    Ok(more) => executed = more,
                    Err(abort) => return self.end_aborted(open, abort, reply_to).await,
                },
            }
        }
        self.end_aborted(open, Abort::NoResources, reply_to).await;
    }

    pub(super) async fn wait_for_slot(&self) {
        self.fabric.sleep_until(self.fabric.now() + SLOT_WAIT).await;
    }

    async fn commit(&self, mut open: Box<OpenTxn<F>>, executed: Executed, reply_to: ReplyTo) {
        if self.node.config().sabotage == Sabotage::EarlyUnlock {
            let held = open.held.clone();
            self.release(&mut open).await;
            open.held = held;
        }
        let locked = match self.lock(&mut open, executed).await {
            Ok(locked) => locked,
            Err(abort) => return self.end_aborted(open, abort, reply_to).await,
        };
        // [Xenic21 4.2 step 4] VALIDATE what was read and is not locked.
        let validated = match self.validate(&mut open, locked).await {
            Ok(validated) => validated,
            Err(abort) => return self.end_aborted(open, abort, reply_to).await,
        };
        self.commit_validated(open, validated, reply_to).await;
    }

    /// Steps 5 and 6 of a transaction that will commit.
    pub(super) async fn commit_validated(
        &self,
        mut open: Box<OpenTxn<F>>,
        validated: Validated,
        reply_to: ReplyTo,
    ) {
        // [Xenic21 4.2 step 5] A read-only transaction is complete.
        if open.txn.updates().next().is_none() {
            self.reply_committed(&open, reply_to);
            self.release(&mut open).await;
            return self.recycle(open);
        }
        // [Xenic21 4.2 step 5] LOG to every backup of every shard written.
        let logged = match self.log_backups(&mut open, validated, reply_to).await {
            Ok(logged) => logged,
            Err(abort) => return self.end_aborted(open, abort, reply_to).await,
        };
        // [Xenic21 4.2 step 6] COMMIT at the primaries.
        self.commit_primaries(&mut open, logged).await;
        self.recycle(open);
    }

    /// Locks and reads the keys that have not been fetched yet, all shards at once.
    pub(super) async fn execute(&self, open: &mut OpenTxn<F>) -> Result<Executed, Abort> {
        let OpenTxn { txn, fetched, .. } = open;
        fetched.clear();
        fetched.extend((0..txn.entries().len()).filter(|&index| !txn.entries()[index].fetched));
        let held_before = open.held.clone();
        for shard in self.fabric.view().shard_ids() {
            self.select(open, shard, |entry| !entry.fetched);
            if open.keys.is_empty() {
                continue;
            }
            let timeout = Timeout::After(self.node.config().timeout);
            let node = self.fabric.view().primary(shard);
            let to = self.fabric.view().nic_of(node, self.fabric.here().core);
            let (txn, keys) = (&open.txn, &open.keys);
            let reply = if self.node.config().combined_ops {
                if keys.iter().any(|&index| txn.entries()[index].write) {
                    open.held.insert(shard);
                }
                self.fabric.call(to, &Execute { txn, keys }, timeout)
            } else {
                self.fabric.call(to, &Read { txn, keys }, timeout)
            };
            open.calls.push(Sent { to: node, shard, reply });
        }
        let mut failure = None;
        let mut calls = std::mem::take(&mut open.calls);
        for sent in calls.drain(..) {
            let reply = sent.reply.await;
            self.select(open, sent.shard, |entry| !entry.fetched);
            let granted = match reply {
                Ok(body) => parse_execute_reply(body.as_ref(), &mut open.txn, &open.keys)
                    .unwrap_or(Err(Abort::Fabric(FabricError::Malformed))),
                Err(error) => Err(Abort::Fabric(error)),
            };
            match granted {
                Ok(exhausted) => open.exhausted = open.exhausted.or(exhausted),
                Err(abort) => {
                    self.denied(open, sent.shard, &held_before, abort);
                    failure.get_or_insert(abort);
                }
            }
        }
        open.calls = calls;
        match failure {
            None => Ok(Executed(())),
            Some(abort) => Err(abort),
        }
    }

    /// Works out what a primary that did not grant its EXECUTE still holds.
    pub(super) fn denied(
        &self,
        open: &mut OpenTxn<F>,
        shard: ShardId,
        held_before: &ShardSet,
        abort: Abort,
    ) {
        match abort {
            // It may have locked, or may still: its ABORT fences the request.
            Abort::Fabric(FabricError::TimedOut { request }) if open.held.contains(shard) => {
                open.unanswered.push((shard, request));
            }
            // All or nothing: it holds what earlier rounds locked.
            _ if !held_before.contains(shard) => {
                open.held.remove(shard);
            }
            _ => {}
        }
    }

    async fn validate(&self, open: &mut OpenTxn<F>, locked: Locked) -> Result<Validated, Abort> {
        let Locked(()) = locked;
        let entries = open.txn.entries();
        // AMB-34: one key, read in one request, was current at that instant.
        let single_key = entries.len() == 1;
        let all_locked = entries.iter().all(|entry| entry.write);
        if single_key || all_locked || self.node.config().sabotage == Sabotage::NoValidate {
            return Ok(Validated(()));
        }
        for shard in self.fabric.view().shard_ids() {
            self.select(open, shard, |entry| !entry.write);
            if open.keys.is_empty() {
                continue;
            }
            let timeout = Timeout::After(self.node.config().timeout);
            let message = Validate { txn: &open.txn, keys: &open.keys };
            let node = self.fabric.view().primary(shard);
            let to = self.fabric.view().nic_of(node, self.fabric.here().core);
            let reply = self.fabric.call(to, &message, timeout);
            open.calls.push(Sent { to: node, shard, reply });
        }
        let mut failure = None;
        let mut calls = std::mem::take(&mut open.calls);
        for sent in calls.drain(..) {
            if let Err(abort) = verdict(sent.reply.await) {
                failure.get_or_insert(abort);
            }
        }
        open.calls = calls;
        match failure {
            None => Ok(Validated(())),
            Some(abort) => Err(abort),
        }
    }

    /// Logs at every backup. An abort is possible only before the first LOG is sent; a backup that
    /// does not answer in time makes the outcome unknown to the client, and is asked until it does.
    async fn log_backups(
        &self,
        open: &mut OpenTxn<F>,
        validated: Validated,
        reply_to: ReplyTo,
    ) -> Result<Logged, Abort> {
        let Validated(()) = validated;
        self.check_write_capacity(open)?;
        for shard in self.fabric.view().shard_ids() {
            self.select_updates(open, shard);
            if open.keys.is_empty() {
                continue;
            }
            for backup in self.fabric.view().backups(shard) {
                let timeout = Timeout::After(self.node.config().timeout);
                let reply = self.send_log(open, shard, backup, timeout, None);
                open.calls.push(Sent { to: backup, shard, reply });
            }
        }
        Ok(self.await_logs(open, reply_to, false).await)
    }

    /// Waits for every backup's ack and reports the outcome, unless it was said to be unknown.
    pub(super) async fn await_logs(
        &self,
        open: &mut OpenTxn<F>,
        reply_to: ReplyTo,
        mut unknown: bool,
    ) -> Logged {
        let mut calls = std::mem::take(&mut open.calls);
        for sent in calls.drain(..) {
            let (mut reply, mut superseded) = (sent.reply.await, None);
            while let Err(error) = reply {
                if !unknown {
                    unknown = true;
                    self.reply_ended(open, Outcome::Unknown, reply_to);
                }
                if let FabricError::TimedOut { request } = error {
                    superseded = Some(request);
                }
                self.wait_for_slot().await;
                self.select_updates(open, sent.shard);
                let again = self.send_log(open, sent.shard, sent.to, Timeout::Never, superseded);
                reply = again.await;
            }
        }
        open.calls = calls;
        if !unknown {
            // [Xenic21 4.2 step 6] Committed: the host learns it before the primaries do.
            self.reply_committed(open, reply_to);
        }
        Logged(())
    }

    pub(super) fn send_log(
        &self,
        open: &OpenTxn<F>,
        shard: ShardId,
        backup: NodeId,
        timeout: Timeout,
        superseded: Option<RequestId>,
    ) -> F::Completion {
        let message = Log { txn: &open.txn, shard, keys: &open.keys };
        let to = self.fabric.view().nic_of(backup, self.fabric.here().core);
        match superseded {
            Some(request) => self.fabric.call_superseding(to, &message, request),
            None => self.fabric.call(to, &message, timeout),
        }
    }

    /// A shard's write set must fit into a log record, and its values into the primary's memory, or
    /// the transaction cannot commit. A COMMIT names the keys that are locked and not updated as
    /// well.
    pub(super) fn check_write_capacity(&self, open: &OpenTxn<F>) -> Result<(), Abort> {
        if refuses(open.exhausted, &open.txn) {
            return Err(Abort::NoResources);
        }
        let entries = open.txn.entries().iter().enumerate();
        let bytes: usize = entries
            .filter(|(_, entry)| entry.write)
            .map(|(index, _)| open.txn.update(index).and_then(|write| write.value))
            .map(|value| WRITE_FRAMING + value.map_or(0, <[u8]>::len))
            .sum();
        if bytes + SET_FRAMING > self.node.log(self.fabric.here().core).body_max() {
            return Err(Abort::NoResources);
        }
        Ok(())
    }

    pub(super) async fn commit_primaries(&self, open: &mut OpenTxn<F>, logged: Logged) {
        let Logged(()) = logged;
        let held = std::mem::take(&mut open.held);
        self.tell_primaries(open, &held, |nic, open, shard| {
            nic.call_primary(shard, &Commit { txn: &open.txn, shard, keys: &open.keys })
        })
        .await;
    }

    /// Releases every lock, of requests still under way too.
    pub(super) async fn release(&self, open: &mut OpenTxn<F>) {
        let held = std::mem::take(&mut open.held);
        self.tell_primaries(open, &held, |nic, open, shard| {
            let message = AbortLocks { txn: &open.txn, keys: &open.keys };
            // Looked up, not taken: the message may find no slot and be sent again.
            match open.unanswered.iter().find(|&&(at, _)| at == shard) {
                Some(&(_, request)) => {
                    nic.fabric.call_superseding(nic.primary_nic(shard), &message, request)
                }
                None => nic.call_primary(shard, &message),
            }
        })
        .await;
        open.unanswered.clear();
    }

    /// The NIC engine that answers for `shard`.
    fn primary_nic(&self, shard: ShardId) -> EngineId {
        let view = self.fabric.view();
        view.nic_of(view.primary(shard), self.fabric.here().core)
    }

    fn call_primary<M: Message>(&self, shard: ShardId, message: &M) -> F::Completion {
        self.fabric.call(self.primary_nic(shard), message, Timeout::Never)
    }

    /// Sends the write-set keys of each of `shards` to its primary and waits for every answer.
    async fn tell_primaries(
        &self,
        open: &mut OpenTxn<F>,
        shards: &ShardSet,
        send: impl Fn(&Self, &mut OpenTxn<F>, ShardId) -> F::Completion,
    ) {
        for shard in shards.iter() {
            self.select(open, shard, |entry| entry.write);
            let reply = send(self, open, shard);
            open.calls.push(Sent { to: self.fabric.view().primary(shard), shard, reply });
        }
        let mut calls = std::mem::take(&mut open.calls);
        for sent in calls.drain(..) {
            let mut reply = sent.reply.await;
            while let Err(error) = reply {
                let no_slot = error == FabricError::NoResources;
                assert!(no_slot, "a primary refused to end a transaction: {error}");
                self.wait_for_slot().await;
                self.select(open, sent.shard, |entry| entry.write);
                reply = send(self, open, sent.shard).await;
            }
        }
        open.calls = calls;
    }

    pub(super) async fn end_aborted(
        &self,
        mut open: Box<OpenTxn<F>>,
        abort: Abort,
        reply_to: ReplyTo,
    ) {
        self.reply_ended(&open, Outcome::Aborted(abort), reply_to);
        if self.node.config().sabotage == Sabotage::AbortInstalls
            && matches!(abort, Abort::Stale { .. } | Abort::ValidateLocked { .. })
        {
            self.commit_primaries(&mut open, Logged(())).await;
        }
        self.release(&mut open).await;
        self.recycle(open);
    }

    pub(super) fn reply_committed(&self, open: &OpenTxn<F>, reply_to: ReplyTo) {
        self.node.took(open.path);
        self.reply_ended(open, Outcome::Committed, reply_to);
    }

    pub(super) fn reply_ended(&self, open: &OpenTxn<F>, outcome: Outcome, reply_to: ReplyTo) {
        let shipped =
            (open.txn.ship && !matches!(outcome, Outcome::Aborted(_))).then_some(&open.txn);
        self.fabric.reply(reply_to, &HostReply::Ended { outcome, shipped });
    }

    /// Puts the indices of the keys of `shard` that `wanted` accepts into `open.keys`.
    pub(super) fn select(
        &self,
        open: &mut OpenTxn<F>,
        shard: ShardId,
        wanted: impl Fn(&nicol_core::txn::Entry) -> bool,
    ) {
        let OpenTxn { txn, keys, .. } = open;
        keys.clear();
        for (index, entry) in txn.entries().iter().enumerate() {
            if wanted(entry) && self.node.shard_of(entry.key) == shard {
                keys.push(index);
            }
        }
    }

    /// Puts the indices of the keys of `shard` that the transaction writes into `open.keys`.
    pub(super) fn select_updates(&self, open: &mut OpenTxn<F>, shard: ShardId) {
        let OpenTxn { txn, keys, .. } = open;
        keys.clear();
        for index in 0..txn.entries().len() {
            let written = txn.update(index).is_some();
            if written && self.node.shard_of(txn.entries()[index].key) == shard {
                keys.push(index);
            }
        }
    }
}
