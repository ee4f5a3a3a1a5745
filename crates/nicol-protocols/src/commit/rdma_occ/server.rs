//! The server's side of a host engine: what a primary and a backup do for a coordinator by RPC.

use std::rc::Rc;

use nicol_core::fabric::{Fabric, ReplyTo, Work};
use nicol_core::ids::{Key, TxnId, Version};
use nicol_core::txn::Abort;
use nicol_core::wire::Malformed;
use nicol_store::host_table::ExhaustedSpace;
use nicol_store::remote_table::Found as Looked;

use super::Sabotage;
use super::host::Host;
use crate::commit::messages::{
    Ack, Change, ExecuteReply, Found, Keys, LockReads, Reads, ValidateReply, Writes,
};
use crate::kit::lock_all;

/// Buffers of one request; nothing is awaited while they are in use.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    pub(super) found: Vec<Found>,
    pub(super) values: Vec<u8>,
}

impl<F: Fabric> Host<F> {
    /// EXECUTE: locks the write set or nothing, then reads every key. [FaSST; Xenic21 2.2.2]
    pub(super) fn serve_execute(&self, body: &[u8], reply_to: ReplyTo) -> Result<(), Malformed> {
        let keys = Keys::parse(body)?;
        self.refuse_foreign(keys.iter().map(|access| access.key))?;
        let scratch = &mut *self.scratch.borrow_mut();
        scratch.found.clear();
        scratch.values.clear();
        match self.lock_and_read(&keys, scratch) {
            Ok(()) => {
                let found = scratch.found.iter().copied();
                let granted =
                    ExecuteReply::Granted(ExhaustedSpace::default(), found, &scratch.values);
                self.answer(reply_to, &granted);
            }
            Err(abort) => {
                self.answer(reply_to, &ExecuteReply::Denied::<std::iter::Empty<_>>(abort));
            }
        }
        Ok(())
    }

    fn lock_and_read(&self, keys: &Keys<&[u8]>, scratch: &mut Scratch) -> Result<(), Abort> {
        if self.sabotage() != Sabotage::NoLocks {
            self.lock_all(keys.written(), keys.txn)?;
        }
        for access in keys.iter() {
            let found = self.read_own(access.key, access.write, &mut scratch.values);
            match found {
                Ok(found) => scratch.found.push(found),
                Err(abort) => {
                    keys.written().for_each(|key| self.unlock_own(key, keys.txn));
                    return Err(abort);
                }
            }
        }
        Ok(())
    }

    fn lock_all(&self, keys: impl Iterator<Item = Key> + Clone, txn: TxnId) -> Result<(), Abort> {
        lock_all(keys, |key| self.lock_own(key, txn), |key| self.unlock_own(key, txn))
    }

    pub(super) fn unlock_own(&self, key: Key, txn: TxnId) {
        self.fabric.work(Work::TableLookup);
        self.node.primary().unlock(key, txn);
    }

    /// Reads a key of this node's shard; its value is appended to `values`. `mine` says that the
    /// transaction has locked it.
    pub(super) fn read_own(
        &self,
        key: Key,
        mine: bool,
        values: &mut Vec<u8>,
    ) -> Result<Found, Abort> {
        if !mine {
            // Else it was looked up to be locked.
            self.fabric.work(Work::TableLookup);
        }
        let start = values.len() as u32;
        match self.node.primary().get(key, values) {
            Ok(Looked { version, present, locked }) if mine || !locked => {
                let value = present.then_some((start, values.len() as u32 - start));
                Ok(Found { version, value })
            }
            // Locked, or in the middle of a one-sided commit.
            Ok(_) | Err(_) => Err(Abort::LockConflict { key }),
        }
    }

    /// LOCK: every key at the version read, or none.
    pub(super) fn serve_lock(&self, body: &[u8], reply_to: ReplyTo) -> Result<(), Malformed> {
        let LockReads { txn, reads } = LockReads::parse(body)?;
        self.refuse_foreign(reads.keys())?;
        let mut verdict = self.lock_all(reads.keys(), txn);
        if verdict.is_ok() {
            verdict = reads
                .iter()
                .try_for_each(|read| self.check_locked(read.key, txn, read.version, read.present));
            if verdict.is_err() {
                reads.keys().for_each(|key| self.unlock_own(key, txn));
            }
        }
        self.answer(reply_to, &ValidateReply(verdict));
        Ok(())
    }

    /// VALIDATE: versions unchanged and nothing locked.
    pub(super) fn serve_validate(&self, body: &[u8], reply_to: ReplyTo) -> Result<(), Malformed> {
        let reads = Reads::parse(body)?;
        self.refuse_foreign(reads.keys())?;
        let verdict =
            reads.iter().try_for_each(|read| self.check_own(read.key, read.version, read.present));
        self.answer(reply_to, &ValidateReply(verdict));
        Ok(())
    }

    /// LOG: appended to this engine's log; acknowledged once it is there.
    pub(super) fn serve_log(
        self: Rc<Self>,
        body: &[u8],
        reply_to: ReplyTo,
    ) -> Result<(), Malformed> {
        if self.node.backup(Writes::parse(body)?.shard).is_none() {
            return Err(Malformed { what: "a LOG for a shard not backed up here" });
        }
        if self.log_own(body) {
            self.answer(reply_to, &Ack);
            return Ok(());
        }
        let body = self.fabric.keep(body);
        let fabric = self.fabric.clone();
        fabric.spawn(async move {
            self.log_own_in_time(body.as_ref()).await;
            self.answer(reply_to, &Ack);
        });
        Ok(())
    }

    /// COMMIT: installed and unlocked.
    pub(super) fn serve_commit(
        self: Rc<Self>,
        body: &[u8],
        reply_to: ReplyTo,
    ) -> Result<(), Malformed> {
        let writes = Writes::parse(body)?;
        self.refuse_foreign(writes.keys())?;
        if self.installs_unlocked() {
            self.commit_broken(body, reply_to);
            return Ok(());
        }
        for (key, version, change) in writes.iter() {
            match change {
                Change::Put(value) => self.install_own(key, writes.txn, version, Some(value)),
                Change::Delete => self.install_own(key, writes.txn, version, None),
                Change::UnlockOnly => self.unlock_own(key, writes.txn),
            }
        }
        self.answer(reply_to, &Ack);
        Ok(())
    }

    pub(super) fn install_own(&self, key: Key, txn: TxnId, version: Version, value: Option<&[u8]>) {
        self.fabric.work(Work::TableApply);
        self.node.primary().install(key, txn, version, value);
    }

    /// ABORT: releases what the transaction holds here.
    pub(super) fn serve_abort(&self, body: &[u8], reply_to: ReplyTo) -> Result<(), Malformed> {
        let keys = Keys::parse(body)?;
        self.refuse_foreign(keys.iter().map(|access| access.key))?;
        keys.iter().for_each(|access| self.unlock_own(access.key, keys.txn));
        self.answer(reply_to, &Ack);
        Ok(())
    }

    pub(super) fn refuse_foreign(
        &self,
        mut keys: impl Iterator<Item = Key>,
    ) -> Result<(), Malformed> {
        if keys.any(|key| !self.node.is_primary_of(key)) {
            return Err(Malformed { what: "a key of another shard" });
        }
        Ok(())
    }
}
