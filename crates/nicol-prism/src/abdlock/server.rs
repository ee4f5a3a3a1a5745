//! What a server's host engines do: tell clients what they may reach, and release locks of the
//! dead.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, FabricError, Service};
use nicol_core::wire::Malformed;
use nicol_kit::Open;

use super::node::Node;
use crate::messages::HELLO;
use crate::recycling::drain;

/// A host engine of a server.
pub(super) struct Server<F> {
    fabric: F,
    node: Arc<Node>,
}

impl<F: Fabric> Server<F> {
    pub(super) fn start(fabric: &F, node: &Arc<Node>) {
        let server = Rc::new(Self { fabric: fabric.clone(), node: Arc::clone(node) });
        assert!(fabric.serve(server), "an engine runs one system");
        if fabric.here().core == 0 {
            fabric.spawn(release_locks_of_the_dead(fabric.clone(), Arc::clone(node)));
        }
    }
}

impl<F: Fabric> Service for Server<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let to = delivery.reply_to.ok_or(Malformed { what: "a request" })?;
        match (delivery.kind, self.node.open_memory(&self.fabric)) {
            (HELLO, Some(handles)) => self.fabric.reply(to, &handles),
            (HELLO, None) => self.fabric.refuse(to, FabricError::NoResources),
            _ => return Err(Malformed { what: "no such message" }),
        }
        Ok(())
    }
}

/// Releases what engines hold whose lives are over, after every view that tells of such, once their
/// verbs have arrived, or never will. Those of whom a later view tells meanwhile have their turn
/// after this.
async fn release_locks_of_the_dead<F: Fabric>(fabric: F, node: Arc<Node>) {
    let changes = fabric.view_changes();
    let mut change = changes.wait();
    loop {
        change.await;
        change = changes.wait();
        let (open, told) = (Open::begin(node.open()), fabric.view().clone());
        drain(&fabric).await;
        node.release_locks_of_the_dead(&told);
        drop(open);
    }
}
