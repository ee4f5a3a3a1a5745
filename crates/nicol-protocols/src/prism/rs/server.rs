//! What a server's host engines do: tell clients what they may reach, recycle buffers, and let
//! replicas that have come back copy. No GET or PUT needs them.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, FabricError, ReplyTo, Service};
use nicol_core::ids::NodeId;
use nicol_core::wire::Malformed;

use super::node::Node;
use super::replica::Replica;
use crate::kit::count;
use crate::prism::messages::{Done, HELLO, REJOIN, Rejoin, UNUSED, parse_report};
use crate::prism::recycling::{self, scan_later};

/// A host engine of a server.
pub(super) struct Server<F> {
    fabric: F,
    node: Arc<Node>,
}

impl<F: Fabric> Server<F> {
    /// Starts one: it answers once its node has blocks.
    pub(super) fn start(fabric: &F, node: &Arc<Node>) {
        let server = Rc::new(Self { fabric: fabric.clone(), node: Arc::clone(node) });
        assert!(fabric.serve(server), "an engine runs one system");
        if fabric.here().core == 0 {
            recycling::start(fabric, node);
        }
    }

    /// REJOIN: answers with what the sender may copy, once no client can count an acknowledgement
    /// of its last life any more.
    fn rejoin(
        &self,
        replica: Arc<Replica>,
        from: NodeId,
        body: &[u8],
        to: ReplyTo,
    ) -> Result<(), Malformed> {
        let Rejoin(life) = Rejoin::parse(body)?;
        let (fabric, node) = (self.fabric.clone(), self.node.clone());
        self.fabric.spawn(async move {
            replica.fence(&fabric, from, life).await;
            fabric.reply(to, &replica.open(&fabric, node.id(), fabric.incarnation()));
        });
        Ok(())
    }

    /// UNUSED: posts what it reports. [PRISM21 3.2, 6.1]
    fn recycle(&self, replica: &Replica, body: &[u8]) -> Result<(), Malformed> {
        let (suspects, unused) = parse_report(body)?;
        let posted = replica.pool.post(&self.fabric, &unused);
        (0..posted).for_each(|_| count(&self.node.recycled.posted));
        replica.pool.refill(&self.fabric);
        // One that does not count may be of a use under a tag that the buffer has had before.
        if suspects || posted < unused.len() {
            scan_later(&self.fabric, &self.node);
        }
        Ok(())
    }
}

impl<F: Fabric> Service for Server<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let to = delivery.reply_to.ok_or(Malformed { what: "a request" })?;
        let Some(replica) = self.node.serving() else {
            // Its blocks are not copied yet, or there are none.
            self.fabric.refuse(to, FabricError::NoResources);
            return Ok(());
        };
        match delivery.kind {
            HELLO => {
                let life = self.fabric.incarnation();
                self.fabric.reply(to, &replica.open(&self.fabric, self.node.id(), life));
                Ok(())
            }
            REJOIN => self.rejoin(replica, delivery.from.node, delivery.body, to),
            UNUSED => {
                self.recycle(&replica, delivery.body)?;
                self.fabric.reply(to, &Done);
                Ok(())
            }
            _ => Err(Malformed { what: "no such message" }),
        }
    }
}
