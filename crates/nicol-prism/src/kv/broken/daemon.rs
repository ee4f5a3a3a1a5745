//! The daemon of a server that is broken on purpose.

use std::sync::Arc;

use nicol_core::fabric::Fabric;

use super::Sabotage;
use crate::kv::node::Node;
use crate::recycling;

/// Starts the daemon of a server; broken on purpose, one that does not look for what clients have
/// left that have died.
pub(crate) fn start<F: Fabric>(fabric: &F, node: &Arc<Node>) {
    match node.config().sabotage {
        Sabotage::ForgetsTheDead => recycling::start_filling(fabric, node),
        _ => recycling::start(fabric, node),
    }
}
