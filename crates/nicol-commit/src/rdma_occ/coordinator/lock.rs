//! LOCK: keys at the versions read, by one-sided CAS or by their owners.

use std::cell::RefCell;
use std::rc::Rc;

use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::ids::{IdMap, Key, TxnId};
use nicol_core::txn::{Abort, Txn};
use nicol_kit::AllGranted;
use nicol_store::remote_table::Header;

use super::context::Context;
use super::execute::Executed;
use super::open_txn::{AccessRecord, Held, OpenTxn, ValidationSource, note_answer, shards_of};
use super::read_of;
use crate::rdma_occ::config::{Execution, LockKeys, Locking, Primitive};
use crate::rdma_occ::messages::Lock;
use crate::rdma_occ::reach::word_of;
use crate::survivor::Survivor;

/// Proof that every key that was written is locked at the version read.
#[must_use = "validate the others"]
pub(super) struct Locked(AllGranted);

impl Locked {
    /// The proof that every owner that was asked to lock has locked.
    pub(super) fn granted(self) -> AllGranted {
        self.0
    }
}

/// The locks of one host engine's transactions.
pub(super) struct Locks<F: Fabric> {
    context: Rc<Context<F>>,
    /// Keys that this engine locks by CAS, or tries to: a header names the engine only, so that
    /// its transactions must keep out of one another's way here.
    swapping: RefCell<IdMap<Key, TxnId>>,
}

impl<F: Fabric> Locks<F> {
    pub(super) fn new(context: &Rc<Context<F>>) -> Self {
        Self { context: context.clone(), swapping: RefCell::default() }
    }

    /// Locks every key that was read, where that is a part of execution.
    pub(super) async fn lock_read(
        &self,
        txn: &Txn,
        open: &mut OpenTxn<F>,
        executed: Executed,
    ) -> Result<Executed, Abort> {
        match self.context.node.config().execution {
            Execution::Read(Locking { by, keys: LockKeys::Every }) => {
                let _phase = self.context.fabric.phase("EXECUTE");
                Ok(executed.and(self.lock_keys(txn, open, by, LockKeys::Every).await?))
            }
            _ => Ok(executed),
        }
    }

    /// Locks what execution has written, unless it was locked when it was read.
    pub(super) async fn lock(
        &self,
        txn: &Txn,
        open: &mut OpenTxn<F>,
        executed: Executed,
    ) -> Result<Locked, Abort> {
        let _phase = self.context.fabric.phase("LOCK");
        let mut granted = executed.granted();
        if let Execution::Read(Locking { by, keys: LockKeys::Written }) =
            self.context.node.config().execution
        {
            granted = granted.and(self.lock_keys(txn, open, by, LockKeys::Written).await?);
        }
        Ok(Locked(granted))
    }

    /// Locks `keys`, each at the version read; all nodes at once. What a failure leaves locked is
    /// noted in the accesses.
    async fn lock_keys(
        &self,
        txn: &Txn,
        open: &mut OpenTxn<F>,
        by: Primitive,
        keys: LockKeys,
    ) -> Result<AllGranted, Abort> {
        let OpenTxn { to_lock, accesses, .. } = open;
        let unlocked = |&index: &usize| accesses[index].held == Held::No;
        let wanted = |&index: &usize| match keys {
            LockKeys::Written => txn.update(index).is_some(),
            // A range version validates what a scan has found.
            LockKeys::Every => {
                let entry = &txn.entries()[index];
                entry.write || !entry.range_checked
            }
        };
        to_lock.set((0..txn.entries().len()).filter(unlocked).filter(wanted));
        self.lock_here(txn, open)?;
        let mut posted = Ok(());
        if by == Primitive::OneSided {
            posted = self.post_swaps(txn, open);
        }
        if posted.is_ok() {
            self.send_locks(txn, open);
        }
        let swapped = self.take_swaps(txn, open).await;
        let granted = self.take_locks(open).await;
        posted?;
        Ok(swapped?.and(granted?))
    }

