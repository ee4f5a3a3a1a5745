//! The server's NIC engine: what a primary and a backup do for a coordinator. [Xenic21 4.2: D]
//!
//! A request is parsed here, once, where it arrives. The step that has its name serves it: there
//! and then if it waits for nothing, else in a task of its own (decision 0028).

mod copying;
mod log_writer;
pub(super) mod lookup;
mod own_keys;
mod recovery;
mod remote_execution;
mod split_requests;

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::exec::at_once;
use nicol_core::fabric::{Delivery, Fabric, FabricError, ReplyTo, Work};
use nicol_core::ids::{Epoch, Key, TxnId};
use nicol_core::txn::{Abort, Procedures};
use nicol_core::wire::Malformed;
use nicol_kit::lock_all;

use super::messages::ship::parse_ship_outcome;
use super::messages::{
    COPIED, COPY, DRAIN, FENCE, INSTALL, LOCK, READ, REPLICATE, REPORT, RESOLVE, SHIP, SHIP_OUTCOME,
};
use super::node::{Node, OwnInserts};
use super::open_txn::OpenTxns;
use crate::decided::{decisions_of, parse_decided};
use crate::log::RecordKind;
use crate::messages::{
    ABORT, Ack, COMMIT, DECIDED, EXECUTE, ExecuteReply, Keys, LOG, LockReads, Reads, VALIDATE,
    ValidateReply,
};
use crate::survivor::Survivor;
use crate::writes::{Change, Writes};
use copying::Copying;
pub(super) use copying::declare_if_complete;
use log_writer::{LogWriter, Position};
pub(super) use own_keys::{OwnKeys, ReadAtOnce};
use remote_execution::ShippedTxns;

/// A request that was parsed, and why this node does not serve its keys yet.
type Asked<T> = Result<(T, Result<(), Abort>), Malformed>;

/// The server's side of one NIC engine.
pub(super) struct NicServer<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    log: LogWriter<F>,
    own: Rc<OwnKeys<F>>,
    shipped: Rc<ShippedTxns<F>>,
    copying: Rc<Copying<F>>,
}

impl<F: Fabric> NicServer<F> {
    pub(super) fn new(
        fabric: F,
        node: Arc<Node>,
        procedures: Procedures,
        txns: Rc<OpenTxns<F>>,
    ) -> Self {
        let memory = node.log(fabric.here().core).clone();
        let log = LogWriter::new(fabric.clone(), memory);
        let own = Rc::new(OwnKeys::new(fabric.clone(), node.clone()));
        let copying = Copying::new(fabric.clone(), node.clone(), txns.clone());
        let shipped = ShippedTxns::new(fabric.clone(), node.clone(), procedures, txns, own.clone());
        Self { fabric, node, log, own, shipped: Rc::new(shipped), copying }
    }

    /// The node that it serves.
    pub(super) fn node(&self) -> &Node {
        &self.node
    }

    /// The keys of this node's shard.
    pub(super) fn own(&self) -> &Rc<OwnKeys<F>> {
        &self.own
    }

    /// Takes a request of another NIC, or of this one's coordinator.
    pub(super) fn deliver(self: &Rc<Self>, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Some(reply_to) = delivery.reply_to else {
            return Err(Malformed { what: "a request that wants no reply" });
        };
        let body = delivery.body;
        match delivery.kind {
            EXECUTE | READ => self.take_execute(body, reply_to),
            LOCK => {
                let lock = LockReads::parse(body)?;
                self.node.begun().expect(lock.reads.began)?;
                if let Err(abort) = self.node.expect_served(lock.reads.keys())? {
                    self.fabric.reply(reply_to, &ValidateReply(Err(abort)));
                    return Ok(());
                }
                let (lock, this) = (lock.keep(&self.fabric), self.clone());
                self.fabric.spawn(async move { this.lock(lock, reply_to).await });
                Ok(())
            }
            VALIDATE => self.take_validate(body, reply_to),
            LOG => self.take_log(body, reply_to),
            COMMIT => self.take_commit(body, reply_to),
            ABORT => {
                let (keys, served) = self.keys(body)?;
                if served.is_err() {
                    // Nothing is locked there yet that a coordinator may release.
                    self.fabric.reply(reply_to, &Ack);
                    return Ok(());
                }
                let (keys, this) = (keys.keep(&self.fabric), self.clone());
                // A task, too, so that it runs behind an EXECUTE that was delivered before it.
                self.fabric.spawn(async move { this.abort(keys, reply_to) });
                Ok(())
            }
            DECIDED => {
                parse_decided(body)?;
                let (body, this) = (self.fabric.keep(body), self.clone());
                self.fabric.spawn(async move { this.note_decided(body.as_ref(), reply_to).await });
                Ok(())
            }
            FENCE | REPORT | REPLICATE | INSTALL | RESOLVE => {
                self.take_recovery(delivery.kind, body, reply_to)
            }
            DRAIN | COPY | COPIED => self.copying.take(delivery.kind, body, reply_to),
            SHIP => self.shipped.take(body, reply_to),
            SHIP_OUTCOME => {
                self.shipped.tell_outcome(parse_ship_outcome(body)?, reply_to);
                Ok(())
            }
            _ => Err(Malformed { what: "an unknown kind of message" }),
        }
    }

