//! The coordinator: drives a transaction through its phases.

use std::rc::Rc;

use nicol_core::commit::CommitProtocol;
use nicol_core::fabric::{Fabric, FabricError, Work};
use nicol_core::ids::{Key, NodeId};
use nicol_core::txn::{Abort, Entry, Outcome, Txn, Verdict};

use super::host::{AccessRecord, Held, Host, Open, Sent, ValidationSource};
use super::{Execution, LockKeys, Locking, ROUNDS_MAX, Sabotage};
use crate::commit::messages::{Execute, parse_execute_reply};

/// Proof that every key was read, and that those are locked which are locked when they are read.
#[must_use = "lock what was written"]
struct Executed(());

/// Proof that every key that was written is locked at the version read.
#[must_use = "validate the others"]
struct Locked(());

/// Proof that nothing read has changed since, and that what was written has space; the transaction
/// will commit.
#[must_use = "log it"]
struct Validated(());

/// A host engine's coordinator.
pub struct Coordinator<F: Fabric>(Rc<Host<F>>);

impl<F: Fabric> Clone for Coordinator<F> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<F: Fabric> Coordinator<F> {
    pub(super) fn new(host: Rc<Host<F>>) -> Self {
        Self(host)
    }
}

impl<F: Fabric> CommitProtocol for Coordinator<F> {
    async fn run(&self, txn: &mut Txn) -> Outcome {
        let host = &self.0;
        let Some((id, mut open)) = host.open() else {
            return Outcome::Aborted(Abort::NoResources);
        };
        txn.id = id;
        host.fabric.work(Work::TxnSetup);
        let outcome = host.run(txn, &mut open).await.unwrap_or_else(Outcome::Aborted);
        if open.holds_nothing() {
            host.close(open);
            return outcome;
        }
        // The client need not wait for what must still be done.
        let decision = host.decision_of(outcome);
        open.txn.copy_from(txn);
        host.fabric.spawn(host.clone().finish(open, decision));
        outcome
    }
}

impl<F: Fabric> Host<F> {
    async fn run(&self, txn: &mut Txn, open: &mut Open<F>) -> Result<Outcome, Abort> {
        // [FaRM15 4; DrTM+H] Execution: read, compute, and read on if that added keys.
        let executed = self.execute(txn, open).await?;
        // [FaRM15 4 step 1] LOCK what was written, at the version read.
        let locked = self.lock_written(txn, open, executed).await?;
        // [FaRM15 4 step 2] VALIDATE what was read and is not locked.
        let validated = self.validate(txn, open, locked).await?;
        // A read-only transaction is complete.
        if txn.updates().next().is_none() {
            return Ok(Outcome::Committed);
        }
        // [FaRM15 4 step 3] LOG at every backup: then it has committed. Step 4, COMMIT at the
        // primaries, follows when the client has its answer.
        let Validated(()) = validated;
        if self.sabotage() == Sabotage::EarlyUnlock {
            self.unlock_early(txn, open).await;
        }
        self.log_backups(txn, open).await
    }

    async fn execute(&self, txn: &mut Txn, open: &mut Open<F>) -> Result<Executed, Abort> {
        let _phase = self.fabric.phase("EXECUTE");
        for _ in 0..ROUNDS_MAX {
            let executed = self.fetch(txn, open).await?;
            self.fabric.work(Work::Execute { keys: txn.entries().len() as u16 });
            match self.procedures.execute(txn) {
                Verdict::Commit => return Ok(executed),
                Verdict::Refuse if txn.local => return Err(self.refused_here(txn, open)),
                Verdict::Refuse => return Err(Abort::Refused),
                Verdict::More => {}
            }
        }
        Err(Abort::NoResources)
    }

    /// Reads every key that has not been read yet, all nodes at once.
    async fn fetch(&self, txn: &mut Txn, open: &mut Open<F>) -> Result<Executed, Abort> {
        self.see_new(txn, open);
        // Other engines of this node change its memory, and so do others' NICs.
        let local = txn.local || self.select_unfetched(txn, open, self.fabric.here().node);
        if !open.caught_up && local {
            self.fabric.caught_up().await;
            open.caught_up = true;
        }
        let locks = self.node.config().execution == Execution::Rpc;
        self.read_here(txn, open, locks)?;
        if txn.local {
            self.scan_here(txn)?;
            self.see_new(txn, open);
        }
        self.read_remote(txn, open).await?;
        if let Execution::Read(Locking { by, keys: LockKeys::Every }) = self.node.config().execution
        {
            // A range version validates what a scan has found.
            let wanted = |txn: &Txn, index: usize| {
                let entry = &txn.entries()[index];
                entry.write || !entry.range_checked
            };
            self.lock_keys(txn, open, by, wanted).await?;
        }
        Ok(Executed(()))
    }

    /// Begins with the keys that the transaction has got since.
    fn see_new(&self, txn: &Txn, open: &mut Open<F>) {
        for entry in &txn.entries()[open.accesses.len()..] {
            let shard = self.node.shard_of(entry.key);
            let node = self.fabric.view().primary(shard);
            open.accesses.push(AccessRecord {
                shard,
                node,
                source: ValidationSource::Owner,
                held: Held::No,
            });
        }
    }

