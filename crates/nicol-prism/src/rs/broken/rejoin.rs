//! A replica that has come back, and serves before it has copied anything.

use nicol_core::view::View;

use crate::rs::node::Node;
use crate::rs::replica::Replica;
use crate::tag::Tag;

/// Takes every block that `node` replicates for as many zeros.
pub(in crate::rs) fn fill(node: &Node, view: &View, replica: &mut Replica) {
    let zero = vec![0; node.config().value_bytes as usize];
    let held = view.shard_ids().filter(|&shard| view.replicas_of(shard).contains(&node.id()));
    for block in held.flat_map(|shard| node.blocks_of(shard)) {
        replica.load(block, Tag::LOADED, &zero);
    }
}