    fn take_execute(self: &Rc<Self>, body: &[u8], reply_to: ReplyTo) -> Result<(), Malformed> {
        let (keys, served) = self.keys(body)?;
        self.node.begun().expect(keys.began)?;
        if let Err(abort) = served {
            self.deny(reply_to, abort);
        } else if self.own.are_read_at_once(keys.iter().map(|access| access.key)) {
            at_once(self.execute(keys, reply_to));
        } else {
            let (keys, this) = (keys.keep(&self.fabric), self.clone());
            self.fabric.spawn(async move { this.execute(keys, reply_to).await });
        }
        Ok(())
    }

    fn take_validate(self: &Rc<Self>, body: &[u8], reply_to: ReplyTo) -> Result<(), Malformed> {
        let (reads, served) = self.reads(body)?;
        if let Err(abort) = served {
            self.fabric.reply(reply_to, &ValidateReply(Err(abort)));
        } else if self.own.are_read_at_once(reads.keys()) {
            at_once(self.validate(reads, reply_to));
        } else {
            let (reads, this) = (reads.keep(&self.fabric), self.clone());
            self.fabric.spawn(async move { this.validate(reads, reply_to).await });
        }
        Ok(())
    }

    fn take_log(self: &Rc<Self>, body: &[u8], reply_to: ReplyTo) -> Result<(), Malformed> {
        let writes = Writes::parse(body)?;
        self.node.begun().expect(writes.began)?;
        if !self.node.logs(writes.shard) {
            return Err(Malformed { what: "a LOG for a shard not logged here" });
        }
        if let Err(abort) = self.admits_log(&writes) {
            self.refuse_log(abort, reply_to);
        } else if self.logs_at_once(body) {
            let (_, landing) = self.log.append_now(RecordKind::Log, body);
            self.acknowledge_log(at_once(landing), reply_to);
        } else {
            let (writes, this) = (writes.keep(&self.fabric), self.clone());
            self.fabric.spawn(async move { this.log(writes, reply_to).await });
        }
        Ok(())
    }

    fn take_commit(self: &Rc<Self>, body: &[u8], reply_to: ReplyTo) -> Result<(), Malformed> {
        let (writes, served) = self.writes(body)?;
        if served.is_err() {
            // An earlier life has locked them, and recovery decides: its coordinator does not know
            // yet that this life is over. (decision 0105)
            self.fabric.refuse(reply_to, FabricError::Unreachable);
            return Ok(());
        }
        if self.logs_at_once(body) {
            self.commit_at_once(&writes, reply_to);
        } else {
            let (writes, this) = (writes.keep(&self.fabric), self.clone());
            self.fabric.spawn(async move { this.commit(writes, reply_to).await });
        }
        Ok(())
    }

    /// Is a record with this body durable in the log without waiting?
    fn logs_at_once(&self, body: &[u8]) -> bool {
        self.fabric.persists_at_once() && self.log.appends_now(body)
    }

    /// Takes a log ack of this node's host: it frees log space and unpins. [Xenic21 4.2 step 7]
    pub(super) fn take_log_ack(&self, applied: u64) {
        self.log.acknowledge(applied, |key| self.node.unpin(key));
    }

