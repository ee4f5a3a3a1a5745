//! What systems of PRISM's that are broken on purpose have in common.

use nicol_core::fabric::{Delivery, Fabric, Message, Service};
use nicol_core::ids::EngineId;
use nicol_core::wire::{Malformed, Writer};

use super::messages::{Report, UNUSED, Unused, parse_report};

/// A server that is not told of some of the buffers that are not used any more.
pub(crate) struct LosesReports<F, S> {
    fabric: F,
    server: S,
    /// True of a report by this engine that is lost.
    loses: fn(EngineId, &Unused) -> bool,
}

impl<F: Fabric, S: Service> LosesReports<F, S> {
    pub(crate) fn before(fabric: &F, server: S, loses: fn(EngineId, &Unused) -> bool) -> Self {
        Self { fabric: fabric.clone(), server, loses }
    }
}

impl<F: Fabric, S: Service> Service for LosesReports<F, S> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        if delivery.kind != UNUSED {
            return self.server.deliver(delivery);
        }
        let life = self.fabric.incarnation();
        let (suspects, mut unused) = parse_report(delivery.body, life)?;
        unused.retain(|one| !(self.loses)(delivery.from, one));
        let mut body = Vec::new();
        Report { life, suspects, unused: &unused }.emit(&mut Writer::new(&mut body));
        self.server.deliver(Delivery { body: &body, ..delivery })
    }
}
