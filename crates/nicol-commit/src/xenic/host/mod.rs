//! A host engine: begins transactions, runs the application's logic, and applies what was logged.
//! [Xenic21 4.2: A, E]

mod copies;
mod local;
pub(super) mod log_acks;
pub(super) mod trees;
pub(super) mod worker;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::commit::CommitProtocol;
use nicol_core::fabric::{Fabric, FabricError, Message, Work};
use nicol_core::ids::{EngineId, TxnId};
use nicol_core::steering::Way;
use nicol_core::txn::{Abort, Outcome, Procedures, Txn, Verdict};

use super::config::{ExecuteAt, SLOT_WAIT};
use super::messages::{Answer, TxnAbort, TxnCommit, TxnExecute, TxnRequest, parse_answer};
use super::node::{Node, OwnInserts};
use crate::survivor::Survivor;
use local::AtHost;
use log_acks::LogAcks;

/// A host coordinator thread's handle. [Xenic21 4.2: A]
#[derive(Clone, Debug)]
pub struct HostCoordinator<F: Fabric> {
    fabric: F,
    procedures: Rc<Procedures>,
    node: Arc<Node>,
    /// A value on its way from the table into a transaction.
    scratch: Rc<RefCell<Vec<u8>>>,
    acks: Rc<LogAcks<F>>,
    sequence: Rc<Cell<u64>>,
}

impl<F: Fabric> HostCoordinator<F> {
    pub(super) fn new(
        fabric: F,
        procedures: Procedures,
        node: Arc<Node>,
        acks: Rc<LogAcks<F>>,
    ) -> Self {
        Self {
            fabric,
            procedures: Rc::new(procedures),
            node,
            scratch: Rc::default(),
            acks,
            sequence: Rc::new(Cell::new(0)),
        }
    }

    /// The host engine's fabric.
    pub(super) const fn fabric(&self) -> &F {
        &self.fabric
    }

    /// Runs `txn` at the NIC: step 1 and, unless its logic was shipped, step 3 of the paper.
    ///
    /// Errors: the NIC was not asked (`NoResources`), or whether it has committed is not known
    /// here.
    async fn run_at_nic(&self, txn: &mut Txn, ship: bool) -> Result<Outcome, FabricError> {
        let _phase = self.fabric.phase("step 1: at the NIC");
        // [Xenic21 4.2 step 1] Send the initial state to the local NIC, which EXECUTEs. If the
        // logic was shipped, it executes everything, and only the outcome comes back [4.2.2].
        let mut reply = {
            let request = TxnRequest { txn, ship };
            self.acks.call(self.nic(txn.id), &request).await?
        };
        loop {
            match parse_answer(reply.as_ref(), txn).map_err(|_| FabricError::Malformed)? {
                Answer::Ended(outcome) => return Ok(outcome),
                Answer::Executed if ship => return Err(FabricError::Malformed),
                Answer::Executed => {}
            }
            // [Xenic21 4.2 step 3] The application computes the write set from what was read. The
            // NIC EXECUTEs the keys that it adds in a further round, and limits the rounds.
            self.fabric.work(Work::Execute { keys: txn.entries().len() as u16 });
            reply = match OwnInserts::of(&self.node).execute(&self.procedures, txn) {
                Verdict::More => self.call_about(txn.id, &TxnExecute(txn)).await?,
                Verdict::Commit => self.call_about(txn.id, &TxnCommit(txn)).await?,
                Verdict::Refuse => self.call_about(txn.id, &TxnAbort(txn.id)).await?,
            };
        }
    }

    /// Calls the NIC about a transaction that waits there for its host. Waits for a call slot,
    /// because dropping the message would leave the transaction's locks behind.
    async fn call_about<M: Message>(
        &self,
        txn: TxnId,
        message: &M,
    ) -> Result<F::Payload, FabricError> {
        loop {
            match self.acks.call(self.nic(txn), message).await {
                Err(FabricError::NoResources) => {
                    self.fabric.sleep_until(self.fabric.now() + SLOT_WAIT).await;
                }
                answered => return answered,
            }
        }
    }

    /// An id for one attempt at the NIC.
    fn next_id(&self) -> TxnId {
        self.sequence.set(self.sequence.get() + 1);
        TxnId::new(self.fabric.here(), self.fabric.incarnation(), self.sequence.get())
    }

    /// The core of this node's NIC that coordinates a transaction. [Xenic21 4.3.2]: flows are
    /// routed to cores.
    fn nic(&self, txn: TxnId) -> EngineId {
        self.fabric.view().nic_for(self.fabric.here(), txn.sequence())
    }
}

/// What a transaction's outcome is if its NIC could not be asked, or has not answered.
fn outcome_of(ended: Result<Outcome, FabricError>) -> Outcome {
    match ended {
        Ok(outcome) => outcome,
        Err(FabricError::NoResources) => Outcome::Aborted(Abort::NoResources),
        Err(_) => Outcome::Unknown,
    }
}

impl<F: Fabric> CommitProtocol for HostCoordinator<F> {
    async fn run(&self, txn: &mut Txn) -> Outcome {
        // Others may have gone on without this node, or its NIC is gone.
        if let Err(abort) = self.node.check_lease(&self.fabric) {
            return Outcome::Aborted(abort);
        }
        // [Xenic21 4.2 step 1] A transaction id: node and sequence number.
        txn.id = self.next_id();
        self.fabric.work(Work::TxnSetup);
        // Planned at run time: the first way is the host, the second its NIC.
        let planned = self.node.choice().map(|choice| (choice, choice.take(self.fabric.now())));
        let (may_be_local, ship) = match self.node.config().execute_at {
            ExecuteAt::Host => (true, false),
            ExecuteAt::Annotation => (true, txn.ship),
            ExecuteAt::Nic => (false, true),
            ExecuteAt::Planned(_) => {
                let ship = planned.is_some_and(|(_, taken)| taken.way == Way::Second);
                (!ship, ship)
            }
        };
        // [Xenic21 4.2.4] Local transactions execute optimistically on the host.
        let outcome = match self.run_at_host(txn, may_be_local).await {
            AtHost::Ended(outcome) => outcome,
            AtHost::Elsewhere => outcome_of(self.run_at_nic(txn, ship).await),
        };
        if let (Some((choice, taken)), Outcome::Committed) = (planned, &outcome) {
            choice.ended(taken, self.fabric.now());
        }
        outcome
    }
}
