//! How the engines of a node start.

use std::sync::Arc;

use nicol_core::commit::CommitNode;
use nicol_core::fabric::Fabric;
use nicol_core::history::Promise;
use nicol_core::ids::Side;
use nicol_core::txn::Procedures;
use nicol_kit::follow_views;

use super::broken::front::Front;
use super::broken::server::service;
use super::config::Staging;
use super::coordinator::Coordinator;
use super::node::Node;
use super::recovery::end_what_is_left;
use super::server::Server;

impl CommitNode for Node {
    type Coordinator<F: Fabric> = Front<F>;

    const SCANS: bool = false;

    /// "PRISM-TX ensures serializability: transactions appear to execute in timestamp order", and
    /// clocks are only loosely synchronized. [PRISM21 8.2]
    const PROMISE: Promise = Promise::Serializable;

    fn start<F: Fabric>(self: &Arc<Self>, fabric: &F, procedures: &Procedures) -> Option<Front<F>> {
        if fabric.here().side == Side::Nic {
            // It executes chains where the card does not, without knowing what they are about.
            return None;
        }
        let node = self.clone();
        fabric.spawn(follow_views(fabric.clone(), move |view| node.lost().learn(view)));
        if self.is_server() {
            fabric.serve(service(fabric, self, Server::start(fabric.clone(), self.clone())));
            if fabric.here().core == 0 && self.config().staging == Staging::AtPrepare {
                fabric.spawn(end_what_is_left(fabric.clone(), self.clone()));
            }
        }
        Some(Front::new(Coordinator::new(fabric, self, procedures)))
    }
}
