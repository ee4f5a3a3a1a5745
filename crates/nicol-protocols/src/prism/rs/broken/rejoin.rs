//! A replica that has come back, and serves before it has copied anything.

use nicol_core::view::View;

use crate::prism::rs::node::Node;
use crate::prism::rs::replica::Replica;
use crate::prism::tag::Tag;

/// Takes every block that `node` replicates for as many zeros.
pub(in crate::prism::rs) fn fill(node: &Node, view: &View, replica: &mut Replica) {
    let zero = vec![0; node.config().value_bytes as usize];
    let held = view.shard_ids().filter(|&shard| view.replicas_of(shard).contains(&node.id()));
    for block in held.flat_map(|shard| node.blocks_of(shard)) {
        replica.load(block, Tag::LOADED, &zero);
    }
}
