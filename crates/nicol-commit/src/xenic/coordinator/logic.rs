//! Execution logic: on this core or at the host, where the coordinator waits while its transaction
//! is there. [Xenic21 4.2.2]

use std::cell::RefCell;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, FabricError, ReplyTo, Work};
use nicol_core::ids::{IdMap, TxnId};
use nicol_core::txn::{Abort, ProcedureId, Procedures, Verdict};
use nicol_core::wire::Malformed;
use nicol_kit::Computed;

use crate::xenic::config::ROUNDS_MAX;
use crate::xenic::messages::{HostReply, parse_txn_commit, parse_txn_execute, parse_txn_id};
use crate::xenic::node::{Node, OwnInserts};
use crate::xenic::open_txn::{InHand, OpenTxn};

/// The execution logic of one NIC engine's transactions.
pub(super) struct Logic<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    procedures: Procedures,
    /// The transactions whose hosts are executing.
    at_host: RefCell<IdMap<TxnId, Box<OpenTxn<F>>>>,
    /// Procedures that have asked for further keys: they are not shipped again.
    multi_round: RefCell<Vec<ProcedureId>>,
}

impl<F: Fabric> Logic<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>, procedures: Procedures) -> Self {
        let (at_host, multi_round) = (RefCell::default(), RefCell::default());
        Self { fabric, node, procedures, at_host, multi_round }
    }

    /// One round of it, where the transaction says.
    pub(super) async fn compute(&self, open: &mut InHand<F>) -> Result<Computed, Abort> {
        let _phase = self.fabric.phase("step 3: execution logic");
        if open.rounds == ROUNDS_MAX {
            return Err(Abort::NoResources);
        }
        open.rounds += 1;
        let verdict = if open.txn.ship {
            self.fabric.work(Work::Execute { keys: open.txn.entries().len() as u16 });
            let verdict = OwnInserts::of(&self.node).execute(&self.procedures, &mut open.txn);
            open.place_keys(&self.node);
            verdict
        } else {
            self.execute_at_host(open).await
        };
        Computed::of(verdict)
    }

    /// One round on this core, of a transaction that one primary executes alone.
    pub(super) fn execute_here(&self, open: &mut OpenTxn<F>) -> Verdict {
        self.fabric.work(Work::Execute { keys: open.txn.entries().len() as u16 });
        let verdict = self.procedures.execute(&mut open.txn);
        open.place_keys(&self.node);
        verdict
    }

    /// Has `procedure` asked for further keys before?
    pub(super) fn is_multi_round(&self, procedure: ProcedureId) -> bool {
        self.multi_round.borrow().contains(&procedure)
    }

    /// `procedure` has asked for further keys.
    pub(super) fn remember_multi_round(&self, procedure: ProcedureId) {
        if !self.is_multi_round(procedure) {
            self.multi_round.borrow_mut().push(procedure);
        }
    }

    /// Hands what was read to the host, and waits for what it has decided. [Xenic21 4.2 step 3]
    async fn execute_at_host(&self, open: &mut InHand<F>) -> Verdict {
        let executed = HostReply::Executed { txn: &open.txn, fetched: &open.fetched };
        self.fabric.reply(open.host, &executed);
        let (id, turn) = (open.txn.id, open.turn.wait());
        let previous = self.at_host.borrow_mut().insert(id, open.lend());
        assert!(previous.is_none(), "a transaction id is used once");
        turn.await;
        let returned = self.at_host.borrow_mut().remove(&id);
        let Some(returned) = returned else {
            panic!("a transaction at its host is taken back by its coordinator only");
        };
        open.take_back(returned);
        match open.decided.take() {
            Some(verdict) => verdict,
            None => panic!("a coordinator is woken when its host has decided"),
        }
    }

    /// The host has executed a transaction that waits for it, and sends what it has decided.
    pub(super) fn host_decided(
        &self,
        delivery: Delivery<'_>,
        host: ReplyTo,
        verdict: Verdict,
    ) -> Result<(), Malformed> {
        let id = parse_txn_id(delivery.body)?;
        let mut at_host = self.at_host.borrow_mut();
        let Some(open) = at_host.get_mut(&id).filter(|open| open.decided.is_none()) else {
            self.fabric.refuse(host, FabricError::Unreachable);
            return Ok(());
        };
        match verdict {
            Verdict::More => {
                parse_txn_execute(delivery.body, &mut open.txn)?;
                open.place_keys(&self.node);
            }
            Verdict::Commit => {
                parse_txn_commit(delivery.body, &mut open.txn)?;
                open.place_keys(&self.node);
                if !OwnInserts::of(&self.node).are_all_of(&open.txn) {
                    return Err(Malformed { what: "an own record of another node's tables" });
                }
            }
            Verdict::Refuse => {}
        }
        open.host = host;
        open.decided = Some(verdict);
        open.turn.notify();
        Ok(())
    }
}
