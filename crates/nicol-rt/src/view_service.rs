//! The view service of the live world: a thread beside the engines' that hands out leases, notices
//! whose lease has run out, and makes views. It does not fail.
//!
//! The first engine of each side asks for a lease twenty times in its span. The side reckons its
//! lease from when it asked, the service from when it answered, both by the machine's clock, so
//! that a side has stopped to serve before the service goes on without it. What a cut of the
//! network separates from the other nodes is separated from the service as well, and an engine that
//! stalls does not ask.
//!
//! An engine looks at its lease when it takes a frame: a thread that loses its core in the middle
//! of a round may still answer what it took in time.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use nicol_core::engine::CrashSabotage;
use nicol_core::ids::{NodeId, Side};
use nicol_core::units::Nanos;
use nicol_core::view::{Asking, Membership};

use crate::crash::{Crasher, Told};
use crate::orders::Order;

/// Times that a side asks anew in the span of a lease.
const RENEWALS: u64 = 20;

const SIDES: [Side; 2] = [Side::Host, Side::Nic];

/// A side that asks for a lease.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub(crate) side: Asking,
    /// When it asked.
    pub(crate) at: Nanos,
    /// Does its node say that it has caught up?
    pub(crate) complete: bool,
}

/// Sides that ask for a lease.
#[derive(Debug)]
pub(crate) struct Requests {
    lease: Nanos,
    waiting: Mutex<Vec<Request>>,
    filled: Condvar,
}

impl Requests {
    /// None yet, for leases that are so long.
    pub(crate) fn new(lease: Nanos) -> Self {
        Self { lease, waiting: Mutex::default(), filled: Condvar::new() }
    }

    /// How long a lease is.
    pub(crate) const fn lease(&self) -> Nanos {
        self.lease
    }

    /// How often a side asks for its lease anew.
    pub(crate) fn renewal(&self) -> Nanos {
        self.lease / RENEWALS
    }

    pub(crate) fn leave(&self, asking: impl Iterator<Item = Request>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.extend(asking);
        if !waiting.is_empty() {
            self.filled.notify_one();
        }
    }

    /// Takes all requests, waiting for some if there are none, for one renewal at most.
    fn take(&self) -> Vec<Request> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.is_empty() {
            let most = Duration::from_nanos(self.renewal().0);
            let waited = self.filled.wait_timeout(waiting, most);
            waiting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        std::mem::take(&mut *waiting)
    }
}

/// The service's thread, until the cluster stops.
pub(crate) fn serve(requests: &Requests, crasher: &Arc<Crasher>) {
    let lease = requests.lease();
    let mut members = Membership::new(crasher.first_view(), lease);
    let endless = crasher.sabotage() == CrashSabotage::LeaseEndless;
    // By node and side: the newest view that it was told, and by which orders.
    let first = || (members.view().epoch(), Told::default());
    let mut told: Vec<_> = (0..members.view().nodes()).map(|_| [first(), first()]).collect();
    while !crasher.stops() {
        let asked = requests.take();
        let now = crasher.shared().now();
        let asking: Vec<Asking> = asked.iter().map(|request| request.side).collect();
        members.update(now, &asking, now.saturating_add(lease));
        for request in asked.iter().filter(|request| request.complete) {
            members.complete(request.side);
        }
        for &Request { side, at: asked_at, .. } in &asked {
            let (node, of, _) = side;
            if members.has(side) {
                let until = asked_at.saturating_add(lease).min(members.lease_until(node, of));
                let until = if endless { Nanos::MAX } else { until };
                let (view, newest) = (members.view().clone(), members.view().epoch());
                let orders = crasher.tell(node, &Order::Serve { side, view, until });
                let (epoch, by) = &mut told[node.index()][of as usize];
                // Told again, it is where it was.
                if std::mem::replace(epoch, newest) != newest {
                    *by = orders;
                }
            } else if members.is_given_up(side) {
                // The others have gone on without it.
                crasher.begin_anew(side);
            }
            // Any other waits for its other half, without a lease.
        }
        let view = members.view();
        let has = |node: NodeId, of| {
            let (epoch, by) = &told[node.index()][of as usize];
            *epoch == view.epoch() && crasher.have_followed(by)
        };
        let mut sides = view.node_ids().flat_map(|node| SIDES.map(|of| (node, of)));
        if sides.all(|(node, of)| !view.side(node, of).up || has(node, of)) {
            crasher.have_installed(view);
        }
    }
}
