//! Servers that are broken on purpose: they stand before the true one.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, Service};
use nicol_core::ids::Incarnation;
use nicol_core::wire::Malformed;

use super::Sabotage;
use crate::broken::LosesReports;
use crate::messages::{HELLO, REJOIN, Rejoin};
use crate::rs::node::Node;
use crate::rs::server::Server;

/// The service of a server's host engine: `server`, unless a planted fault stands before it.
pub(crate) fn service<F: Fabric>(
    fabric: &F,
    node: &Arc<Node>,
    server: Server<F>,
) -> Rc<dyn Service> {
    match node.config().sabotage {
        Sabotage::KeepsOldBuffers => Rc::new(LosesReports::before(fabric, server, |_, _| true)),
        Sabotage::SkipsFence => {
            Rc::new(SkipsFence { fabric: fabric.clone(), node: node.clone(), server })
        }
        Sabotage::CountsTheDead => {
            Rc::new(HidesLives { fabric: fabric.clone(), node: node.clone(), server })
        }
        _ => Rc::new(server),
    }
}

/// A server that lets another one rejoin at once.
struct SkipsFence<F> {
    fabric: F,
    node: Arc<Node>,
    server: Server<F>,
}

impl<F: Fabric> Service for SkipsFence<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        if let (REJOIN, Some(to), Some(replica)) =
            (delivery.kind, delivery.reply_to, self.node.serving())
        {
            let Rejoin(life) = Rejoin::parse(delivery.body)?;
            let (fabric, node) = (&self.fabric, &self.node);
            replica.learn_of(delivery.from.node, life);
            fabric.reply(to, &replica.open(fabric, node.id(), fabric.incarnation()));
            return Ok(());
        }
        self.server.deliver(delivery)
    }
}

/// A server that tells clients of no lives of others: they count what those have acknowledged.
struct HidesLives<F> {
    fabric: F,
    node: Arc<Node>,
    server: Server<F>,
}

impl<F: Fabric> Service for HidesLives<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        if let (HELLO, Some(to), Some(replica)) =
            (delivery.kind, delivery.reply_to, self.node.serving())
        {
            let here = self.node.id();
            let mut handles = replica.open(&self.fabric, here, self.fabric.incarnation());
            let others = (0..).zip(&mut handles.lives).filter(|(node, _)| *node != here.0);
            others.for_each(|(_, life)| *life = Incarnation::FIRST);
            self.fabric.reply(to, &handles);
            return Ok(());
        }
        self.server.deliver(delivery)
    }
}
