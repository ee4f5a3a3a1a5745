//! How the engines of a node start.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::commit::CommitNode;
use nicol_core::fabric::{Fabric, Service};
use nicol_core::ids::Side;
use nicol_core::txn::Procedures;

use super::broken::owner;
use super::coordinator::Coordinator;
use super::host::HostEngine;
use super::local_log::LocalLog;
use super::log_acks::{Acknowledged, Retained};
use super::node::Node;
use super::reach::Reach;
use super::rpc::Rpc;
use super::server::Server;
use super::worker::Worker;
use crate::log::LogMemory;
use crate::log_worker::apply_log;

impl CommitNode for Node {
    type Coordinator<F: Fabric> = Coordinator<F>;

    const SCANS: bool = true;

    /// Starts a baseline on one engine of `node`: a host engine coordinates, serves and applies
    /// logs; a NIC engine has nothing to do, since the NIC executes verbs by itself.
    fn start<F: Fabric>(
        self: &Arc<Self>,
        fabric: &F,
        procedures: &Procedures,
    ) -> Option<Coordinator<F>> {
        let here = fabric.here();
        assert!(here.node == self.id(), "an engine starts with its own node's memory");
        if here.side == Side::Nic {
            return None;
        }
        let owner = owner(fabric, self);
        let reach = Rc::new(Reach::new(fabric.clone(), self.clone()));
        let rpc = Rc::new(Rpc::new(fabric.clone(), self.clone(), reach.clone()));
        let log = LocalLog::new(fabric.clone(), reach.clone(), self.log_of(here).clone());
        let acknowledged = Rc::new(Acknowledged::default());
        let engine =
            HostEngine { owner, log: Rc::new(log), acknowledged: acknowledged.clone(), reach, rpc };
        let server = Server::new(fabric.clone(), self.clone(), engine.clone());
        let service: Rc<dyn Service> = Rc::new(server);
        let first = fabric.serve(service.clone());
        assert!(first, "an engine runs one system");
        let (own, node) = (fabric.clone(), self.clone());
        let apply = move |log: &Arc<LogMemory>| {
            acknowledged.add(log.clone());
            let retained = node.config().log_acks.then(|| Retained::new(acknowledged.clone()));
            let worker = Worker { fabric: own.clone(), node: node.clone(), retained };
            own.spawn(apply_log(own.clone(), log.clone(), worker));
        };
        apply(self.log_of(here));
        let (node, HostEngine { reach, rpc, .. }) = (self.clone(), engine.clone());
        fabric.spawn(async move {
            let read = |other| {
                apply(node.log_of(reach.engine_of(other)));
                rpc.start(&service, other);
            };
            reach.read_granted(read).await;
        });
        Some(Coordinator::new(fabric, self, procedures, engine))
    }
}
