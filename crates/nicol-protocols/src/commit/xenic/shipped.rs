//! The execution node of a multi-hop transaction: a remote execution that locks, reads and executes
//! at once. [Xenic21 4.2.3]

use std::rc::Rc;

use nicol_core::fabric::{Delivery, Fabric, FabricError, ReplyTo, Work};
use nicol_core::ids::{EngineId, TxnId};
use nicol_core::txn::{Abort, Verdict};
use nicol_core::wire::Malformed;

use super::messages::ship::{ShipReply, parse_ship};
use super::nic::{Nic, OpenTxn};
use crate::commit::messages::Log;

/// A transaction that another NIC has shipped here.
pub(super) enum RemoteExecution<F: Fabric> {
    /// It is being executed; who has asked for its outcome meanwhile.
    Running(Option<ReplyTo>),
    /// It is executed and logged, and waits for COMMIT.
    Executed(Box<OpenTxn<F>>),
}

impl<F: Fabric> Nic<F> {
    /// Locks this shard's keys of a transaction, all or nothing, and reads them. What it only
    /// reads is locked for reading if `protect` is set, until [`Nic::unlock_shared`].
    ///
    /// All locks are held at one instant, at which everything read is current: keys that are read
    /// here need no VALIDATE.
    pub(super) async fn lock_and_read(
        &self,
        open: &mut OpenTxn<F>,
        protect: bool,
    ) -> Result<(), Abort> {
        open.keys.clear();
        if let Some(own) = self.node.shard() {
            self.select(open, own, |_| true);
        }
        self.lock_own_keys(open, protect)?;
        let mut found = self.lookups.batch();
        let entries = open.txn.entries();
        let keys = open.keys.iter().map(|&index| entries[index].key);
        let mut read = self.lookups.read_all(keys, &mut found).await.map_err(Abort::Fabric);
        for (position, now) in found.iter().enumerate() {
            let index = open.keys[position];
            let bytes =
                now.value.map(|(start, len)| &found.values[start as usize..(start + len) as usize]);
            let inserts = open.txn.entries()[index].write && bytes.is_none();
            if read.is_ok() && inserts && !self.node.has_capacity() {
                read = Err(Abort::NoResources);
            }
            open.txn.fetched(index, now.version, bytes);
        }
        self.lookups.give_back(found);
        if read.is_err() {
            self.leave(open);
        }
        open.exhausted = open.exhausted.or(self.node.exhausted_space());
        read
    }

    fn lock_own_keys(&self, open: &mut OpenTxn<F>, protect: bool) -> Result<(), Abort> {
        assert!(open.shared_locks.is_empty(), "a transaction is executed remotely once");
        for position in 0..open.keys.len() {
            let index = open.keys[position];
            let entry = open.txn.entries()[index];
            self.fabric.work(Work::IndexLookup);
            let granted = match (entry.write, protect) {
                (true, _) => self.node.lock(entry.key, open.txn.id),
                (false, true) => self.node.lock_shared(entry.key),
                (false, false) => match self.node.holder(entry.key) {
                    Some(_) => Err(Abort::LockConflict { key: entry.key }),
                    None => Ok(()),
                },
            };
            if let Err(abort) = granted {
                open.keys.truncate(position);
                self.leave(open);
                return Err(abort);
            }
            if !entry.write && protect {
                open.shared_locks.push(index);
            }
        }
        Ok(())
    }

    /// Gives back every lock on `open.keys`.
    fn leave(&self, open: &mut OpenTxn<F>) {
        for &index in &open.keys {
            let entry = &open.txn.entries()[index];
            if entry.write {
                self.fabric.work(Work::IndexLookup);
                self.node.unlock(entry.key, open.txn.id);
            }
        }
        self.unlock_shared(open);
    }

    /// Gives the read locks back.
    pub(super) fn unlock_shared(&self, open: &mut OpenTxn<F>) {
        let OpenTxn { txn, shared_locks, .. } = open;
        for index in shared_locks.drain(..) {
            self.fabric.work(Work::IndexLookup);
            self.node.unlock_shared(txn.entries()[index].key);
        }
    }

