//! A server that spoils PUTs and DELETEs: it stands before the true one.

use std::rc::Rc;
use std::sync::Arc;

use nicol_core::fabric::{Delivery, Fabric, FabricError, ReplyTo, Service, Work};
use nicol_core::units::Nanos;
use nicol_core::wire::Malformed;

use super::Sabotage;
use crate::pilaf::layout::{ENTRY, Entry};
use crate::pilaf::messages::{ASK, Answer, Ask, What};
use crate::pilaf::node::Node;
use crate::pilaf::server::{Server, put};
use crate::pilaf::table::probes;

/// One PUT in so many is lost by the fault that loses some.
const LOST_ONE_IN: u64 = 8;
/// Delay of a PUT that is acknowledged early.
const GAP: Nanos = Nanos::from_micros(10);

/// The service of a server's host engine: the true one, unless a planted fault stands before it.
pub(in crate::pilaf) fn service<F: Fabric>(fabric: &F, node: &Arc<Node>) -> Rc<dyn Service> {
    let server = Server { fabric: fabric.clone(), node: Arc::clone(node) };
    match node.config().sabotage {
        Sabotage::None => Rc::new(server),
        sabotage => Rc::new(BrokenServer { server, sabotage }),
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

    /// Makes a DELETE that leaves its entry as if it had never held anything.
    fn delete_and_empty(&self, to: ReplyTo, key: &[u8]) {
        let (fabric, node, key) =
            (self.server.fabric.clone(), self.server.node.clone(), key.to_vec());
        let working = node.begin();
        self.server.fabric.spawn(async move {
            fabric.access().await;
            {
                let mut table = node.table();
                let is_its = |index: &u64| match table.entry(*index) {
                    Entry::Item(extent) => table.item(&extent).is_some_and(|item| item.0 == key),
                    Entry::Unused | Entry::Deleted => false,
                };
                let entry = probes(node.config(), &key).find(is_its);
                let removed = table.remove(&key);
                let empty = |entry| table.region.write(entry * ENTRY, &Entry::Unused.emit());
                match removed.and_then(|()| entry.map_or(Ok(()), empty)) {
                    Ok(()) => fabric.reply(to, &Answer(None)),
                    Err(_) => fabric.refuse(to, FabricError::Unreachable),
                }
            }
            drop(working);
        });
    }
}

impl<F: Fabric> Service for BrokenServer<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let (ASK, Some(to)) = (delivery.kind, delivery.reply_to) else {
            return self.server.deliver(delivery);
        };
        let Ask { key, what } = Ask::parse(delivery.body)?;
        match (self.sabotage, what) {
            (Sabotage::AcknowledgesEarly | Sabotage::LosesPuts, What::Put(value))
                if self.answer_early(to, key, value) =>
            {
                return Ok(());
            }
            (Sabotage::KeepsExtents, What::Put(_)) => {
                let _nobody_s = self.server.node.table().take(0);
            }
            (Sabotage::EmptiesEntries, What::Delete) => {
                self.delete_and_empty(to, key);
                return Ok(());
            }
            _ => {}
        }
        self.server.deliver(delivery)
    }
}