    /// Parses an EXECUTE, READ or ABORT of this node's keys, and says whether these are served.
    pub(super) fn keys<'a>(&self, body: &'a [u8]) -> Asked<Keys<&'a [u8]>> {
        let keys = Keys::parse(body)?;
        let served = self.node.expect_served(keys.iter().map(|access| access.key))?;
        Ok((keys, served))
    }

    /// Parses a VALIDATE of this node's keys, and says whether these are served.
    pub(super) fn reads<'a>(&self, body: &'a [u8]) -> Asked<Reads<&'a [u8]>> {
        let reads = Reads::parse(body)?;
        self.node.begun().expect(reads.began)?;
        let served = self.node.expect_served(reads.keys())?;
        Ok((reads, served))
    }

    /// Parses a COMMIT of this node's keys, and says whether these are served. Who sends one has
    /// locked them here: in a first life they are.
    pub(super) fn writes<'a>(&self, body: &'a [u8]) -> Asked<Writes<&'a [u8]>> {
        let writes = Writes::parse(body)?;
        self.node.begun().expect(writes.began)?;
        let served = self.node.expect_served(writes.keys())?;
        if served.is_err() && self.node.lives().is_first() {
            return Err(Malformed { what: "a COMMIT of a shard that is not served" });
        }
        Ok((writes, served))
    }

    /// EXECUTE: locks the write set or nothing, then reads every key. [Xenic21 4.2 step 2]
    pub(super) async fn execute(&self, keys: Keys<impl AsRef<[u8]>>, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: EXECUTE");
        // [Xenic21 4.2 step 2] "If any key exists and is locked, the NIC returns an abort."
        let admits = || {
            let named = keys.iter().map(|access| access.key);
            self.admits(keys.txn, keys.began, named)
        };
        let admitted = admits();
        if let Err(abort) = admitted.and_then(|()| self.lock_and_check(&keys)) {
            return self.deny(reply_to, abort);
        }
        // [Xenic21 4.2 step 2] Values and versions, from the index or by DMA.
        let mut found = self.own.lookups().batch();
        let read =
            self.own.lookups().read_all(keys.iter().map(|access| access.key), &mut found).await;
        match read.map(|()| admits()) {
            Ok(Err(abort)) => {
                self.unlock_all(&keys);
                self.deny(reply_to, abort);
            }
            Ok(Ok(())) => {
                let exhausted = self.node.exhausted_space();
                let granted = ExecuteReply::Granted(exhausted, found.iter(), &found.values);
                self.fabric.reply(reply_to, &granted);
            }
            Err(error) => {
                self.unlock_all(&keys);
                self.fabric.refuse(reply_to, error);
            }
        }
        self.own.lookups().give_back(found);
    }

    /// Errors: a later view has overruled what a transaction asks of these keys, which are of one
    /// shard. A wait may have brought the view: what was admitted before it is asked again behind
    /// it.
    fn admits(
        &self,
        txn: TxnId,
        began: Option<Epoch>,
        keys: impl Iterator<Item = Key>,
    ) -> Result<(), Abort> {
        let shard = keys.take(1).map(|key| self.node.shard_of(key));
        self.node.begun().check(self.fabric.view(), txn, began, shard)
    }

    /// Errors: a later view has overruled a LOG.
    fn admits_log(&self, writes: &Writes<impl AsRef<[u8]>>) -> Result<(), Abort> {
        let Writes { txn, began, shard, .. } = *writes;
        self.node.begun().check(self.fabric.view(), txn, began, [shard])
    }

    /// Tells a coordinator that its LOG is not taken: a living one takes the others back.
    fn refuse_log(&self, abort: Abort, reply_to: ReplyTo) {
        match abort {
            Abort::Fabric(error) => self.fabric.refuse(reply_to, error),
            abort => self.fabric.reply(reply_to, &ValidateReply(Err(abort))),
        }
    }

    fn deny(&self, reply_to: ReplyTo, abort: Abort) {
        self.fabric.reply(reply_to, &ExecuteReply::Denied::<std::iter::Empty<_>>(abort));
    }

    /// Locks the write set, all or none, and checks that the other keys are not locked by others.
    fn lock_and_check(&self, keys: &Keys<impl AsRef<[u8]>>) -> Result<(), Abort> {
        let lock = |key| {
            self.fabric.work(Work::IndexLookup);
            self.node.lock(key, keys.txn)
        };
        let unlock = |key| {
            self.node.unlock(key, keys.txn);
        };
        lock_all(keys.written(), lock, unlock)?;
        for access in keys.iter().filter(|access| !access.write) {
            self.fabric.work(Work::IndexLookup);
            let key = access.key;
            if let Some(holder) = self.node.holder(key).filter(|&holder| holder != keys.txn) {
                self.unlock_all(keys);
                return Err(self.node.conflict(key, holder, Abort::LockConflict { key }));
            }
        }
        Ok(())
    }

    /// Releases the write set.
    pub(super) fn unlock_all(&self, keys: &Keys<impl AsRef<[u8]>>) {
        for key in keys.written() {
            self.fabric.work(Work::IndexLookup);
            self.node.unlock(key, keys.txn);
        }
    }

    /// VALIDATE: versions unchanged and nothing locked. [Xenic21 4.2 step 4]
    async fn validate(&self, reads: Reads<impl AsRef<[u8]>>, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: VALIDATE");
        // Locks before versions: a writer that the reader has seen at another primary holds its
        // keys here, and may install and unlock them while the versions of others are looked up.
        let mut locked = self.first_locked(&reads);
        let mut found = self.own.lookups().batch();
        let read = self.own.lookups().read_all(reads.keys(), &mut found).await;
        // [Xenic21 4.2 step 4] "If the version numbers match and no keys are locked": commit.
        let stale = reads.iter().zip(found.iter()).find(|(read, now)| !now.is_as_read(read));
        let stale = stale.map(|(read, _)| Abort::Stale { key: read.key });
        self.own.lookups().give_back(found);
        if !self.fabric.transfers_at_once() {
            // One that has locked since comes after the reader, but is about to make it stale.
            locked = locked.or_else(|| self.first_locked(&reads));
        }
        let conflict =
            |(key, holder)| self.node.conflict(key, holder, Abort::ValidateLocked { key });
        let shard = reads.keys().take(1).map(|key| self.node.shard_of(key));
        let overruled = self.node.begun().check_shards(reads.began, shard).err();
        match (read, stale.or(locked.map(conflict)).or(overruled)) {
            (Err(error), _) => self.fabric.refuse(reply_to, error),
            (Ok(()), None) => self.fabric.reply(reply_to, &ValidateReply(Ok(()))),
            (Ok(()), Some(abort)) => self.fabric.reply(reply_to, &ValidateReply(Err(abort))),
        }
    }

    /// The first key that a transaction holds, and the transaction.
    fn first_locked(&self, reads: &Reads<impl AsRef<[u8]>>) -> Option<(Key, TxnId)> {
        reads.keys().find_map(|key| Some((key, self.node.holder(key)?)))
    }

    /// LOG: appended to the host log; acknowledged once it is durable there. [Xenic21 4.2 step 5]
    async fn log(&self, writes: Writes<impl AsRef<[u8]>>, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: LOG");
        match self.append_log(&writes).await {
            Ok(landed) => self.acknowledge_log(landed, reply_to),
            Err(abort) => self.refuse_log(abort, reply_to),
        }
    }

    /// Appends a LOG; returns when it has landed, or that it cannot.
    ///
    /// Errors: it was overruled while it waited, or fits into no log.
    pub(super) async fn append_log(
        &self,
        writes: &Writes<impl AsRef<[u8]>>,
    ) -> Result<Result<F::Payload, FabricError>, Abort> {
        // [Xenic21 4.2 step 5] "Appending it to a hugepage of host memory via DMA write."
        let admits = || self.admits_log(writes).is_ok();
        let landing = match self.log.append(RecordKind::Log, writes.body(), admits).await {
            Ok((_, landing)) => landing,
            Err(error) => {
                return Err(self.admits_log(writes).err().unwrap_or(Abort::Fabric(error)));
            }
        };
        let landed = landing.await;
        self.admits_log(writes)?;
        Ok(landed)
    }

    /// DECIDED: goes behind the LOGs that it is about, into the same log. (decision 0101)
    async fn note_decided(&self, body: &[u8], reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: DECIDED");
        // Of a coordinator that is lost, nobody else tells.
        decisions_of(body).for_each(|decision| self.shipped.forget(decision.txn));
        let landed = match self.log.append(RecordKind::Decisions, body, || true).await {
            Ok((_, landing)) => self.settle_inherited(decisions_of(body)).await.map(|()| landing),
            Err(error) => Err(error),
        };
        match landed {
            Ok(landing) => self.acknowledge_log(landing.await, reply_to),
            Err(error) => self.fabric.refuse(reply_to, error),
        }
    }

    /// Acknowledges a LOG whose record has landed.
    fn acknowledge_log(&self, landed: Result<F::Payload, FabricError>, reply_to: ReplyTo) {
        // [Xenic21 4.2 step 5] "The NIC responds after the DMA completes": the record is durable
        // then, where host memory is battery-backed as in the paper. A node whose log device has
        // failed is as good as crashed: it never answers again, since a refusal would be asked
        // again and could not be kept.
        if landed.is_ok() {
            self.fabric.reply(reply_to, &Ack);
        }
    }

    /// COMMIT: logged, installed and pinned; then unlocked, and acknowledged once it is durable.
    /// [Xenic21 4.2 step 6]
    pub(super) async fn commit(&self, writes: Writes<impl AsRef<[u8]>>, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: COMMIT");
        if writes.installs().next().is_some() {
            // [Xenic21 4.2 step 6] "Appends the COMMIT request to the host-memory log."
            // While it waited for space its coordinator may have been lost, and a recovery may have
            // done what it asks for.
            let admitted = || !self.node.recovery().has_closed(writes.txn);
            let (position, landing) =
                match self.log.append(RecordKind::Commit, writes.body(), admitted).await {
                    Ok(appended) => appended,
                    Err(error) => return self.fabric.refuse(reply_to, error),
                };
            self.install(&writes, position);
            let syncing = self.release_before_sync(&writes);
            // As in LOG: no answer from a node whose log device has failed.
            if landing.await.is_err() {
                return;
            }
            if syncing {
                self.node.syncing().end();
            }
        }
        self.end_commit(&writes, reply_to);
    }

    /// Releases the keys of a COMMIT that is installed, and not durable here yet, if no crash can
    /// undo it: the backups have its LOGs durable, and recovery takes the transaction by those.
    /// Returns whether it did. (decision 0058)
    ///
    /// A backup that a view has removed need not have a LOG: once a node is lost, nothing is
    /// released early.
    fn release_before_sync(&self, writes: &Writes<impl AsRef<[u8]>>) -> bool {
        let allowed = self.node.syncing().is_allowed() && !self.node.lost().are_any();
        let releases = allowed && !self.fabric.memory_is_durable();
        if releases {
            // DEVIATION [Xenic21 4.2 step 6]: the paper waits for the DMA, which makes the record
            // durable in battery-backed memory. Under a log device that takes one more sync, for
            // which every transaction on a hot key would wait.
            self.node.syncing().begin();
            self.unlock_written(writes);
        }
        releases
    }

    /// The same where the log has space and a record is durable as soon as it is written.
    fn commit_at_once(&self, writes: &Writes<&[u8]>, reply_to: ReplyTo) {
        if writes.installs().next().is_some() {
            let (position, landing) = self.log.append_now(RecordKind::Commit, writes.body());
            self.install(writes, position);
            if at_once(landing).is_err() {
                return;
            }
        }
        self.end_commit(writes, reply_to);
    }

    /// [Xenic21 4.2 step 6] The new values go to the index, and are pinned there.
    fn install(&self, writes: &Writes<impl AsRef<[u8]>>, position: Position) {
        for (key, version, change) in writes.iter() {
            let (Change::Put(_) | Change::Delete, Some(value)) = (change, change.installed())
            else {
                continue;
            };
            self.fabric.work(Work::IndexLookup);
            self.node.install(key, version, value);
            self.log.pin(position, key);
        }
        OwnInserts::of(&self.node).install(&self.fabric, writes.inserts());
    }

    /// Ends a COMMIT that is durable.
    fn end_commit(&self, writes: &Writes<impl AsRef<[u8]>>, reply_to: ReplyTo) {
        // [Xenic21 4.2 step 6] "Once the DMA has completed, the NIC releases the write-set locks."
        self.unlock_written(writes);
        self.shipped.forget(writes.txn);
        self.fabric.reply(reply_to, &Ack);
    }

    /// Releases the keys of a COMMIT, those included that are not written.
    pub(super) fn unlock_written(&self, writes: &Writes<impl AsRef<[u8]>>) {
        for (key, _, change) in writes.iter() {
            if !matches!(change, Change::Insert(_)) {
                self.fabric.work(Work::IndexLookup);
                self.node.unlock(key, writes.txn);
            }
        }
        OwnInserts::of(&self.node).release(&self.fabric, writes.inserts(), writes.txn);
    }

    /// ABORT: releases what the transaction holds here.
    fn abort(&self, keys: Keys<F::Payload>, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: ABORT");
        self.unlock_all(&keys);
        self.fabric.reply(reply_to, &Ack);
    }
}
