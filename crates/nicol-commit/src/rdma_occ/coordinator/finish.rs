//! COMMIT at the primaries, or ABORT: what is left to do once the client has its outcome. It must
//! happen, so that it is tried until it has.

use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::ids::{NodeId, ShardId};
use nicol_core::txn::{Outcome, Txn};
use nicol_store::remote_table::Header;

use super::context::Context;
use super::lock::Locks;
use super::log::{Logged, Logging};
use super::open_txn::{Held, InHand, OpenTxn, OpenTxns, ValidationSource};
use crate::messages::AbortLocks;
use crate::rdma_occ::config::Primitive;
use crate::rdma_occ::reach::word_of;
use crate::survivor::{Survivor, Without};
use crate::writes::{Commit, Updated};

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Commit,
    Abort,
}

/// The ends of one host engine's transactions.
pub(super) struct Endings<F: Fabric> {
    context: Rc<Context<F>>,
    locks: Rc<Locks<F>>,
    logging: Rc<Logging<F>>,
    txns: Rc<OpenTxns<F>>,
}

impl<F: Fabric> Endings<F> {
    pub(super) fn new(
        context: &Rc<Context<F>>,
        locks: &Rc<Locks<F>>,
        logging: &Rc<Logging<F>>,
        txns: &Rc<OpenTxns<F>>,
    ) -> Rc<Self> {
        let (context, locks) = (context.clone(), locks.clone());
        Rc::new(Self { context, locks, logging: logging.clone(), txns: txns.clone() })
    }

    /// COMMIT: has the primaries install the writes and unlock, or does it one-sidedly, in a task
    /// of its own. One that has written nothing only gives its locks back. What the client is told.
    pub(super) async fn commit(
        self: &Rc<Self>,
        txn: &Txn,
        open: &mut InHand<F>,
        logged: Logged,
    ) -> Outcome {
        let outcome = logged.outcome();
        if !self.context.node.config().await_commit {
            self.end(txn, open, Decision::Commit);
        } else if let Some(mut open) = self.txns.close_idle(open.hand_over()) {
            open.txn.copy_from(txn);
            self.clone().finish(open, Decision::Commit).await;
        }
        outcome
    }

    /// Installs the writes of an aborted transaction wherever it holds their locks, even if what it
    /// has read has changed: for the checkers' negative tests.
    pub(super) fn install_aborted(self: &Rc<Self>, txn: &Txn, open: &mut InHand<F>) {
        if let Some(mut open) = self.txns.close_idle(open.hand_over()) {
            open.txn.copy_from(txn);
            self.context.fabric.spawn(self.clone().install(open));
        }
    }

    async fn install(self: Rc<Self>, mut open: Box<OpenTxn<F>>) {
        let txn = std::mem::take(&mut open.txn);
        for (index, access) in open.accesses.iter_mut().enumerate() {
            if access.here
                && access.held == Held::ByOwner
                && let Some(write) = txn.update(index)
            {
                access.held = Held::No;
                self.context.owner.install(write.key, txn.id, write.version, write.value);
            }
        }
        self.release_here(&txn, &mut open);
        self.release_elsewhere(&txn, &mut open, Decision::Commit).await;
        open.txn = txn;
        self.txns.close(open);
    }

    /// ABORT: gives back the locks of what has not committed, in a task of its own.
    pub(super) fn abort(self: &Rc<Self>, txn: &Txn, open: &mut InHand<F>) {
        self.end(txn, open, Decision::Abort);
    }

    /// Ends a transaction in a task of its own, if it holds anything: the client need not wait.
    fn end(self: &Rc<Self>, txn: &Txn, open: &mut InHand<F>, decision: Decision) {
        if let Some(mut open) = self.txns.close_idle(open.hand_over()) {
            open.txn.copy_from(txn);
            self.context.fabric.spawn(self.clone().finish(open, decision));
        }
    }

    async fn finish(self: Rc<Self>, mut open: Box<OpenTxn<F>>, decision: Decision) {
        let txn = std::mem::take(&mut open.txn);
        if decision == Decision::Commit {
            self.logging.recover_records(&mut open).await;
            self.logging.acknowledge(txn.id, &mut open).await;
            self.commit_here(&txn, &mut open);
        }
        self.let_go(&txn, &mut open);
        // Before the WRITEs, which take longer.
        self.release_here(&txn, &mut open);
        if decision == Decision::Commit {
            self.write_records(&txn, &mut open).await;
        }
        self.release_elsewhere(&txn, &mut open, decision).await;
        open.txn = txn;
        self.txns.close(open);
    }

    /// Lets go of what is locked at primaries that are gone: nobody reads there what is not
    /// installed, and no lock is left to release.
    fn let_go(&self, txn: &Txn, open: &mut OpenTxn<F>) {
        if self.context.node.lost().are_any() {
            (0..open.accesses.len()).for_each(|index| {
                self.is_let_go(txn, open, index);
            });
        }
    }

