//! What is left to do once the client has its outcome: COMMIT at the primaries, or give the locks
//! back. It must happen, so that it is tried until it has.

use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError, OneSided};
use nicol_core::ids::NodeId;
use nicol_core::txn::Txn;
use nicol_store::remote_table::Header;

use super::broken::GAP;
use super::host::{Held, Host, Open, RETRY_WAIT, Sent, ValidationSource, Verb};
use super::locks::previous_word;
use super::{Primitive, Sabotage};
use crate::commit::messages::{AbortLocks, Commit};

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    Commit,
    Abort,
}

impl<F: Fabric> Host<F> {
    /// Ends a transaction that is decided.
    pub(super) async fn finish(self: Rc<Self>, mut open: Box<Open<F>>, decision: Decision) {
        let txn = std::mem::take(&mut open.txn);
        if decision == Decision::Commit {
            self.recover_records(&mut open).await;
            self.commit_here(&txn, &mut open).await;
        }
        // Before the WRITEs, which take longer.
        self.release_here(&txn, &mut open);
        if decision == Decision::Commit {
            self.write_records(&txn, &mut open).await;
        }
        self.release_all(&txn, &mut open, decision).await;
        open.txn = txn;
        self.close(open);
    }

    /// Ends what is still locked, all nodes at once.
    pub(super) async fn release_all(&self, txn: &Txn, open: &mut Open<F>, decision: Decision) {
        let _phase = self.fabric.phase("COMMIT or ABORT");
        self.release_here(txn, open);
        self.post_releases(txn, open);
        self.send_ends(txn, open, decision);
        self.take_unlocks(txn, open).await;
        self.take_ends(txn, open, decision).await;
    }

    /// Installs the writes to this node's own shard.
    async fn commit_here(&self, txn: &Txn, open: &mut Open<F>) {
        for (index, entry) in txn.entries().iter().enumerate() {
            let Some(write) = txn.update(index) else { continue };
            if !self.is_here(open.accesses[index].node) {
                continue;
            }
            if self.sabotage() == Sabotage::AbortInstalls {
                self.install_whatever(txn, open, index).await;
                continue;
            }
            assert!(open.accesses[index].held == Held::ByOwner, "a write is locked");
            open.accesses[index].held = Held::No;
            if self.installs_unlocked() {
                self.unlock_own(entry.key, txn.id);
                self.fabric.sleep_until(self.fabric.now() + GAP).await;
                self.install_unlocked(entry.key, txn.id, write.version, write.value).await;
            } else {
                self.install_own(entry.key, txn.id, write.version, write.value);
            }
        }
    }

    fn release_here(&self, txn: &Txn, open: &mut Open<F>) {
        for (entry, access) in txn.entries().iter().zip(&mut open.accesses) {
            if access.held == Held::ByOwner && self.is_here(access.node) {
                self.unlock_own(entry.key, txn.id);
                access.held = Held::No;
            }
        }
    }

    /// WRITEs the records that are committed one-sidedly, and to those that only their owner can
    /// commit, whom it does that for; then unlocks the former under their new versions.
    async fn write_records(&self, txn: &Txn, open: &mut Open<F>) {
        for index in 0..txn.entries().len() {
            let held = open.accesses[index].held;
            let written = held != Held::No && txn.update(index).is_some();
            if written && (held == Held::BySwap || self.stands_in_slot(txn, open, index)) {
                let done = self.write_record(txn, open, index);
                open.writes.push(Verb { index, done });
            }
        }
        let mut writes = std::mem::take(&mut open.writes);
        for Verb { index, mut done } in writes.drain(..) {
            // Nobody else writes to a locked record: a WRITE may be repeated.
            while done.await.is_err() {
                self.fabric.sleep_until(self.fabric.now() + RETRY_WAIT).await;
                done = self.write_record(txn, open, index);
            }
            if self.stands_in_slot(txn, open, index) {
                open.accesses[index].held = Held::Written;
                let done = self.unlock(txn, open, index);
                open.verbs.push(Verb { index, done });
            } else {
                open.accesses[index].held = Held::ByOwner;
            }
        }
        open.writes = writes;
    }

    /// Is the write to the key at `index` one that its coordinator may make?
    fn stands_in_slot(&self, txn: &Txn, open: &Open<F>, index: usize) -> bool {
        let config = self.node.config();
        let fits = |value: &[u8]| value.len() <= self.node.geometry().inline();
        let put = txn.update(index).and_then(|write| write.value);
        config.commit_by == Primitive::OneSided
            && !self.installs_unlocked()
            && matches!(open.accesses[index].source, ValidationSource::Header { inline: true, .. })
            && put.is_some_and(fits)
    }

    fn write_record(&self, txn: &Txn, open: &mut Open<F>, index: usize) -> F::Completion {
        let in_slot = self.stands_in_slot(txn, open, index);
        let (node, address, unlocked) = self.record_handle(open, index);
        let geometry = self.node.geometry();
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
        let rkey = self.known_handles(node).table;
        let offset = if in_slot {
            geometry.commit_address(address)
        } else {
            geometry.holder_address(address)
        };
        self.fabric.one_sided(node, OneSided::Write { rkey, offset, bytes })
    }

