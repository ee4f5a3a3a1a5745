//! Schedulers broken on purpose, for the checkers' negative tests: a service that stands before a
//! server's own and loses some of its requests. The server itself knows nothing of it.

use std::rc::Rc;

use nicol_core::fabric::{Delivery, Fabric, Service};
use nicol_core::wire::Malformed;

use super::config::{Completion, Kind};
use super::decision::OPEN_MAX;
use super::messages::{REQUEST, WORK};
use super::server::{Executor, QUEUE_MAX, Server};

/// Ways to break a scheduler on purpose, so that runs can show that a lost request is noticed.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
    None,
    /// What is refused is not told so.
    RefusesSilently,
    /// A queue that is full forgets the request that it has no place for.
    DropsWhenFull,
    /// A worker with a long queue forgets what waits there.
    LosesQueue,
    /// What comes before the first vectors is forgotten; vectors come of what aborts, so that none
    /// ever come.
    DropsBeforeVectors,
}

/// Requests that wait in a queue which a broken worker loses.
const LONG: usize = 64;

/// What serves an engine's messages; a service that loses requests stands before `server` where
/// that is asked for.
pub(super) fn service<F: Fabric, X: Executor>(server: &Rc<Server<F, X>>) -> Rc<dyn Service> {
    let server = Rc::clone(server);
    match server.shared().config.sabotage {
        Sabotage::None => server,
        sabotage => Rc::new(Broken { server, sabotage }),
    }
}

/// A server that loses requests.
struct Broken<F: Fabric, X: Executor> {
    server: Rc<Server<F, X>>,
    sabotage: Sabotage,
}

impl<F: Fabric, X: Executor> Broken<F, X> {
    /// Is a request that comes with a message of this kind forgotten?
    fn forgets(&self, kind: u16) -> bool {
        let (server, shared) = (&self.server, self.server.shared());
        let queue_is_full = || server.queue().borrow().len() == QUEUE_MAX;
        match (self.sabotage, kind) {
            (Sabotage::DropsWhenFull, REQUEST | WORK) | (Sabotage::RefusesSilently, WORK) => {
                queue_is_full()
            }
            (Sabotage::RefusesSilently, REQUEST) => match shared.config.kind {
                Kind::RoundRobin | Kind::StaticPartition => queue_is_full(),
                Kind::Strife => server.batch_is_full(),
                Kind::Alnico | Kind::AlnicoCpu2 | Kind::AlnicoCpuN => {
                    let refuses = shared.config.completion == Completion::Reply;
                    let scheduler = &shared.assignments().scheduler;
                    let is_full = |worker| scheduler.queued(worker) == OPEN_MAX;
                    refuses && (0..shared.ordinary()).all(is_full)
                }
            },
            (Sabotage::DropsBeforeVectors, REQUEST) => {
                shared.config.kind.weighs_features() && shared.assignments().scheduler.epoch() == 0
            }
            _ => false,
        }
    }
}

impl<F: Fabric, X: Executor> Service for Broken<F, X> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        if self.sabotage == Sabotage::LosesQueue && self.server.queue().borrow().len() > LONG {
            self.server.queue().borrow_mut().clear();
        }
        match self.forgets(delivery.kind) {
            true => Ok(()),
            false => self.server.deliver(delivery),
        }
    }
}
