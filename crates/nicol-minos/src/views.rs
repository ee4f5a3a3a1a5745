//! What an engine knows of its view: who its followers are, and which of their engines work with
//! it.

use std::sync::Arc;

use nicol_core::fabric::{Fabric, Message};
use nicol_core::ids::{EngineId, Key, NodeId, Side};
use nicol_core::view::Role;

use super::node::Node;
use super::send::tell_each;

/// The view that an engine knows: its members, and the engines that work with this one.
pub(super) struct Views<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
}

impl<F: Fabric> Views<F> {
    pub(super) fn new(fabric: &F, node: &Arc<Node>) -> Self {
        Self { fabric: fabric.clone(), node: node.clone() }
    }

    /// The other nodes that hold `key` and are members of the view.
    pub(super) fn followers(&self, key: Key) -> Vec<NodeId> {
        let view = self.fabric.view();
        let holds = |node: &NodeId| self.node.holds(view, *node, key);
        view.nodes_of(Role::Server).filter(holds).filter(|node| self.is_follower(*node)).collect()
    }

    /// Every other member of the view.
    pub(super) fn all_followers(&self) -> Vec<NodeId> {
        let servers = self.fabric.view().nodes_of(Role::Server);
        servers.filter(|node| self.is_follower(*node)).collect()
    }

    fn is_follower(&self, node: NodeId) -> bool {
        node != self.fabric.here().node && self.is_member(node)
    }

    /// Whether both sides of `node` are members of the view. Otherwise nobody sends it writes, and
    /// it serves none.
    pub(super) fn is_member(&self, node: NodeId) -> bool {
        let view = self.fabric.view();
        [Side::Host, Side::Nic].into_iter().all(|side| view.side(node, side).up)
    }

    /// The engines of `nodes` that work with this one.
    pub(super) fn peers(&self, nodes: &[NodeId]) -> Vec<EngineId> {
        nodes.iter().map(|node| self.peer(*node)).collect()
    }

    fn peer(&self, node: NodeId) -> EngineId {
        let view = self.fabric.view();
        let core = self.fabric.here().core;
        match self.node.config().side() {
            Side::Nic => view.nic_of(node, core),
            Side::Host => EngineId::host(node, core % view.engines(node, Side::Host) as u8),
        }
    }

    /// Sends `message` to each of `nodes`.
    pub(super) fn tell_each<M: Message + Copy + 'static>(&self, nodes: &[NodeId], message: M) {
        tell_each(&self.fabric, &self.peers(nodes), message, self.node.config().fanout());
    }

    /// The epoch of this engine's view.
    pub(super) fn epoch(&self) -> u64 {
        u64::from(self.fabric.view().epoch().0)
    }

    /// Waits until this engine knows the view of `epoch`; false if it knows a later one. What was
    /// sent in an earlier view is sent again in this one, to those that are members of it. AMB-20
    pub(super) async fn is_current(&self, epoch: u64) -> bool {
        let changes = self.fabric.view_changes();
        loop {
            let change = changes.wait();
            let own = self.epoch();
            if own >= epoch {
                return own == epoch;
            }
            change.await;
        }
    }
}
