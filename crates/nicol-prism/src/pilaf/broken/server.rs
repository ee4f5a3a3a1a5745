//! A server that answers PUTs before it makes them, or does not make them: it stands before the
//! true one.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, ReplyTo, Service, Work};
use nicol_core::units::Nanos;
use nicol_core::wire::Malformed;

use super::Sabotage;
use crate::pilaf::messages::{ASK, Answer, Ask, What};
use crate::pilaf::node::Node;
use crate::pilaf::server::{Server, put};

/// One PUT in so many is lost by the fault that loses some.
const LOST_ONE_IN: u64 = 8;
/// Delay of a PUT that is acknowledged early.
const GAP: Nanos = Nanos::from_micros(10);

/// The service of a server's host engine: the true one, unless a planted fault stands before it.
pub(in crate::pilaf) fn service<F: Fabric>(fabric: &F, node: &Arc<Node>) -> Rc<dyn Service> {
    let server = Server { fabric: fabric.clone(), node: Arc::clone(node) };
    match node.config().sabotage {
        sabotage @ (Sabotage::AcknowledgesEarly | Sabotage::LosesPuts) => {
            Rc::new(BrokenServer { server, sabotage })
        }
        _ => Rc::new(server),
    }
}

struct BrokenServer<F> {
    server: Server<F>,
    sabotage: Sabotage,
}

impl<F: Fabric> BrokenServer<F> {
    /// Answers a PUT without having made it; false if it is to be made as it should be.
    fn answer_early(&self, to: ReplyTo, key: &[u8], value: &[u8]) -> bool {
        let (fabric, node) = (self.server.fabric.clone(), self.server.node.clone());
        let loses = self.sabotage == Sabotage::LosesPuts;
        if loses && !fabric.random().is_multiple_of(LOST_ONE_IN) {
            return false;
        }
        let bytes = [key, value].concat();
        let key = key.len();
        fabric.work(Work::TableApply);
        fabric.work(Work::Copy { bytes: bytes.len() as u32 });
        fabric.reply(to, &Answer(None));
        if !loses {
            let working = node.begin();
            self.server.fabric.spawn(async move {
                fabric.sleep_until(fabric.now() + GAP).await;
                // Whoever asked has been answered, whatever becomes of it.
                let _made = put(&fabric, &node, &bytes, key).await;
                drop(working);
            });
        }
        true
    }
}

impl<F: Fabric> Service for BrokenServer<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        if let (ASK, Some(to)) = (delivery.kind, delivery.reply_to)
            && let Ask { key, what: What::Put(value) } = Ask::parse(delivery.body)?
            && self.answer_early(to, key, value)
        {
            return Ok(());
        }
        self.server.deliver(delivery)
    }
}
