//! The execution node of a multi-hop transaction: it locks, reads and executes at once, and logs on
//! behalf of the coordinator. [Xenic21 4.2.3: P2]

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::exec::at_once;
use nicol_core::fabric::{Fabric, FabricError, ReplyTo, Timeout, Work};
use nicol_core::ids::{EngineId, IdMap, NodeId, ShardId, TxnId};
use nicol_core::txn::{Abort, Entry, Procedures, Verdict};
use nicol_core::wire::Malformed;
use nicol_kit::KeyShards;

use super::OwnKeys;
use crate::writes::Log;
use crate::xenic::capacity;
use crate::xenic::config::SLOT_WAIT;
use crate::xenic::messages::ship::{ShipReply, parse_ship};
use crate::xenic::node::Node;
use crate::xenic::open_txn::{OpenTxn, OpenTxns};

/// A transaction that another NIC has shipped here.
enum RemoteExecution<F: Fabric> {
    /// It is being executed; who has asked for its outcome meanwhile.
    Running(Option<ReplyTo>),
    /// It is executed and logged, and waits for COMMIT.
    Executed(Box<OpenTxn<F>>),
}

/// The transactions that other coordinators have shipped to one NIC engine.
pub(super) struct ShippedTxns<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    procedures: Procedures,
    txns: Rc<OpenTxns<F>>,
    keys: Rc<OwnKeys<F>>,
    shipped: RefCell<IdMap<TxnId, RemoteExecution<F>>>,
}

impl<F: Fabric> ShippedTxns<F> {
    pub(super) fn new(
        fabric: F,
        node: Arc<Node>,
        procedures: Procedures,
        txns: Rc<OpenTxns<F>>,
        keys: Rc<OwnKeys<F>>,
    ) -> Self {
        Self { fabric, node, procedures, txns, keys, shipped: RefCell::default() }
    }

    /// Takes a SHIP. One that waits is known from here on, so that a question about it finds it.
    pub(super) fn take(self: &Rc<Self>, body: &[u8], reply_to: ReplyTo) -> Result<(), Malformed> {
        let mut open = self.txns.open(reply_to);
        let parsed = parse_ship(body, &mut open.txn, &mut open.delegated);
        let parsed = parsed.and_then(|began| {
            open.began = began;
            self.node.begun().expect(began)
        });
        open.place_keys(&self.node);
        if let Err(malformed) = parsed.and_then(|()| self.check_ship(&open, reply_to.engine.node)) {
            self.txns.close(open);
            return Err(malformed);
        }
        let logs_here = self.logs_here(&open, reply_to.engine.node);
        let mut keys = open.txn.entries().iter().map(|entry| entry.key);
        if !logs_here && self.keys.are_read_at_once(&mut keys) {
            at_once(self.serve_ship(open, reply_to));
        } else {
            self.shipped.borrow_mut().insert(open.txn.id, RemoteExecution::Running(None));
            let this = self.clone();
            self.fabric.spawn(async move { this.serve_ship(open, reply_to).await });
        }
        Ok(())
    }

    /// Is it new, are its keys of this node's and its coordinator's shards, and does it bring a
    /// request for every ack?
    fn check_ship(&self, open: &OpenTxn<F>, coordinator: NodeId) -> Result<(), Malformed> {
        let OpenTxn { txn, shards, .. } = open;
        let of_two =
            txn.entries().iter().zip(shards.iter()).all(|(entry, shard)| match entry.fetched {
                true => self.node.primary_node(shard) == coordinator,
                false => self.node.is_primary(shard),
            });
        if !of_two || coordinator == self.node.id() {
            return Err(Malformed { what: "a transaction to execute with keys of other shards" });
        }
        let concerned = self.concerned(shards);
        let acks = self.node.delegated_logs(txn, shards, concerned, coordinator).count();
        if acks != open.delegated.len() {
            return Err(Malformed { what: "a transaction to execute with other acks" });
        }
        if self.shipped.borrow().contains_key(&txn.id) {
            return Err(Malformed { what: "a transaction to execute that is known" });
        }
        Ok(())
    }

    /// The shards of a transaction that was shipped here: its coordinator's, then this node's.
    fn concerned(&self, shards: &KeyShards) -> [Option<ShardId>; 2] {
        [false, true].map(|own| shards.iter().find(|&shard| self.node.is_primary(shard) == own))
    }

    async fn serve_ship(&self, mut open: Box<OpenTxn<F>>, reply_to: ReplyTo) {
        let _phase = self.fabric.phase("server: SHIP");
        let id = open.txn.id;
        match self.execute_remote(&mut open).await {
            Ok(true) => {
                self.log_for(&mut open, reply_to.engine);
                if self.logs_here(&open, reply_to.engine.node) {
                    self.log_here(&mut open).await;
                }
                self.answer(id, reply_to, &ShipReply::Executed(&open.txn));
                self.shipped.borrow_mut().insert(id, RemoteExecution::Executed(open));
                return;
            }
            Ok(false) => {
                self.keys.leave(&mut open);
                self.answer(id, reply_to, &ShipReply::Executed(&open.txn));
            }
            Err(denial) => {
                self.answer(id, reply_to, &denial);
            }
        }
        self.txns.close(open);
    }