    /// Is the primary of the key at `index` gone? Then lets go of its lock.
    fn is_let_go(&self, txn: &Txn, open: &mut OpenTxn<F>, index: usize) -> bool {
        let access = &mut open.accesses[index];
        let gone = self.context.node.is_lost(access.shard);
        if gone && access.held != Held::No {
            access.held = Held::No;
            self.context.node.did(Without::Primary);
            self.locks.stop_swapping(txn, index);
        }
        gone
    }

    /// Installs the writes to this node's own shard.
    fn commit_here(&self, txn: &Txn, open: &mut OpenTxn<F>) {
        for (index, access) in open.accesses.iter_mut().enumerate() {
            let Some(write) = txn.update(index).filter(|_| access.here) else { continue };
            assert!(access.held == Held::ByOwner, "a write is locked");
            access.held = Held::No;
            self.context.owner.install(write.key, txn.id, write.version, write.value);
        }
    }

    fn release_here(&self, txn: &Txn, open: &mut OpenTxn<F>) {
        for (entry, access) in txn.entries().iter().zip(&mut open.accesses) {
            if access.held == Held::ByOwner && access.here {
                self.context.owner.unlock(entry.key, txn.id);
                access.held = Held::No;
            }
        }
    }

    /// Ends what is still locked, all nodes at once.
    async fn release_elsewhere(&self, txn: &Txn, open: &mut OpenTxn<F>, decision: Decision) {
        let _phase = self.context.fabric.phase("COMMIT or ABORT");
        // Since the last time, WRITEs have been awaited.
        self.let_go(txn, open);
        self.post_releases(txn, open);
        self.send_ends(txn, open, decision);
        self.take_unlocks(txn, open).await;
        self.take_ends(txn, open, decision).await;
    }

    /// WRITEs the records that are committed one-sidedly, and to those that only their owner can
    /// commit, whom it does that for; then unlocks the former under their new versions.
    async fn write_records(&self, txn: &Txn, open: &mut OpenTxn<F>) {
        for index in 0..txn.entries().len() {
            let held = open.accesses[index].held;
            let written = held != Held::No && txn.update(index).is_some();
            if written && (held == Held::BySwap || self.stands_in_slot(txn, open, index)) {
                let done = self.write_record(txn, open, index);
                open.writes.push(index, done);
            }
        }
        while let Some((index, mut written)) = open.writes.next().await {
            // Nobody else writes to a locked record: a WRITE may be repeated.
            while written.is_err() && !self.is_let_go(txn, open, index) {
                self.context.reach.wait_to_retry().await;
                written = self.write_record(txn, open, index).await;
            }
            if open.accesses[index].held == Held::No {
                continue;
            }
            if self.stands_in_slot(txn, open, index) {
                open.accesses[index].held = Held::Written;
                let done = self.unlock(txn, open, index);
                open.verbs.push(index, done);
            } else {
                open.accesses[index].held = Held::ByOwner;
            }
        }
    }

    /// True if its coordinator may make the write to the key at `index`.
    fn stands_in_slot(&self, txn: &Txn, open: &OpenTxn<F>, index: usize) -> bool {
        let config = self.context.node.config();
        let geometry = self.context.node.geometry(txn.entries()[index].key);
        let fits = |value: &[u8]| value.len() <= geometry.inline();
        let put = txn.update(index).and_then(|write| write.value);
        config.commit_by == Primitive::OneSided
            && matches!(open.accesses[index].source, ValidationSource::Header { inline: true, .. })
            && put.is_some_and(fits)
    }

    fn write_record(&self, txn: &Txn, open: &mut OpenTxn<F>, index: usize) -> F::Completion {
        let in_slot = self.stands_in_slot(txn, open, index);
        let (node, address, unlocked) = self.record_handle(open, index);
        let geometry = self.context.node.geometry(txn.entries()[index].key);
        let bytes = &mut open.bytes;
        bytes.clear();
        match txn.update(index) {
            Some(write) if in_slot => {
                let fits =
                    geometry.emit_commit(write.key, unlocked, write.version, write.value, bytes);
                assert!(fits, "a value that fits stands in its slot");
            }
            _ => bytes.extend_from_slice(&txn.id.0.to_le_bytes()),
        }
        let offset = if in_slot {
            geometry.commit_address(address)
        } else {
            geometry.holder_address(address)
        };
        self.context.reach.write(node, txn.entries()[index].key, offset, bytes)
    }

    /// The node, address and header before the lock of a record whose slot was read.
    fn record_handle(&self, open: &OpenTxn<F>, index: usize) -> (NodeId, u64, Header) {
        let access = open.accesses[index];
        let ValidationSource::Header { address, unlocked, .. } = access.source else {
            panic!("only a record that was seen is locked one-sidedly");
        };
        (access.node, address, unlocked)
    }

