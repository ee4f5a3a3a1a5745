//! How a replica comes back; broken on purpose, one that serves before it has copied anything.

use std::sync::Arc;

use nicol_core::fabric::Fabric;
use nicol_core::view::View;

use super::Sabotage;
use crate::rs::node::Node;
use crate::rs::rejoin::rejoin;
use crate::rs::replica::Replica;
use crate::tag::Tag;

/// Lets `node` serve again, in its next life.
pub(crate) fn start<F: Fabric>(fabric: &F, node: &Arc<Node>) {
    if node.config().sabotage == Sabotage::RejoinsEmpty {
        let mut replica = Replica::new(node.config(), fabric.view().nodes());
        fill(node, fabric.view(), &mut replica);
        return node.serve_again(replica);
    }
    fabric.spawn(rejoin(fabric.clone(), Arc::clone(node)));
}

/// Takes every block that `node` replicates for as many zeros.
fn fill(node: &Node, view: &View, replica: &mut Replica) {
    let zero = vec![0; node.config().value_bytes as usize];
    let held = view.shard_ids().filter(|&shard| view.replicas_of(shard).contains(&node.id()));
    for block in held.flat_map(|shard| node.blocks_of(shard)) {
        replica.load(block, Tag::LOADED, &zero);
    }
}
