//! Execution reads every key: in local memory, by one-sided READs (`reads`), or by one RPC to its
//! owner, which locks the write set as well.

use std::cell::RefCell;
use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::ids::{Key, ShardId};
use nicol_core::txn::{Abort, Entry, Txn};
use nicol_kit::AllGranted;

use super::context::Context;
use super::open_txn::{AccessRecord, Held, OpenTxn, ValidationSource, note_answer, shards_of};
use super::reads::{AllRead, Lookups};
use crate::make_scans;
use crate::messages::{Execute, parse_execute_reply};
use crate::rdma_occ::config::Execution;
use crate::survivor::Survivor;

/// Proof that every key was read, and that those are locked which are locked when they are read.
#[must_use = "lock what was written"]
pub(super) struct Executed(AllRead, AllGranted);

impl Executed {
    /// The proof that every owner that was asked to lock has locked.
    pub(super) fn granted(self) -> AllGranted {
        let Self(AllRead { .. }, granted) = self;
        granted
    }

    /// The same, and keys are locked besides.
    pub(super) fn and(self, locked: AllGranted) -> Self {
        let Self(read, granted) = self;
        Self(read, granted.and(locked))
    }
}

/// Execution of one host engine's transactions.
pub(super) struct Executions<F: Fabric> {
    context: Rc<Context<F>>,
    lookups: Lookups<F>,
    /// The value of one record; nothing is awaited while it is in use.
    values: RefCell<Vec<u8>>,
}

impl<F: Fabric> Executions<F> {
    pub(super) fn new(context: &Rc<Context<F>>) -> Self {
        let lookups = Lookups::new(context);
        Self { context: context.clone(), lookups, values: RefCell::default() }
    }

    /// Reads every key that has not been read yet, all nodes at once.
    pub(super) async fn execute(
        &self,
        txn: &mut Txn,
        open: &mut OpenTxn<F>,
    ) -> Result<Executed, Abort> {
        let _phase = self.context.fabric.phase("EXECUTE");
        self.context.node.check_served(txn, |_, entry| !entry.fetched)?;
        self.see_new(txn, open);
        // Other engines of this node change its memory, and so do others' NICs.
        let unread = |(entry, access): (&Entry, &AccessRecord)| !entry.fetched && access.here;
        let local = txn.local || txn.entries().iter().zip(&open.accesses).any(unread);
        if !open.caught_up && local {
            self.context.fabric.caught_up().await;
            open.caught_up = true;
        }
        self.read_here(txn, open)?;
        if txn.local {
            self.scan_here(txn)?;
            self.see_new(txn, open);
        }
        self.read_remote(txn, open).await
    }

    /// Begins with the keys that the transaction has got since.
    fn see_new(&self, txn: &Txn, open: &mut OpenTxn<F>) {
        for entry in &txn.entries()[open.accesses.len()..] {
            let shard = self.context.node.shard_of(entry.key);
            let node = self.context.primary(shard);
            let here = self.context.reach.is_here(node);
            let (source, held) = (ValidationSource::Owner, Held::No);
            open.accesses.push(AccessRecord { shard, node, here, source, held });
        }
    }

    /// Reads the keys of this node's shard in local memory; locks its write set, if owners do that
    /// when they read.
    fn read_here(&self, txn: &mut Txn, open: &mut OpenTxn<F>) -> Result<(), Abort> {
        let locks = self.context.node.config().execution == Execution::Rpc;
        for index in 0..txn.entries().len() {
            let entry = txn.entries()[index];
            let access = &mut open.accesses[index];
            if entry.fetched || !access.here {
                continue;
            }
            access.source = ValidationSource::Owner;
            if locks && entry.write && access.held == Held::No {
                self.context.owner.lock(entry.key, txn.id)?;
                access.held = Held::ByOwner;
            }
            let values = &mut *self.values.borrow_mut();
            values.clear();
            let found = self.context.owner.read(entry.key, access.held == Held::ByOwner, values)?;
            txn.fetched(index, found.version, found.value.map(|_| &**values));
        }
        Ok(())
    }