    fn lock_here(&self, txn: &Txn, open: &mut OpenTxn<F>) -> Result<(), Abort> {
        let OpenTxn { to_lock, accesses, .. } = open;
        for &index in to_lock.iter() {
            let (entry, access) = (&txn.entries()[index], &mut accesses[index]);
            if access.here {
                self.context.owner.lock(entry.key, txn.id)?;
                access.held = Held::ByOwner;
                self.context.owner.check_locked(txn.id, read_of(entry))?;
            }
        }
        Ok(())
    }

    /// Posts a CAS for each key whose header was read.
    fn post_swaps(&self, txn: &Txn, open: &mut OpenTxn<F>) -> Result<(), Abort> {
        let OpenTxn { to_lock, accesses, verbs, .. } = open;
        for &index in to_lock.iter() {
            let AccessRecord { source, node, held, .. } = &mut accesses[index];
            let ValidationSource::Header { address, unlocked, .. } = *source else { continue };
            let key = txn.entries()[index].key;
            let mut swapping = self.swapping.borrow_mut();
            if swapping.contains_key(&key) {
                return Err(Abort::LockConflict { key });
            }
            swapping.insert(key, txn.id);
            *held = Held::Perhaps;
            let locked = unlocked.locked_by(self.context.fabric.here());
            verbs.push(index, self.context.reach.swap(*node, key, address, unlocked, locked));
        }
        Ok(())
    }

    async fn take_swaps(&self, txn: &Txn, open: &mut OpenTxn<F>) -> Result<AllGranted, Abort> {
        let OpenTxn { verbs, accesses, .. } = open;
        let take = |index: usize, reply: Result<F::Payload, FabricError>| {
            let key = txn.entries()[index].key;
            let access = &mut accesses[index];
            let ValidationSource::Header { unlocked, .. } = access.source else {
                panic!("a CAS is posted for a header that was read");
            };
            let claimed = self.swapping.borrow().get(&key) == Some(&txn.id);
            assert!(claimed, "no other transaction of this engine tries for the lock");
            let (held, swapped) = match reply.and_then(|bytes| word_of(bytes.as_ref())) {
                Ok(word) if word == unlocked.word() => (Held::BySwap, Ok(())),
                Ok(word) => match Header::parse(word).filter(|header| header.is_locked()) {
                    Some(locked) => {
                        let holder = locked.owner().map(|engine| engine.node);
                        let conflict = Abort::LockConflict { key };
                        (Held::No, Err(self.context.node.conflict(key, holder, conflict)))
                    }
                    None => (Held::No, Err(Abort::Stale { key })),
                },
                // It was never posted.
                Err(FabricError::NoResources) => (Held::No, Err(Abort::NoResources)),
                Err(error) => (Held::Perhaps, Err(self.context.node.failure(access.shard, error))),
            };
            access.held = held;
            if held == Held::No {
                self.stop_swapping(txn, index);
            }
            swapped
        };
        verbs.gather(take).await
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

    /// Asks owners for the keys that are not locked yet and that no CAS was posted for.
    fn send_locks(&self, txn: &Txn, open: &mut OpenTxn<F>) {
        let mut last = None;
        loop {
            let OpenTxn { to_lock, keys, accesses, calls, .. } = open;
            let to_ask = |index: usize, access: &AccessRecord| {
                access.held == Held::No && to_lock.binary_search(&index).is_ok()
            };
            let Some(shard) = keys.next_shard(last, shards_of(accesses, to_ask)) else { return };
            for &index in keys.iter() {
                accesses[index].held = Held::Asked;
            }
            calls.push(
                shard,
                self.context.rpc.ask(self.context.primary(shard), &Lock { txn, keys }),
            );
            last = Some(shard);
        }
    }

    async fn take_locks(&self, open: &mut OpenTxn<F>) -> Result<AllGranted, Abort> {
        let OpenTxn { calls, accesses, unanswered, .. } = open;
        let take = |shard, reply| {
            note_answer(accesses, unanswered, shard, self.context.node.verdict(shard, reply))
        };
        calls.gather(take).await
    }
}
