//! Locks on what was read: at its version, by one-sided CAS or by the owner.

use nicol_core::fabric::{Fabric, FabricError, OneSided, Work};
use nicol_core::ids::{Key, NodeId, TxnId, Version};
use nicol_core::txn::{Abort, Txn};
use nicol_store::host_table::Lookup;
use nicol_store::remote_table::Header;

use super::host::{AccessRecord, Held, Host, Open, Sent, ValidationSource, Verb};
use super::messages::Lock;
use super::{Primitive, Sabotage};
use crate::commit::messages::verdict;

/// The word that a CAS, which never fails halfway, has found.
pub(super) fn previous_word(bytes: &[u8]) -> Result<u64, FabricError> {
    bytes.first_chunk().map(|word| u64::from_le_bytes(*word)).ok_or(FabricError::Malformed)
}

impl<F: Fabric> Host<F> {
    /// Locks the keys that `wanted` accepts, each at the version read; all nodes at once. What a
    /// failure leaves locked is noted in the accesses.
    pub(super) async fn lock_keys(
        &self,
        txn: &Txn,
        open: &mut Open<F>,
        by: Primitive,
        wanted: impl Fn(&Txn, usize) -> bool,
    ) -> Result<(), Abort> {
        if self.sabotage() == Sabotage::NoLocks {
            self.pretend_locks(txn, open, &wanted);
            return Ok(());
        }
        self.lock_here(txn, open, &wanted)?;
        let mut failure = None;
        if by == Primitive::OneSided {
            failure = self.post_swaps(txn, open, &wanted).err();
        }
        if failure.is_none() {
            self.send_locks(txn, open, &wanted);
        }
        for taken in [self.take_swaps(txn, open).await, self.take_locks(open).await] {
            if let Err(abort) = taken {
                failure.get_or_insert(abort);
            }
        }
        failure.map_or(Ok(()), Err)
    }

    fn lock_here(
        &self,
        txn: &Txn,
        open: &mut Open<F>,
        wanted: &impl Fn(&Txn, usize) -> bool,
    ) -> Result<(), Abort> {
        for (index, entry) in txn.entries().iter().enumerate() {
            let AccessRecord { node, held, .. } = open.accesses[index];
            if held == Held::No && self.is_here(node) && wanted(txn, index) {
                self.lock_own(entry.key, txn.id)?;
                open.accesses[index].held = Held::ByOwner;
                let (version, present) = (entry.version, entry.present);
                self.check_locked(entry.key, txn.id, version, present)?;
            }
        }
        Ok(())
    }

    /// Locks a key of this node's shard.
    pub(super) fn lock_own(&self, key: Key, txn: TxnId) -> Result<(), Abort> {
        self.fabric.work(Work::TableLookup);
        let primary = self.node.primary();
        let granted = primary.lock(key, txn)?;
        if !granted.present && !primary.has_capacity(key) {
            primary.unlock(key, txn);
            return Err(Abort::NoResources);
        }
        Ok(())
    }

    /// Is a key of this node's shard, which `txn` has locked, still as it was read?
    pub(super) fn check_locked(
        &self,
        key: Key,
        txn: TxnId,
        version: Version,
        present: bool,
    ) -> Result<(), Abort> {
        let same = self.node.primary().is_locked_as_read(key, txn, Lookup { version, present });
        if same { Ok(()) } else { Err(Abort::Stale { key }) }
    }

    /// Posts a CAS for each key whose header was read.
    fn post_swaps(
        &self,
        txn: &Txn,
        open: &mut Open<F>,
        wanted: &impl Fn(&Txn, usize) -> bool,
    ) -> Result<(), Abort> {
        for (index, entry) in txn.entries().iter().enumerate() {
            let access = open.accesses[index];
            let ValidationSource::Header { address, unlocked, .. } = access.source else {
                continue;
            };
            if access.held != Held::No || !wanted(txn, index) {
                continue;
            }
            if self.swapping.borrow().contains_key(&entry.key) {
                return Err(Abort::LockConflict { key: entry.key });
            }
            self.swapping.borrow_mut().insert(entry.key, txn.id);
            open.accesses[index].held = Held::Perhaps;
            let locked = unlocked.locked_by(self.fabric.here());
            let done = self.swap(access.node, address, unlocked, locked);
            open.verbs.push(Verb { index, done });
        }
        Ok(())
    }