    /// Takes a SHIP. It is known from here on, so that a question about it finds it.
    pub(super) fn take_ship(
        &self,
        this: Rc<Self>,
        delivery: Delivery<'_>,
        reply_to: ReplyTo,
    ) -> Result<(), Malformed> {
        let mut open = self.blank();
        let parsed = parse_ship(delivery.body, &mut open.txn, &mut open.delegated);
        let (view, from) = (self.fabric.view(), reply_to.engine.node);
        let mut entries = open.txn.entries().iter();
        let ours = entries.all(|entry| match entry.fetched {
            true => view.primary(self.node.shard_of(entry.key)) == from,
            false => self.node.is_primary_of(entry.key),
        });
        let shards = [view.led_by(from).next(), self.node.shard()];
        let written = self.shards_written(&open.txn, shards).into_iter().flatten();
        let acks = written.flat_map(|shard| view.backups(shard));
        let counted = acks.filter(|&backup| backup != from).count() == open.delegated.len();
        let new = !self.shipped.borrow().contains_key(&open.txn.id);
        if parsed.is_err() || !ours || !counted || !new || from == self.fabric.here().node {
            self.recycle(open);
            return Err(Malformed { what: "a transaction to execute" });
        }
        self.shipped.borrow_mut().insert(open.txn.id, RemoteExecution::Running(None));
        self.fabric.spawn(async move { this.serve_ship(open, reply_to).await });
        Ok(())
    }

    async fn serve_ship(self: Rc<Self>, mut open: Box<OpenTxn<F>>, reply_to: ReplyTo) {
        let id = open.txn.id;
        match self.execute_remote(&mut open).await {
            Ok(true) => {
                self.log_for(&mut open, reply_to.engine);
                self.answer(id, reply_to, &ShipReply::Executed(&open.txn));
                self.shipped.borrow_mut().insert(id, RemoteExecution::Executed(open));
                return;
            }
            Ok(false) => {
                self.leave(&mut open);
                self.answer(id, reply_to, &ShipReply::Executed(&open.txn));
            }
            Err(denial) => {
                self.answer(id, reply_to, &denial);
            }
        }
        self.recycle(open);
    }

    /// Locks, reads, executes. True if it writes; an error leaves no lock.
    async fn execute_remote(&self, open: &mut OpenTxn<F>) -> Result<bool, ShipReply<'static>> {
        self.lock_and_read(open, true).await.map_err(ShipReply::Denied)?;
        self.fabric.work(Work::Execute { keys: open.txn.entries().len() as u16 });
        let initial = open.txn.entries().len();
        let denial = match self.procedures.execute(&mut open.txn) {
            Verdict::Commit => match self.check_write_capacity(open) {
                Ok(()) => {
                    self.unlock_shared(open);
                    return Ok(open.txn.updates().next().is_some());
                }
                Err(abort) => ShipReply::Denied(abort),
            },
            Verdict::Refuse => ShipReply::Denied(Abort::Refused),
            Verdict::More => ShipReply::More,
        };
        assert!(open.keys.iter().all(|&index| index < initial), "only initial keys were locked");
        self.leave(open);
        Err(denial)
    }

    /// Sends LOG to the backups of both shards in the coordinator's name: they answer there.
    fn log_for(&self, open: &mut OpenTxn<F>, coordinator: EngineId) {
        let (view, here) = (self.fabric.view(), self.fabric.here());
        let mut next = 0;
        let shards = [view.led_by(coordinator.node).next(), self.node.shard()];
        let shards = self.shards_written(&open.txn, shards);
        for shard in shards.into_iter().flatten() {
            self.select_updates(open, shard);
            for backup in view.backups(shard).filter(|&backup| backup != coordinator.node) {
                let asker = ReplyTo { engine: coordinator, request: open.delegated[next] };
                next += 1;
                if !open.keys.is_empty() {
                    let message = Log { txn: &open.txn, shard, keys: &open.keys };
                    self.fabric.send_on_behalf_of(asker, view.nic_of(backup, here.core), &message);
                }
            }
        }
    }

    /// Answers a SHIP, and whoever has asked for its outcome meanwhile.
    fn answer(&self, id: TxnId, reply_to: ReplyTo, reply: &ShipReply<'_>) {
        self.fabric.reply(reply_to, reply);
        let execution = self.shipped.borrow_mut().remove(&id);
        if let Some(RemoteExecution::Running(Some(asked))) = execution {
            self.fabric.reply(asked, reply);
        }
    }

    /// Answers SHIP_OUTCOME. A SHIP that is not known was denied, or is fenced by the question.
    pub(super) fn tell_outcome(&self, id: TxnId, reply_to: ReplyTo) {
        match self.shipped.borrow_mut().get_mut(&id) {
            Some(RemoteExecution::Running(asked)) => *asked = Some(reply_to),
            Some(RemoteExecution::Executed(open)) => {
                self.fabric.reply(reply_to, &ShipReply::Executed(&open.txn));
            }
            None => {
                let abort = Abort::Fabric(FabricError::Unreachable);
                self.fabric.reply(reply_to, &ShipReply::Denied(abort));
            }
        }
    }

    /// COMMIT has come: nobody asks any more.
    pub(super) fn forget_shipped(&self, id: TxnId) {
        if let Some(RemoteExecution::Executed(open)) = self.shipped.borrow_mut().remove(&id) {
            self.recycle(open);
        }
    }
}
