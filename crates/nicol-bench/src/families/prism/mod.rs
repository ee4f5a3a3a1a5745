//! The systems of PRISM's paper and those that it compares with: single operations of clients on
//! servers whose CPUs take little part; and PRISM-TX, which is of the commit family.

mod key_values;
mod pilaf;
mod recycling;
mod registers;
mod transactions;

use std::ops::Range;

use nicol_core::faults::{Crash, CrashScope, FaultPlan};
use nicol_core::rng::{Purpose, Stream};
use nicol_core::units::Nanos;

use crate::system::System;

/// The systems of the family.
pub(crate) static SYSTEMS: &[System] = &[
    key_values::PRISM_KV,
    pilaf::PILAF,
    pilaf::PILAF_SOFTWARE,
    registers::PRISM_RS,
    registers::ABDLOCK,
    registers::ABDLOCK_SOFTWARE,
    transactions::PRISM_TX,
];

/// These nodes die within `span`, at instants drawn from `seed`, and do not come back.
fn deaths(nodes: Range<u16>, span: Nanos, seed: u64) -> FaultPlan {
    let mut random = Stream::new(seed, Purpose::Test, 0);
    let mut crash = |node| Crash {
        scope: CrashScope::Node,
        node,
        at: Nanos::from_micros(50) + Nanos(random.below(span.0)),
        restart_after: None,
    };
    FaultPlan { crashes: nodes.map(&mut crash).collect(), ..FaultPlan::none() }
}
