//! Which host engine coordinates a client's transaction: its own or, with a scheduler before the
//! node's coordinators, the one that is advised. [AlNiCo22]
//!
//! Clients of a node send their transactions to the node's scheduler, a NIC core or what
//! [`Kind`](nicol_schedule::Kind) says, as clients of engines do. The host engine that gets one
//! runs it as its own, until it has committed or refuses. Locks and versions are Xenic's: any
//! assignment is serializable.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::commit::CommitProtocol;
use nicol_core::fabric::{Delivery, Fabric, Service};
use nicol_core::txn::{Abort, Outcome, Procedures, Txn};
use nicol_core::wire::Malformed;
use nicol_schedule::{Client, Executor, Shared, is_scheduling};

use super::host::HostCoordinator;

/// What runs the transactions of a client.
pub struct Submitter<F: Fabric>(Way<F>);

enum Way<F: Fabric> {
    Here(HostCoordinator<F>),
    Scheduled(Client<F>),
}

impl<F: Fabric> Submitter<F> {
    pub(super) const fn here(coordinator: HostCoordinator<F>) -> Self {
        Self(Way::Here(coordinator))
    }

    pub(super) fn scheduled(fabric: &F, shared: &Arc<Shared>, procedures: &Procedures) -> Self {
        Self(Way::Scheduled(Client::new(fabric, shared, procedures, fabric.here().node)))
    }
}

impl<F: Fabric> Clone for Submitter<F> {
    fn clone(&self) -> Self {
        Self(match &self.0 {
            Way::Here(coordinator) => Way::Here(coordinator.clone()),
            Way::Scheduled(client) => Way::Scheduled(client.clone()),
        })
    }
}

impl<F: Fabric> CommitProtocol for Submitter<F> {
    async fn run(&self, txn: &mut Txn) -> Outcome {
        match &self.0 {
            Way::Here(coordinator) => coordinator.run(txn).await,
            Way::Scheduled(client) => client.run(txn).await,
        }
    }
}

impl<F: Fabric> Executor for HostCoordinator<F> {
    type Ended = ();

    type Left = ();

    async fn once(&self, txn: &mut Txn, (): &mut ()) -> (Outcome, ()) {
        (self.run(txn).await, ())
    }

    fn must_wait(&self, (): &()) -> bool {
        false
    }

    async fn is_durable(&self, (): ()) -> bool {
        true
    }
}

/// What a NIC core executes of what it schedules: nothing.
struct Nothing;

impl Executor for Nothing {
    type Ended = ();

    type Left = ();

    async fn once(&self, _: &mut Txn, (): &mut ()) -> (Outcome, ()) {
        (Outcome::Aborted(Abort::NoResources), ())
    }

    fn must_wait(&self, (): &()) -> bool {
        false
    }

    async fn is_durable(&self, (): ()) -> bool {
        true
    }
}

/// An engine's own service, and beside it its part in scheduling.
struct Both {
    own: Rc<dyn Service>,
    scheduling: Rc<dyn Service>,
}

impl Service for Both {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let to = if is_scheduling(delivery.kind) { &self.scheduling } else { &self.own };
        to.deliver(delivery)
    }
}

/// Serves as `own` does, and schedules if `shared` says so, with `coordinator` on a host engine.
pub(super) fn serve<F: Fabric>(
    fabric: &F,
    shared: Option<&Arc<Shared>>,
    own: Rc<dyn Service>,
    coordinator: Option<&HostCoordinator<F>>,
) {
    let service: Rc<dyn Service> = match (shared, coordinator) {
        (None, _) => own,
        (Some(shared), Some(coordinator)) => {
            let scheduling = nicol_schedule::service(fabric, shared, coordinator.clone());
            Rc::new(Both { own, scheduling })
        }
        (Some(shared), None) => {
            Rc::new(Both { own, scheduling: nicol_schedule::service(fabric, shared, Nothing) })
        }
    };
    let first = fabric.serve(service);
    assert!(first, "an engine runs one system");
}