    /// Makes the scans that a local transaction waits for, each under its range's version. One with
    /// a key or a range elsewhere is refused.
    fn scan_here(&self, txn: &mut Txn) -> Result<(), Abort> {
        let keys = txn.entries().iter().map(|entry| entry.key);
        let ranges = txn.scans().iter().map(|scan| scan.range.first);
        if !keys.chain(ranges).all(|key| self.context.node.is_primary_of(key)) {
            return Err(Abort::Refused);
        }
        match make_scans(&self.context.fabric, &self.context.node.primary().replica.ordered, txn) {
            true => Ok(()),
            false => Err(Abort::NoResources),
        }
    }

    /// Reads the keys of other nodes' shards.
    async fn read_remote(&self, txn: &mut Txn, open: &mut OpenTxn<F>) -> Result<Executed, Abort> {
        self.meet_owners(txn, open).await?;
        self.send_executes(txn, open);
        for index in 0..txn.entries().len() {
            let entry = &txn.entries()[index];
            if !entry.fetched && !self.owner_reads(entry.key) {
                self.lookups.start(txn, open, index);
            }
        }
        let read = self.lookups.finish(txn, open).await;
        let granted = self.take_executes(txn, open).await;
        Ok(Executed(read?, granted?))
    }

    /// Asks for the handles of the nodes whose memory is READ.
    async fn meet_owners(&self, txn: &Txn, open: &mut OpenTxn<F>) -> Result<(), Abort> {
        let mut last = None;
        let is_read = |index: usize| {
            let entry = &txn.entries()[index];
            !entry.fetched && !self.owner_reads(entry.key)
        };
        while let Some(shard) = open.next_shard(last, |index, _| is_read(index)) {
            let handles = self.context.reach.handles_of(self.context.primary(shard)).await;
            handles.map_err(|error| self.context.node.failure(shard, error))?;
            last = Some(shard);
        }
        Ok(())
    }

    /// [FaSST] One RPC per primary locks its part of the write set and reads all its keys; where
    /// the others are READ, those of ordered tables, which only their owner can look up.
    fn send_executes(&self, txn: &Txn, open: &mut OpenTxn<F>) {
        let mut last = None;
        while let Some(shard) = open.next_shard(last, |index, _| self.is_asked(txn, index)) {
            for &index in &*open.keys {
                let access = &mut open.accesses[index];
                access.source = ValidationSource::Owner;
                if txn.entries()[index].write && access.held == Held::No {
                    access.held = Held::Asked;
                }
            }
            let reply = self
                .context
                .rpc
                .ask(self.context.primary(shard), &Execute { txn, began: None, keys: &open.keys });
            open.calls.push(shard, reply);
            last = Some(shard);
        }
    }

    async fn take_executes(
        &self,
        txn: &mut Txn,
        open: &mut OpenTxn<F>,
    ) -> Result<AllGranted, Abort> {
        let OpenTxn { calls, keys, accesses, unanswered, .. } = open;
        let take = |shard: ShardId, reply: Result<F::Payload, FabricError>| {
            keys.of(shard, shards_of(accesses, |index, _| self.is_asked(txn, index)));
            let granted =
                reply.map_err(|error| self.context.node.failure(shard, error)).and_then(|body| {
                    parse_execute_reply(body.as_ref(), txn, keys)
                        .unwrap_or(Err(Abort::Fabric(FabricError::Malformed)))
                        // Its table is asked by RESERVE, and names no exhausted space.
                        .map(|_no_shortage| ())
                });
            note_answer(accesses, unanswered, shard, granted)
        };
        calls.gather(take).await
    }

    /// True if the owner of the key at `index` is still to read it.
    fn is_asked(&self, txn: &Txn, index: usize) -> bool {
        let entry = &txn.entries()[index];
        !entry.fetched && self.owner_reads(entry.key)
    }

    fn owner_reads(&self, key: Key) -> bool {
        key.is_ordered() || self.context.node.config().execution == Execution::Rpc
    }
}