    /// Posts a CAS of a header word.
    pub(super) fn swap(
        &self,
        node: NodeId,
        address: u64,
        expected: Header,
        new: Header,
    ) -> F::Completion {
        let rkey = self.known_handles(node).table;
        let (expected, new) = (expected.word(), new.word());
        let swap = OneSided::CompareSwap { rkey, offset: address, expected, new };
        self.fabric.one_sided(node, swap)
    }

    async fn take_swaps(&self, txn: &Txn, open: &mut Open<F>) -> Result<(), Abort> {
        let mut failure = None;
        let mut verbs = std::mem::take(&mut open.verbs);
        for verb in verbs.drain(..) {
            let found = verb.done.await.and_then(|bytes| previous_word(bytes.as_ref()));
            let key = txn.entries()[verb.index].key;
            let access = &mut open.accesses[verb.index];
            let ValidationSource::Header { unlocked, .. } = access.source else { continue };
            let claimed = self.swapping.borrow().get(&key) == Some(&txn.id);
            assert!(claimed, "no other transaction of this engine tries for the lock");
            let (held, abort) = match found {
                Ok(word) if word == unlocked.word() => (Held::BySwap, None),
                Ok(word) if Header::parse(word).is_some_and(Header::is_locked) => {
                    (Held::No, Some(Abort::LockConflict { key }))
                }
                Ok(_) => (Held::No, Some(Abort::Stale { key })),
                // It was never posted.
                Err(FabricError::NoResources) => (Held::No, Some(Abort::NoResources)),
                Err(error) => (Held::Perhaps, Some(Abort::Fabric(error))),
            };
            access.held = held;
            if held == Held::No {
                self.stop_swapping(txn, verb.index);
            }
            if let Some(abort) = abort {
                failure.get_or_insert(abort);
            }
        }
        open.verbs = verbs;
        failure.map_or(Ok(()), Err)
    }

    /// The key at `index` is no longer one that `txn` locks by CAS, if it was: another transaction
    /// of this engine may be at it already when an owner's answer arrives.
    pub(super) fn stop_swapping(&self, txn: &Txn, index: usize) {
        let key = txn.entries()[index].key;
        let mut swapping = self.swapping.borrow_mut();
        if swapping.get(&key) == Some(&txn.id) {
            swapping.remove(&key);
        }
    }

    /// Asks owners for the keys that no CAS was posted for.
    fn send_locks(&self, txn: &Txn, open: &mut Open<F>, wanted: &impl Fn(&Txn, usize) -> bool) {
        for node in self.fabric.view().node_ids().filter(|&node| !self.is_here(node)) {
            if !open.select(node, |index, access| access.held == Held::No && wanted(txn, index)) {
                continue;
            }
            for &index in &open.keys {
                open.accesses[index].held = Held::Asked;
            }
            let reply = self.ask(node, &Lock { txn, keys: &open.keys });
            open.calls.push(Sent { to: node, reply });
        }
    }

    async fn take_locks(&self, open: &mut Open<F>) -> Result<(), Abort> {
        let mut failure = None;
        let mut calls = std::mem::take(&mut open.calls);
        for sent in calls.drain(..) {
            let granted = verdict(sent.reply.await);
            if let Err(abort) = self.answered(open, sent.to, granted) {
                failure.get_or_insert(abort);
            }
        }
        open.calls = calls;
        failure.map_or(Ok(()), Err)
    }

    /// Notes what the answer of an owner says about the locks that it was asked for: all or none,
    /// and nothing yet if there was no answer.
    pub(super) fn answered(
        &self,
        open: &mut Open<F>,
        node: NodeId,
        granted: Result<(), Abort>,
    ) -> Result<(), Abort> {
        let asked = open.accesses.iter_mut();
        let asked = asked.filter(|access| access.held == Held::Asked && access.node == node);
        if let Err(Abort::Fabric(FabricError::TimedOut { request })) = granted {
            // It may have locked, or may still: its ABORT fences the request.
            if asked.count() > 0 {
                open.unanswered.push((node, request));
            }
            return granted;
        }
        let held = if granted.is_ok() { Held::ByOwner } else { Held::No };
        asked.for_each(|access| access.held = held);
        granted
    }
}
