//! The server's NIC engine: what a primary and a backup do for a coordinator. [Xenic21 4.2]

use std::rc::Rc;

use nicol_core::fabric::{Fabric, ReplyTo, Work};
use nicol_core::txn::Abort;
use nicol_core::units::Nanos;

use super::Sabotage;
use super::nic::Nic;
use crate::commit::log::RecordKind;
use crate::commit::messages::{Ack, ExecuteReply, Keys, Reads, ValidateReply, Writes};

impl<F: Fabric> Nic<F> {
    /// [Xenic21 4.2 step 2] EXECUTE: locks the write set or nothing, then reads every key.
    pub(super) async fn serve_execute(self: Rc<Self>, body: F::Payload, reply_to: ReplyTo) {
        let Ok(keys) = Keys::parse(body.as_ref()) else { return };
        if let Err(abort) = self.lock_and_check(&keys) {
            return self.deny(reply_to, abort);
        }
        let mut found = self.lookups.batch();
        let read = self.lookups.read_all(keys.iter().map(|access| access.key), &mut found).await;
        let capacity = keys.iter().zip(found.iter()).all(|(access, found)| {
            !access.write || found.value.is_some() || self.node.has_capacity()
        });
        match read {
            Ok(()) if capacity => {
                let exhausted = self.node.exhausted_space();
                let granted = ExecuteReply::Granted(exhausted, found.iter(), &found.values);
                self.fabric.reply(reply_to, &granted);
            }
            Ok(()) => {
                self.unlock_all(&keys);
                self.deny(reply_to, Abort::NoResources);
            }
            Err(error) => {
                self.unlock_all(&keys);
                self.fabric.refuse(reply_to, error);
            }
        }
        self.lookups.give_back(found);
    }

    fn deny(&self, reply_to: ReplyTo, abort: Abort) {
        self.fabric.reply(reply_to, &ExecuteReply::Denied::<std::iter::Empty<_>>(abort));
    }

    /// All or nothing, and no waiting: so there is no deadlock. [Xenic21 4.2 (2)]
    fn lock_and_check(&self, keys: &Keys<&[u8]>) -> Result<(), Abort> {
        let locks = self.node.config().sabotage != Sabotage::NoLocks;
        for (locked, access) in keys.iter().filter(|access| access.write && locks).enumerate() {
            self.fabric.work(Work::IndexLookup);
            if let Err(abort) = self.node.lock(access.key, keys.txn) {
                for access in keys.iter().filter(|access| access.write).take(locked) {
                    self.node.unlock(access.key, keys.txn);
                }
                return Err(abort);
            }
        }
        for access in keys.iter().filter(|access| !access.write) {
            self.fabric.work(Work::IndexLookup);
            if self.node.holder(access.key).is_some_and(|holder| holder != keys.txn) {
                self.unlock_all(keys);
                return Err(Abort::LockConflict { key: access.key });
            }
        }
        Ok(())
    }

    fn unlock_all(&self, keys: &Keys<&[u8]>) {
        for access in keys.iter().filter(|access| access.write) {
            self.fabric.work(Work::IndexLookup);
            self.node.unlock(access.key, keys.txn);
        }
    }

    /// [Xenic21 4.2 step 4] VALIDATE: versions unchanged and nothing locked.
    pub(super) async fn serve_validate(self: Rc<Self>, body: F::Payload, reply_to: ReplyTo) {
        let Ok(reads) = Reads::parse(body.as_ref()) else { return };
        let mut found = self.lookups.batch();
        let read = self.lookups.read_all(reads.iter().map(|read| read.key), &mut found).await;
        if let Err(error) = read {
            self.lookups.give_back(found);
            return self.fabric.refuse(reply_to, error);
        }
        let ignore_locks = self.node.config().sabotage == Sabotage::ValidateIgnoresLocks;
        let mut verdict = Ok(());
        for (read, now) in reads.iter().zip(found.iter()) {
            let key = read.key;
            if now.version != read.version || now.value.is_some() != read.present {
                verdict = Err(Abort::Stale { key });
                break;
            }
            // Checked after the read: a writer that locked since may have installed elsewhere.
            if !ignore_locks && self.node.holder(key).is_some() {
                verdict = Err(Abort::ValidateLocked { key });
                break;
            }
        }
        self.lookups.give_back(found);
        self.fabric.reply(reply_to, &ValidateReply(verdict));
    }

    /// [Xenic21 4.2 step 5] LOG: appended to the host log; acknowledged once it is durable there:
    /// when the DMA has landed, where host memory is battery-backed as in the paper.
    pub(super) async fn serve_log(self: Rc<Self>, body: F::Payload, reply_to: ReplyTo) {
        let landing = match self.log.append(RecordKind::Log, body.as_ref()).await {
            Ok((_, landing)) => landing,
            Err(error) => return self.fabric.refuse(reply_to, error),
        };
        // A node whose log device has failed is as good as crashed: it never answers again, since a
        // refusal would be asked again and could not be kept.
        if landing.await.is_ok() {
            self.fabric.reply(reply_to, &Ack);
        }
    }

    /// [Xenic21 4.2 step 6] COMMIT: logged, installed and pinned; then unlocked and acknowledged.
    pub(super) async fn serve_commit(self: Rc<Self>, body: F::Payload, reply_to: ReplyTo) {
        let Ok(writes) = Writes::parse(body.as_ref()) else { return };
        if self.node.config().sabotage == Sabotage::UnlockFirst {
            self.unlock_written(&writes);
            self.fabric.sleep_until(self.fabric.now() + Nanos::from_micros(3)).await;
        }
        if writes.installs().next().is_some() {
            let (position, landing) = match self.log.append(RecordKind::Commit, body.as_ref()).await
            {
                Ok(appended) => appended,
                Err(error) => return self.fabric.refuse(reply_to, error),
            };
            for (key, version, value) in writes.installs() {
                self.fabric.work(Work::IndexLookup);
                self.node.install(key, version, value);
                self.log.pin(position, key);
            }
            // As in LOG: no answer, and nobody may read what is not durable here.
            if landing.await.is_err() {
                return;
            }
        }
        self.unlock_written(&writes);
        self.forget_shipped(writes.txn);
        self.fabric.reply(reply_to, &Ack);
    }

    fn unlock_written(&self, writes: &Writes<&[u8]>) {
        for (key, ..) in writes.iter() {
            self.fabric.work(Work::IndexLookup);
            self.node.unlock(key, writes.txn);
        }
    }

    /// ABORT: releases what the transaction holds here.
    pub(super) fn serve_abort(&self, body: F::Payload, reply_to: ReplyTo) {
        let Ok(keys) = Keys::parse(body.as_ref()) else { return };
        self.unlock_all(&keys);
        self.fabric.reply(reply_to, &Ack);
    }
}