    /// Errors: a later view has overruled it. Its coordinator locks nothing in a shard that has
    /// changed, and if its life is over nobody counts the acks.
    fn check_begun(&self, open: &OpenTxn<F>) -> Result<(), Abort> {
        let shards = open.shards.iter();
        self.node.begun().check(self.fabric.view(), open.txn.id, open.began, shards)
    }

    fn check_writes(&self, open: &OpenTxn<F>) -> Result<(), Abort> {
        let log = self.node.log(self.fabric.here().core);
        capacity::check_writes(open, log.body_max())
    }

    /// Locks, reads, executes. True if it writes; an error leaves no lock.
    async fn execute_remote(&self, open: &mut OpenTxn<F>) -> Result<bool, ShipReply<'static>> {
        self.check_begun(open).map_err(ShipReply::Denied)?;
        let _read = self.keys.lock_and_read(open, true).await.map_err(ShipReply::Denied)?;
        if let Err(abort) = self.check_begun(open) {
            self.keys.leave(open);
            return Err(ShipReply::Denied(abort));
        }
        self.fabric.work(Work::Execute { keys: open.txn.entries().len() as u16 });
        let initial = open.txn.entries().len();
        let verdict = self.procedures.execute(&mut open.txn);
        open.place_keys(&self.node);
        open.note_shards_updated();
        let denial = match verdict {
            Verdict::Commit => match self.check_writes(open) {
                Ok(()) => {
                    self.keys.unlock_shared(open);
                    return Ok(open.txn.has_updates());
                }
                Err(abort) => ShipReply::Denied(abort),
            },
            Verdict::Refuse => ShipReply::Denied(Abort::Refused),
            Verdict::More => ShipReply::More,
        };
        assert!(open.keys.iter().all(|&index| index < initial), "only initial keys were locked");
        self.keys.leave(open);
        Err(denial)
    }

    /// Sends LOG to the backups of both shards on behalf of the coordinator: they ack there.
    fn log_for(&self, open: &mut OpenTxn<F>, coordinator: EngineId) {
        let OpenTxn { txn, shards, updates, keys, delegated, .. } = open;
        let concerned = self.concerned(shards);
        let logs = self.node.delegated_logs(txn, shards, concerned, coordinator.node);
        let mut selected = None;
        // There are as many requests as LOGs: see `check_ship`.
        for ((shard, backup), &request) in logs.zip(&*delegated) {
            if selected.replace(shard) != Some(shard) {
                keys.of(shard, shards.of(txn, Entry::is_updated));
            }
            if !keys.is_empty() {
                let asker = ReplyTo { engine: coordinator, request };
                // The engine for which the coordinator has opened the request.
                let to = self.fabric.view().nic_of(backup, coordinator.core);
                let log = Log { txn, shard, updated: updates.told(), keys };
                self.fabric.send_on_behalf_of(asker, to, &log);
            }
        }
    }

    /// Must this node have the LOG of its own shard before it answers `coordinator`, that backs the
    /// shard up? AMB-50
    fn logs_here(&self, open: &OpenTxn<F>, coordinator: NodeId) -> bool {
        let writes = open.txn.entries().iter().any(|entry| entry.write);
        let own = self.node.shard();
        writes && own.is_some_and(|own| self.node.logs_at_primary(coordinator, own))
    }

    /// Logs what is written to this node's shard, as its backups do. It is refused only if the
    /// coordinator's life is over, who then counts no acks: a recovery decides.
    async fn log_here(&self, open: &mut OpenTxn<F>) {
        let OpenTxn { txn, shards, updates, keys, .. } = open;
        let Some(shard) = self.node.shard() else { return };
        keys.of(shard, shards.of(txn, Entry::is_updated));
        if keys.is_empty() {
            return;
        }
        let log = Log { txn, shard, updated: updates.told(), keys };
        let here = self.fabric.here();
        while let Err(FabricError::NoResources) = self.fabric.call(here, &log, Timeout::Never).await
        {
            self.fabric.sleep_until(self.fabric.now() + SLOT_WAIT).await;
        }
    }

    /// Answers a SHIP, and the requests for its outcome that came meanwhile.
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

    /// COMMIT has come: the outcome will not be asked for again.
    pub(super) fn forget(&self, id: TxnId) {
        if let Some(RemoteExecution::Executed(open)) = self.shipped.borrow_mut().remove(&id) {
            self.txns.close(open);
        }
    }
}
