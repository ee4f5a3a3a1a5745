//! Servers that are broken on purpose: they stand before the true one.

use std::rc::Rc;

use nicol_core::fabric::{Delivery, Fabric, Service};
use nicol_core::ids::{EngineId, Incarnation};
use nicol_core::wire::Malformed;

use super::Sabotage;
use crate::broken::LosesReports;
use crate::kv::layout::{STAMP_ENGINE, stamp};
use crate::kv::server::Server;
use crate::messages::{UNUSED, Unused, parse_report};

/// The service of a server's host engine: `server`, unless a planted fault stands before it.
pub(crate) fn service<F: Fabric>(fabric: &F, server: Server<F>) -> Rc<dyn Service> {
    match server.node().config().sabotage {
        Sabotage::KeepsOldBuffers => Rc::new(LosesReports::before(fabric, server, replaces)),
        Sabotage::KeepsNewBuffers => {
            Rc::new(LosesReports::before(fabric, server, |from, one| !replaces(from, one)))
        }
        Sabotage::PostsEarly => Rc::new(PostsEarly { fabric: fabric.clone(), server }),
        _ => Rc::new(server),
    }
}

/// Whether another engine has filled the buffer that `from` reports.
fn replaces(from: EngineId, one: &Unused) -> bool {
    one.stamp >> STAMP_ENGINE != stamp(from, Incarnation(0), 0) >> STAMP_ENGINE
}

/// A server that posts the buffer that a reported pointer points to.
struct PostsEarly<F: Fabric> {
    fabric: F,
    server: Server<F>,
}

impl<F: Fabric> Service for PostsEarly<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        if delivery.kind == UNUSED {
            let (_, unused) = parse_report(delivery.body, self.fabric.incarnation())?;
            let pool = &self.server.store().pool;
            unused.iter().for_each(|one| pool.post_pointed_to(&self.fabric, one.pointer));
        }
        self.server.deliver(delivery)
    }
}
