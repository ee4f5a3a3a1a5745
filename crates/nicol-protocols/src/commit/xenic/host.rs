//! The host side of a coordinator: begins transactions, runs the application's logic.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::commit::CommitProtocol;
use nicol_core::fabric::{Fabric, FabricError, Message, Work};
use nicol_core::ids::{EngineId, TxnId};
use nicol_core::txn::{Abort, Outcome, Procedures, Txn, Verdict};

use super::coordinator::SLOT_WAIT;
use super::log_acks::LogAcks;
use super::messages::{TxnAbort, TxnCommit, TxnExecute, TxnRequest, parse_host_reply};
use super::node::Node;
use super::{ExecuteAt, ROUNDS_MAX};

/// A host coordinator thread's handle. [Xenic21 4.2: A]
#[derive(Clone, Debug)]
pub struct Coordinator<F: Fabric> {
    pub(super) fabric: F,
    pub(super) procedures: Rc<Procedures>,
    pub(super) node: Arc<Node>,
    /// A value on its way from the table into a transaction.
    pub(super) scratch: Rc<RefCell<Vec<u8>>>,
    pub(super) acks: Rc<LogAcks<F>>,
    sequence: Rc<Cell<u64>>,
}

impl<F: Fabric> Coordinator<F> {
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

    /// An id for one attempt at the NIC.
    pub(super) fn next_id(&self) -> TxnId {
        self.sequence.set(self.sequence.get() + 1);
        TxnId::new(self.fabric.here(), self.sequence.get())
    }

    /// The core of this node's NIC that coordinates a transaction. [Xenic21 4.3.2]: flows are
    /// routed to cores.
    pub(super) fn nic(&self, txn: TxnId) -> EngineId {
        self.fabric.view().nic_for(self.fabric.here(), txn.sequence())
    }

    /// Calls the NIC about an open transaction. Waits for a call slot, because dropping the message
    /// could leak locks.
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

    /// Gives a transaction up at the NIC.
    async fn give_up(&self, txn: TxnId) -> Result<(), FabricError> {
        let reply = self.call_about(txn, &TxnAbort(txn)).await?;
        let ended = parse_host_reply(reply.as_ref(), &mut Txn::default());
        ended.map(drop).map_err(|_| FabricError::Malformed)
    }

    /// The coordinator NIC executed everything: only the outcome comes back. [Xenic21 4.2.2]
    async fn run_shipped(&self, txn: &mut Txn) -> Outcome {
        let request = TxnRequest { txn, ship: true };
        let reply = self.acks.call(self.nic(txn.id), &request).await;
        let ended = match reply {
            Ok(reply) => parse_host_reply(reply.as_ref(), txn).map_err(|_| FabricError::Malformed),
            Err(error) => Err(error),
        };
        match ended {
            Ok(Some(outcome)) => outcome,
            Ok(None) => Outcome::Unknown,
            Err(FabricError::NoResources) => Outcome::Aborted(Abort::NoResources),
            Err(_) => Outcome::Unknown,
        }
    }

    async fn run_on_host(&self, txn: &mut Txn) -> Result<Outcome, FabricError> {
        // [Xenic21 4.2 step 1] Send the initial state to the local SmartNIC, which EXECUTEs.
        let reply = {
            let request = TxnRequest { txn, ship: false };
            self.acks.call(self.nic(txn.id), &request).await?
        };
        let mut ended =
            parse_host_reply(reply.as_ref(), txn).map_err(|_| FabricError::Malformed)?;
        for _ in 0..ROUNDS_MAX {
            if let Some(outcome) = ended {
                return Ok(outcome);
            }
            // [Xenic21 4.2 step 3] The application computes the write set from what was read.
            self.fabric.work(Work::Execute { keys: txn.entries().len() as u16 });
            match self.procedures.execute(txn) {
                Verdict::More => ended = self.execute_more(txn).await?,
                Verdict::Commit => return self.commit(txn).await,
                Verdict::Refuse => {
                    self.give_up(txn.id).await?;
                    return Ok(Outcome::Aborted(Abort::Refused));
                }
            }
        }
        self.give_up(txn.id).await?;
        Ok(Outcome::Aborted(Abort::NoResources))
    }

    async fn execute_more(&self, txn: &mut Txn) -> Result<Option<Outcome>, FabricError> {
        let reply = self.call_about(txn.id, &TxnExecute(txn)).await?;
        parse_host_reply(reply.as_ref(), txn).map_err(|_| FabricError::Malformed)
    }

    async fn commit(&self, txn: &mut Txn) -> Result<Outcome, FabricError> {
        let reply = self.call_about(txn.id, &TxnCommit(txn)).await?;
        let ended = parse_host_reply(reply.as_ref(), txn).map_err(|_| FabricError::Malformed)?;
        Ok(ended.unwrap_or(Outcome::Unknown))
    }
}

impl<F: Fabric> CommitProtocol for Coordinator<F> {
    async fn run(&self, txn: &mut Txn) -> Outcome {
        txn.id = self.next_id();
        self.fabric.work(Work::TxnSetup);
        // [Xenic21 4.2.4] Local transactions execute optimistically on the host.
        if let Some(outcome) = self.run_local(txn).await {
            return outcome;
        }
        let ship = match self.node.config().execute_at {
            ExecuteAt::Host => false,
            ExecuteAt::Annotation => txn.ship,
            ExecuteAt::Nic => true,
        };
        if ship {
            return self.run_shipped(txn).await;
        }
        match self.run_on_host(txn).await {
            Ok(outcome) => outcome,
            Err(FabricError::NoResources) => Outcome::Aborted(Abort::NoResources),
            // The NIC of this node does not answer: whether it has committed is not known here.
            Err(_) => Outcome::Unknown,
        }
    }
}