    /// Posts the CAS that unlocks the key at `index`: under its new version if it was written.
    fn unlock(&self, txn: &Txn, open: &OpenTxn<F>, index: usize) -> F::Completion {
        let (node, address, unlocked) = self.record_handle(open, index);
        let after = match txn.update(index) {
            Some(write) if open.accesses[index].held == Held::Written => {
                unlocked.installed(write.version)
            }
            _ => unlocked,
        };
        let locked = unlocked.locked_by(self.context.fabric.here());
        self.context.reach.swap(node, txn.entries()[index].key, address, locked, after)
    }

    /// Posts what gives back the locks that were taken by CAS.
    fn post_releases(&self, txn: &Txn, open: &mut OpenTxn<F>) {
        for index in 0..txn.entries().len() {
            if matches!(open.accesses[index].held, Held::BySwap | Held::Perhaps) {
                let done = self.unlock(txn, open, index);
                open.verbs.push(index, done);
            }
        }
    }

    async fn take_unlocks(&self, txn: &Txn, open: &mut OpenTxn<F>) {
        while let Some((index, swapped)) = open.verbs.next().await {
            let (_, _, unlocked) = self.record_handle(open, index);
            let locked = unlocked.locked_by(self.context.fabric.here()).word();
            match swapped.and_then(|bytes| word_of(bytes.as_ref())) {
                Ok(found) => {
                    let mine = found == locked || open.accesses[index].held == Held::Perhaps;
                    assert!(mine, "nobody else changes a locked header");
                }
                Err(_) => self.unlock_in_time(txn, open, index).await,
            }
            if !self.is_let_go(txn, open, index) {
                open.accesses[index].held = Held::No;
                self.locks.stop_swapping(txn, index);
            }
        }
    }

    /// Unlocks after a CAS that failed. It took place or it did not, and what has happened to the
    /// slot since then may look like our lock to a CAS alone; but not under our key, of which this
    /// engine lets no other transaction try for the lock meanwhile.
    async fn unlock_in_time(&self, txn: &Txn, open: &OpenTxn<F>, index: usize) {
        let (node, address, unlocked) = self.record_handle(open, index);
        let key = txn.entries()[index].key;
        let geometry = self.context.node.geometry(key);
        let span = geometry.record_span(address);
        let locked = unlocked.locked_by(self.context.fabric.here());
        while !self.context.node.is_lost(open.accesses[index].shard) {
            self.context.reach.wait_to_retry().await;
            let Ok(bytes) = self.context.reach.read(node, key, span).await else { continue };
            let mine = geometry.stands_under(key, locked, bytes.as_ref());
            if !mine || self.unlock(txn, open, index).await.is_ok() {
                return;
            }
        }
    }

    /// Sends COMMIT or ABORT to the owners that hold locks, or may.
    fn send_ends(&self, txn: &Txn, open: &mut OpenTxn<F>, decision: Decision) {
        let mut last = None;
        while let Some(shard) = open.next_shard(last, |_, access| access.is_owners()) {
            let reply = self.send_end(txn, open, shard, decision);
            open.calls.push(shard, reply);
            last = Some(shard);
        }
    }

    /// Sends COMMIT or ABORT with the keys that are selected, which are those of `shard`.
    fn send_end(
        &self,
        txn: &Txn,
        open: &OpenTxn<F>,
        shard: ShardId,
        decision: Decision,
    ) -> F::Completion {
        let (node, keys) = (self.context.primary(shard), &*open.keys);
        if decision == Decision::Commit {
            let updated = Updated::Counted(open.count_shards_updated(txn));
            return self.context.rpc.demand(node, &Commit { txn, shard, updated, keys }, None);
        }
        // Looked up, not taken: the message may find no slot and be sent again.
        let unanswered = open.unanswered.iter().find(|&&(at, _)| at == shard);
        let unanswered = unanswered.map(|&(_, request)| request);
        self.context.rpc.demand(node, &AbortLocks { txn, keys }, unanswered)
    }

    async fn take_ends(&self, txn: &Txn, open: &mut OpenTxn<F>, decision: Decision) {
        while let Some((shard, mut reply)) = open.calls.next().await {
            while let Err(error) = reply {
                if self.context.node.is_lost(shard) {
                    self.context.node.did(Without::Primary);
                    break;
                }
                let retried = matches!(error, FabricError::NoResources | FabricError::Unreachable);
                assert!(retried, "a primary refused to end a transaction: {error}");
                self.context.reach.wait_after(self.context.primary(shard), error).await;
                if !self.context.node.is_lost(shard) {
                    open.select_held(shard);
                    reply = self.send_end(txn, open, shard, decision).await;
                }
            }
            open.select_held(shard);
            for &index in &*open.keys {
                open.accesses[index].held = Held::No;
                self.locks.stop_swapping(txn, index);
            }
        }
        open.unanswered.clear();
    }
}
