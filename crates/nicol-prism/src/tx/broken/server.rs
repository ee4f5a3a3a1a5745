//! Servers that are broken on purpose: they stand before the true one.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, Service};

use super::Sabotage;
use crate::broken::LosesReports;
use crate::messages::Unused;
use crate::tx::layout::{SLOT, slot_at, word};
use crate::tx::node::Node;
use crate::tx::server::Server;

/// The service of a server's host engine: `server`, unless a planted fault stands before it.
pub(crate) fn service<F: Fabric>(
    fabric: &F,
    node: &Arc<Node>,
    server: Server<F>,
) -> Rc<dyn Service> {
    match node.config().sabotage {
        Sabotage::KeepsOldBuffers => {
            // A buffer that was replaced is reported with where it was, and one that a client has
            // staged with its slot.
            let replaces = |_, one: &Unused| (one.pointer - slot_at(0)) % SLOT == word::ADDR;
            Rc::new(LosesReports::before(fabric, server, replaces))
        }
        _ => Rc::new(server),
    }
}
