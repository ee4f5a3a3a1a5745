//! A NIC engine: its host's messages go to the coordinator's side, other NICs' to the server's.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, Service};
use nicol_core::txn::Procedures;
use nicol_core::wire::Malformed;

use super::coordinator::NicCoordinator;
use super::messages::{
    LOG_ACK, TXN_ABORT, TXN_COMMIT, TXN_EXECUTE, TXN_LOCAL, TXN_REQUEST, parse_log_ack,
};
use super::node::Node;
use super::open_txn::OpenTxns;
use super::server::NicServer;

/// One NIC engine of a node.
pub(super) struct Nic<F: Fabric> {
    pub(super) coordinator: Rc<NicCoordinator<F>>,
    pub(super) server: Rc<NicServer<F>>,
}

impl<F: Fabric> Nic<F> {
    pub(super) fn new(fabric: &F, node: &Arc<Node>, procedures: &Procedures) -> Self {
        let txns = Rc::new(OpenTxns::new(fabric.clone()));
        let (node, procedures) = (node.clone(), procedures.clone());
        let server = NicServer::new(fabric.clone(), node.clone(), procedures.clone(), txns.clone());
        let server = Rc::new(server);
        let coordinator = NicCoordinator::new(fabric.clone(), node, procedures, server.own(), txns);
        Self { coordinator: Rc::new(coordinator), server }
    }
}

impl<F: Fabric> Service for Nic<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        match delivery.kind {
            TXN_REQUEST | TXN_EXECUTE | TXN_COMMIT | TXN_ABORT | TXN_LOCAL => {
                self.coordinator.deliver(delivery)
            }
            LOG_ACK => {
                self.server.take_log_ack(parse_log_ack(delivery.body)?.applied);
                Ok(())
            }
            _ => self.server.deliver(delivery),
        }
    }
}
