//! The simulated view service: hands out leases, notices whose lease has run out, makes views and
//! hands them to engines. It stands outside the nodes and does not fail.
//!
//! Each side of a node asks for a lease every [`RENEWAL`]. The side reckons its lease from when it
//! asked, the service from when it answered, so that a side has stopped to serve before the service
//! goes on without it. A new incarnation registers when it first asks, and has no lease before.
//! What a cut of the network separates from the other nodes is separated from the service as well.

use std::collections::VecDeque;

use nicol_core::units::Nanos;
use nicol_core::view::{Asking, Membership, View};

/// The time of a lease: longer than the stalls and cuts that plans draw, so that these alone end no
/// membership.
pub const LEASE: Nanos = Nanos::from_millis(10);
/// Interval at which a side asks for its lease anew: four requests may be lost.
pub const RENEWAL: Nanos = Nanos::from_millis(2);
/// From an engine to the service, or back.
pub const SERVICE_LATENCY: Nanos = Nanos::from_micros(10);

/// The service outside the nodes that hands out views and leases.
#[derive(Debug)]
pub struct ViewService {
    pub(crate) members: Membership,
    /// Answers under way, in the order in which they arrive.
    pub(crate) answers: VecDeque<Answers>,
    /// Broken on purpose: leases never end at the engines.
    pub(crate) endless: bool,
}

/// The answers of the service to all sides that asked at one instant.
#[derive(Debug)]
pub(crate) struct Answers {
    pub(crate) view: View,
    /// The sides that asked, and until when each has a lease if it is a member.
    pub(crate) sides: Vec<(Asking, Nanos)>,
}

impl ViewService {
    /// A service whose first view is `view`; every side of it has a lease.
    pub fn new(view: View, endless: bool) -> Self {
        Self { members: Membership::new(view, LEASE), answers: VecDeque::new(), endless }
    }
}
