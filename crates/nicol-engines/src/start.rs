//! How the engines of a node start.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::commit::CommitNode;
use nicol_core::fabric::Fabric;
use nicol_core::history::Promise;
use nicol_core::ids::{NodeId, Side};
use nicol_core::txn::Procedures;
use nicol_core::view::Role;
use nicol_schedule::Client;

use super::coordinator::{Coordinator, Submitter};
use super::node::Node;
use super::worker::{Protocol, Worker};

impl<P: Protocol> CommitNode for Node<P> {
    type Coordinator<F: Fabric> = Submitter<F, P>;

    const SCANS: bool = true;
    const SCANS_FROM_AFAR: bool = true;
    const PROMISE: Promise = P::PROMISE;

    fn start<F: Fabric>(
        self: &Arc<Self>,
        fabric: &F,
        procedures: &Procedures,
    ) -> Option<Submitter<F, P>> {
        let here = fabric.here();
        let serves = fabric.view().role(here.node) == Some(Role::Server);
        let coordinator = || {
            let worker = Rc::new(Worker::new(fabric.clone(), self.clone()));
            if worker.logs() && here.side == Side::Host {
                fabric.spawn(worker.clone().flush());
            }
            Coordinator::new(worker, procedures)
        };
        match (self.schedule(), here.side) {
            (None, Side::Host) => Some(Submitter::here(coordinator())),
            (None, Side::Nic) => None,
            (Some(shared), Side::Host) if !serves => {
                let client = Client::new(fabric, shared, procedures, NodeId(0));
                Some(Submitter::scheduled(client))
            }
            (Some(shared), _) => {
                if serves {
                    nicol_schedule::start(fabric, shared, coordinator());
                }
                None
            }
        }
    }
}
