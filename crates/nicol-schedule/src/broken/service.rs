//! The service that loses requests, and mixes them up.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use nicol_core::fabric::{Delivery, Fabric, Service};
use nicol_core::wire::Malformed;

use super::Sabotage;
use crate::config::{Completion, Kind};
use crate::decision::OPEN_MAX;
use crate::messages::{DATA, DATA_ID, ENTRY, REQUEST, VECTOR, WORK};
use crate::server::{Executor, QUEUE_MAX, Server};

/// Requests that wait in a queue which a broken worker loses.
const LONG: usize = 64;

/// What serves an engine's messages; a service that spoils requests stands before `server` where
/// that is asked for.
pub(crate) fn service<F: Fabric, X: Executor>(server: &Rc<Server<F, X>>) -> Rc<dyn Service> {
    let server = Rc::clone(server);
    match server.shared().config.sabotage {
        Sabotage::None => server,
        sabotage => Rc::new(Broken { server, sabotage, data: RefCell::default() }),
    }
}

/// A server that spoils requests.
struct Broken<F: Fabric, X: Executor> {
    server: Rc<Server<F, X>>,
    sabotage: Sabotage,
    /// By client slot: the data that came last.
    data: RefCell<BTreeMap<[u8; 8], Vec<u8>>>,
}

impl<F: Fabric, X: Executor> Broken<F, X> {
    /// True if a request that comes with a message of this kind is forgotten.
    fn forgets(&self, kind: u16) -> bool {
        let (server, shared) = (&self.server, self.server.shared());
        let queue_is_full = || server.queue().borrow().len() == QUEUE_MAX;
        match (self.sabotage, kind) {
            (Sabotage::DropsWhenFull, REQUEST | WORK | ENTRY)
            | (Sabotage::RefusesSilently, WORK | ENTRY) => queue_is_full(),
            (Sabotage::RefusesSilently, REQUEST | VECTOR) => match shared.config.kind {
                Kind::RoundRobin | Kind::StaticPartition => queue_is_full(),
                Kind::Strife => server.batch_is_full(),
                Kind::Alnico | Kind::AlnicoCpu2 | Kind::AlnicoCpuN => {
                    let refuses = shared.config.completion == Completion::Reply;
                    let scheduler = &shared.assignments().scheduler;
                    let is_full = |worker| scheduler.queued(worker) == OPEN_MAX;
                    refuses && (0..shared.ordinary()).all(is_full)
                }
            },
            (Sabotage::DropsBeforeVectors, REQUEST | VECTOR) => {
                shared.config.kind.weighs_features() && shared.assignments().scheduler.epoch() == 0
            }
            _ => false,
        }
    }
}

impl<F: Fabric, X: Executor> Broken<F, X> {
    /// Hands over the data of the request before, under the id of this one.
    fn deliver_old(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let slot = delivery.body.first_chunk().copied();
        let (Some(slot), Some(id)) = (slot, delivery.body.get(DATA_ID)) else {
            return Err(Malformed { what: "the data of a request" });
        };
        let before = self.data.borrow_mut().insert(slot, delivery.body.to_vec());
        let mut body = before.unwrap_or_else(|| delivery.body.to_vec());
        body[DATA_ID].copy_from_slice(id);
        self.server.deliver(Delivery { body: &body, ..delivery })
    }
}

impl<F: Fabric, X: Executor> Service for Broken<F, X> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        if (self.sabotage, delivery.kind) == (Sabotage::ExecutesOldData, DATA) {
            return self.deliver_old(delivery);
        }
        if self.sabotage == Sabotage::LosesQueue && self.server.queue().borrow().len() > LONG {
            self.server.queue().borrow_mut().clear();
        }
        match self.forgets(delivery.kind) {
            true => Ok(()),
            false => self.server.deliver(delivery),
        }
    }
}
