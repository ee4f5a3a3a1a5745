//! What every step of a host engine's transactions works with.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::Fabric;
use nicol_core::ids::{NodeId, ShardId};

use crate::rdma_occ::node::Node;
use crate::rdma_occ::owner::Owner;
use crate::rdma_occ::reach::Reach;
use crate::rdma_occ::rpc::Rpc;

/// An engine, its node, and its ways to others.
pub(super) struct Context<F: Fabric> {
    pub(super) fabric: F,
    pub(super) node: Arc<Node>,
    /// This node's own shard: its keys are read, locked and installed in local memory.
    pub(super) owner: Rc<dyn Owner>,
    pub(super) reach: Rc<Reach<F>>,
    pub(super) rpc: Rc<Rpc<F>>,
}

impl<F: Fabric> Context<F> {
    /// The node of the primary of `shard`.
    pub(super) fn primary(&self, shard: ShardId) -> NodeId {
        self.fabric.view().primary(shard)
    }
}