    /// The node, address and header before the lock of a record whose slot was read.
    fn record_handle(&self, open: &Open<F>, index: usize) -> (NodeId, u64, Header) {
        let access = open.accesses[index];
        let ValidationSource::Header { address, unlocked, .. } = access.source else {
            panic!("only a record that was seen is locked one-sidedly");
        };
        (access.node, address, unlocked)
    }

    /// Posts the CAS that unlocks the key at `index`: under its new version if it was written.
    fn unlock(&self, txn: &Txn, open: &Open<F>, index: usize) -> F::Completion {
        let (node, address, unlocked) = self.record_handle(open, index);
        let after = match txn.update(index) {
            Some(write) if open.accesses[index].held == Held::Written => {
                unlocked.installed(write.version)
            }
            _ => unlocked,
        };
        self.swap(node, address, unlocked.locked_by(self.fabric.here()), after)
    }

    /// Posts what gives back the locks that were taken by CAS.
    fn post_releases(&self, txn: &Txn, open: &mut Open<F>) {
        for index in 0..txn.entries().len() {
            if matches!(open.accesses[index].held, Held::BySwap | Held::Perhaps) {
                let done = self.unlock(txn, open, index);
                open.verbs.push(Verb { index, done });
            }
        }
    }

    async fn take_unlocks(&self, txn: &Txn, open: &mut Open<F>) {
        let mut verbs = std::mem::take(&mut open.verbs);
        for Verb { index, done } in verbs.drain(..) {
            let (_, _, unlocked) = self.record_handle(open, index);
            let locked = unlocked.locked_by(self.fabric.here()).word();
            match done.await.and_then(|bytes| previous_word(bytes.as_ref())) {
                Ok(found) => {
                    let mine = found == locked || open.accesses[index].held == Held::Perhaps;
                    assert!(mine, "nobody else changes a locked header");
                }
                Err(_) => self.unlock_in_time(txn, open, index).await,
            }
            open.accesses[index].held = Held::No;
            self.stop_swapping(txn, index);
        }
        open.verbs = verbs;
    }

    /// Unlocks after a CAS that failed. It took place or it did not, and what has happened to the
    /// slot since then may look like our lock to a CAS alone; but not under our key, of which this
    /// engine lets no other transaction try for the lock meanwhile.
    async fn unlock_in_time(&self, txn: &Txn, open: &Open<F>, index: usize) {
        let (node, address, unlocked) = self.record_handle(open, index);
        let key = txn.entries()[index].key;
        let geometry = self.node.geometry();
        let span = geometry.record_span(address);
        let rkey = self.known_handles(node).table;
        let locked = unlocked.locked_by(self.fabric.here());
        loop {
            self.fabric.sleep_until(self.fabric.now() + RETRY_WAIT).await;
            let read = OneSided::Read { rkey, offset: span.offset, len: span.len as u32 };
            let Ok(bytes) = self.fabric.one_sided(node, read).await else { continue };
            let mine = geometry.stands_under(key, locked, bytes.as_ref());
            if !mine || self.unlock(txn, open, index).await.is_ok() {
                return;
            }
        }
    }

    /// Sends COMMIT or ABORT to the owners that hold locks, or may.
    fn send_ends(&self, txn: &Txn, open: &mut Open<F>, decision: Decision) {
        for node in self.fabric.view().node_ids() {
            if self.select_held(open, node) {
                let reply = self.send_end(txn, open, node, decision);
                open.calls.push(Sent { to: node, reply });
            }
        }
    }

    /// Puts the keys that `node` holds locked, or may, into `open.keys`; are there any?
    fn select_held(&self, open: &mut Open<F>, node: NodeId) -> bool {
        open.select(node, |_, access| matches!(access.held, Held::ByOwner | Held::Asked))
    }

    fn send_end(
        &self,
        txn: &Txn,
        open: &mut Open<F>,
        node: NodeId,
        decision: Decision,
    ) -> F::Completion {
        if decision == Decision::Commit {
            // A node holds the primary of one shard, so that its keys have it in common.
            let shard = open.accesses[open.keys[0]].shard;
            let message = Commit { txn, shard, keys: &open.keys };
            return self.demand(node, &message, None);
        }
        let message = AbortLocks { txn, keys: &open.keys };
        // Looked up, not taken: the message may find no slot and be sent again.
        let unanswered = open.unanswered.iter().find(|&&(at, _)| at == node);
        self.demand(node, &message, unanswered.map(|&(_, request)| request))
    }

    async fn take_ends(&self, txn: &Txn, open: &mut Open<F>, decision: Decision) {
        let mut calls = std::mem::take(&mut open.calls);
        for sent in calls.drain(..) {
            let mut reply = sent.reply.await;
            while let Err(error) = reply {
                let no_slot = error == FabricError::NoResources;
                assert!(no_slot, "a primary refused to end a transaction: {error}");
                self.fabric.sleep_until(self.fabric.now() + RETRY_WAIT).await;
                self.select_held(open, sent.to);
                reply = self.send_end(txn, open, sent.to, decision).await;
            }
            self.select_held(open, sent.to);
            for &index in &open.keys {
                open.accesses[index].held = Held::No;
                self.stop_swapping(txn, index);
            }
        }
        open.calls = calls;
        open.unanswered.clear();
    }
}