    /// Reads the keys of this node's shard in local memory; with `locks`, locks its write set.
    fn read_here(&self, txn: &mut Txn, open: &mut Open<F>, locks: bool) -> Result<(), Abort> {
        for index in 0..txn.entries().len() {
            let entry = txn.entries()[index];
            let access = &mut open.accesses[index];
            if entry.fetched || !self.is_here(access.node) {
                continue;
            }
            access.source = ValidationSource::Owner;
            if locks && entry.write && access.held == Held::No {
                if self.sabotage() != Sabotage::NoLocks {
                    self.lock_own(entry.key, txn.id)?;
                }
                access.held = Held::ByOwner;
            }
            let mine = access.held == Held::ByOwner;
            let scratch = &mut *self.scratch.borrow_mut();
            scratch.values.clear();
            let found = self.read_own(entry.key, mine, &mut scratch.values)?;
            let value = found.value.map(|_| &*scratch.values);
            txn.fetched(index, found.version, value);
        }
        Ok(())
    }

    /// [FaSST] One RPC per primary locks its part of the write set and reads all its keys; where
    /// the others are READ, those of ordered tables, which only their owner can look up.
    fn send_executes(&self, txn: &Txn, open: &mut Open<F>) {
        for node in self.fabric.view().node_ids() {
            if self.select_asked(txn, open, node) {
                for &index in &open.keys {
                    let access = &mut open.accesses[index];
                    access.source = ValidationSource::Owner;
                    if txn.entries()[index].write && access.held == Held::No {
                        access.held = Held::Asked;
                    }
                }
                let reply = self.ask(node, &Execute { txn, keys: &open.keys });
                open.calls.push(Sent { to: node, reply });
            }
        }
    }

    async fn take_executes(&self, txn: &mut Txn, open: &mut Open<F>) -> Result<(), Abort> {
        let mut failure = None;
        let mut calls = std::mem::take(&mut open.calls);
        for sent in calls.drain(..) {
            let reply = sent.reply.await;
            self.select_asked(txn, open, sent.to);
            let granted = match reply {
                // Its table is asked by RESERVE, and names no exhausted space.
                Ok(body) => parse_execute_reply(body.as_ref(), txn, &open.keys)
                    .unwrap_or(Err(Abort::Fabric(FabricError::Malformed)))
                    .map(|_no_shortage| ()),
                Err(error) => Err(Abort::Fabric(error)),
            };
            if let Err(abort) = self.answered(open, sent.to, granted) {
                failure.get_or_insert(abort);
            }
        }
        open.calls = calls;
        failure.map_or(Ok(()), Err)
    }

    /// Puts the keys of `node`'s shard that have not been read yet into `open.keys`; are there any?
    fn select_unfetched(&self, txn: &Txn, open: &mut Open<F>, node: NodeId) -> bool {
        open.select(node, |index, _| !txn.entries()[index].fetched)
    }

    /// Of these, those whose owner reads them.
    fn select_asked(&self, txn: &Txn, open: &mut Open<F>, node: NodeId) -> bool {
        open.select(node, |index, _| {
            let entry = &txn.entries()[index];
            !entry.fetched && self.owner_reads(entry.key)
        })
    }

    fn owner_reads(&self, key: Key) -> bool {
        key.is_ordered() || self.node.config().execution == Execution::Rpc
    }

    /// Reads the keys of other nodes' shards.
    async fn read_remote(&self, txn: &mut Txn, open: &mut Open<F>) -> Result<(), Abort> {
        let reads_here = |entry: &Entry| !entry.fetched && !self.owner_reads(entry.key);
        for node in self.fabric.view().node_ids() {
            if open.select(node, |index, _| reads_here(&txn.entries()[index])) {
                self.remote_handles(node).await.map_err(Abort::Fabric)?;
            }
        }
        self.send_executes(txn, open);
        for index in 0..txn.entries().len() {
            if reads_here(&txn.entries()[index]) {
                self.start_lookup(txn, open, index);
            }
        }
        let read = self.finish_lookups(txn, open).await;
        let executed = self.take_executes(txn, open).await;
        read.and(executed)
    }

    async fn lock_written(
        &self,
        txn: &Txn,
        open: &mut Open<F>,
        executed: Executed,
    ) -> Result<Locked, Abort> {
        let _phase = self.fabric.phase("LOCK");
        let Executed(()) = executed;
        if let Execution::Read(Locking { by, keys: LockKeys::Written }) =
            self.node.config().execution
        {
            self.lock_keys(txn, open, by, |txn, index| txn.update(index).is_some()).await?;
        }
        Ok(Locked(()))
    }

    async fn validate(
        &self,
        txn: &Txn,
        open: &mut Open<F>,
        locked: Locked,
    ) -> Result<Validated, Abort> {
        let _phase = self.fabric.phase("VALIDATE");
        let Locked(()) = locked;
        // AMB-34: one key, read in one request, was current at that instant. A walk that found
        // nothing was several requests. A range version is checked in any case.
        let single_key = txn.range_versions().is_empty()
            && open.accesses.len() == 1
            && !matches!(open.accesses[0].source, ValidationSource::BucketVersion { .. });
        let reads = !single_key && self.sabotage() != Sabotage::NoValidate;
        // DEVIATION [FaRM15 4 step 2]: asks for space besides, if a value takes a block of the
        // heap, because the papers' values keep one size (`reservation`).
        self.hand_over(txn, open).await?;
        self.check(txn, open, reads).await?;
        Ok(Validated(()))
    }
}
