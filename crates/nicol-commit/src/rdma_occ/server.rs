//! The server's side of a host engine: what a primary and a backup do for a coordinator by RPC.

use std::cell::RefCell;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, ReplyTo, Service};
use nicol_core::ids::Key;
use nicol_core::txn::Abort;
use nicol_core::wire::Malformed;
use nicol_store::host_table::ExhaustedSpace;

use super::host::HostEngine;
use super::messages::{HELLO, LOCK, LOG_ACK, LogAck, RESERVE, ReserveRequest};
use super::node::Node;
use crate::messages::{
    ABORT, Ack, COMMIT, EXECUTE, ExecuteReply, Found, Keys, LOG, LockReads, Reads, VALIDATE,
    ValidateReply,
};
use crate::writes::{Change, Writes};

/// The server's side of one host engine.
pub(super) struct Server<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    engine: HostEngine<F>,
    scratch: RefCell<Scratch>,
}

/// Buffers of one request; nothing is awaited while they are in use.
#[derive(Debug, Default)]
struct Scratch {
    found: Vec<Found>,
    values: Vec<u8>,
}

impl<F: Fabric> Server<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>, engine: HostEngine<F>) -> Self {
        Self { fabric, node, engine, scratch: RefCell::default() }
    }

    fn serve(&self, delivery: Delivery<'_>, reply_to: ReplyTo) -> Result<(), Malformed> {
        let body = delivery.body;
        match delivery.kind {
            EXECUTE => self.execute(self.keys(body)?, reply_to),
            LOCK => self.lock(self.lock_reads(body)?, reply_to),
            VALIDATE => self.validate(self.reads(body)?, reply_to),
            RESERVE => self.reserve(self.reservations(body)?, reply_to),
            LOG => self.log(self.records(body)?, reply_to),
            LOG_ACK => self.log_ack(&LogAck::parse(body)?, reply_to),
            COMMIT => self.commit(self.writes(body)?, reply_to),
            ABORT => self.abort(self.keys(body)?, reply_to),
            HELLO => return self.engine.reach.serve_hello(delivery, reply_to),
            _ => return Err(Malformed { what: "an unknown kind of message" }),
        }
        Ok(())
    }

    /// EXECUTE: locks the write set or nothing, then reads every key. [FaSST; Xenic21 2.2.2]
    fn execute(&self, keys: Keys<&[u8]>, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: EXECUTE");
        let scratch = &mut *self.scratch.borrow_mut();
        scratch.found.clear();
        scratch.values.clear();
        match self.lock_and_read(&keys, scratch) {
            Ok(()) => {
                let found = scratch.found.iter().copied();
                let granted =
                    ExecuteReply::Granted(ExhaustedSpace::default(), found, &scratch.values);
                self.engine.rpc.answer(reply_to, &granted);
            }
            Err(abort) => {
                self.engine
                    .rpc
                    .answer(reply_to, &ExecuteReply::Denied::<std::iter::Empty<_>>(abort));
            }
        }
    }

    fn lock_and_read(&self, keys: &Keys<&[u8]>, scratch: &mut Scratch) -> Result<(), Abort> {
        self.engine.owner.lock_all(keys.written(), keys.txn)?;
        for access in keys.iter() {
            match self.engine.owner.read(access.key, access.write, &mut scratch.values) {
                Ok(found) => scratch.found.push(found),
                Err(abort) => {
                    keys.written().for_each(|key| self.engine.owner.unlock(key, keys.txn));
                    return Err(abort);
                }
            }
        }
        Ok(())
    }

    /// LOCK: every key at the version read, or none.
    fn lock(&self, LockReads { txn, reads }: LockReads<&[u8]>, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: LOCK");
        let mut verdict = self.engine.owner.lock_all(reads.keys(), txn);
        if verdict.is_ok() {
            verdict = reads.iter().try_for_each(|read| self.engine.owner.check_locked(txn, read));
            if verdict.is_err() {
                reads.keys().for_each(|key| self.engine.owner.unlock(key, txn));
            }
        }
        self.engine.rpc.answer(reply_to, &ValidateReply(verdict));
    }

    /// VALIDATE: versions unchanged and nothing locked.
    fn validate(&self, reads: Reads<&[u8]>, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: VALIDATE");
        let verdict = reads.iter().try_for_each(|read| self.engine.owner.check(read));
        self.engine.rpc.answer(reply_to, &ValidateReply(verdict));
    }

    /// RESERVE: for every value or, once the transaction gives its locks back, for none. One that
    /// comes behind its transaction's ABORT finds no lock, and takes nothing.
    fn reserve(&self, request: ReserveRequest<&[u8]>, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: RESERVE");
        let txn = request.txn;
        let verdict =
            request.iter().try_for_each(|(key, len)| self.engine.owner.reserve(key, txn, len));
        self.engine.rpc.answer(reply_to, &ValidateReply(verdict));
    }

    /// LOG: appended to this engine's log; acknowledged once it is there.
    fn log(&self, writes: Writes<&[u8]>, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: LOG");
        if self.engine.log.try_append(writes.body()) {
            return self.engine.rpc.answer(reply_to, &Ack);
        }
        let writes = writes.keep(&self.fabric);
        let (log, rpc) = (self.engine.log.clone(), self.engine.rpc.clone());
        let (place, waits) = (log.queue(), self.engine.acknowledged.wait_for_space());
        self.fabric.spawn(async move {
            log.append_in_line(place, writes.body()).await;
            drop(waits);
            rpc.answer(reply_to, &Ack);
        });
    }

    /// LOG_ACK: the transaction's records may be truncated. AMB-44
    fn log_ack(&self, ack: &LogAck, reply_to: ReplyTo) {
        self.engine.acknowledged.acknowledge(ack.txn, ack.oldest);
        self.engine.rpc.answer(reply_to, &Ack);
    }

    /// COMMIT: installed and unlocked.
    fn commit(&self, writes: Writes<&[u8]>, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: COMMIT");
        for (key, version, change) in writes.iter() {
            match change {
                Change::Put(value) | Change::Insert(value) => {
                    self.engine.owner.install(key, writes.txn, version, Some(value))
                }
                Change::Delete => self.engine.owner.install(key, writes.txn, version, None),
                Change::UnlockOnly => self.engine.owner.unlock(key, writes.txn),
            }
        }
        self.engine.rpc.answer(reply_to, &Ack);
    }

    /// ABORT: releases what the transaction holds here.
    fn abort(&self, keys: Keys<&[u8]>, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: ABORT");
        keys.iter().for_each(|access| self.engine.owner.unlock(access.key, keys.txn));
        self.engine.rpc.answer(reply_to, &Ack);
    }

    fn keys<'a>(&self, body: &'a [u8]) -> Result<Keys<&'a [u8]>, Malformed> {
        let keys = Keys::parse(body)?;
        self.refuse_foreign(keys.iter().map(|access| access.key))?;
        Ok(keys)
    }

    fn lock_reads<'a>(&self, body: &'a [u8]) -> Result<LockReads<&'a [u8]>, Malformed> {
        let locks = LockReads::parse(body)?;
        self.refuse_foreign(locks.reads.keys())?;
        Ok(locks)
    }

    fn reads<'a>(&self, body: &'a [u8]) -> Result<Reads<&'a [u8]>, Malformed> {
        let reads = Reads::parse(body)?;
        self.refuse_foreign(reads.keys())?;
        Ok(reads)
    }

    fn reservations<'a>(&self, body: &'a [u8]) -> Result<ReserveRequest<&'a [u8]>, Malformed> {
        let request = ReserveRequest::parse(body)?;
        self.refuse_foreign(request.iter().map(|(key, _)| key))?;
        Ok(request)
    }

    fn records<'a>(&self, body: &'a [u8]) -> Result<Writes<&'a [u8]>, Malformed> {
        let writes = Writes::parse(body)?;
        match self.node.backup(writes.shard) {
            Some(_) => Ok(writes),
            None => Err(Malformed { what: "a LOG for a shard not backed up here" }),
        }
    }

    fn writes<'a>(&self, body: &'a [u8]) -> Result<Writes<&'a [u8]>, Malformed> {
        let writes = Writes::parse(body)?;
        self.refuse_foreign(writes.keys())?;
        Ok(writes)
    }

    fn refuse_foreign(&self, mut keys: impl Iterator<Item = Key>) -> Result<(), Malformed> {
        if keys.any(|key| !self.node.is_primary_of(key)) {
            return Err(Malformed { what: "a key of another shard" });
        }
        Ok(())
    }
}

impl<F: Fabric> Service for Server<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        match delivery.reply_to {
            Some(reply_to) => self.serve(delivery, reply_to),
            None => Err(Malformed { what: "a request that wants no reply" }),
        }
    }
}
