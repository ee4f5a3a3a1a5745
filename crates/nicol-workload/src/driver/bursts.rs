//! Operations in bursts: where a run's faults are spread over far more time than its operations
//! take, clients work when something happens, and rest in between.

use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::units::Nanos;

/// When the clients of a closed loop work, in the order of time.
///
/// The operations of a burst belong to nobody: each client takes the next one when it has ended its
/// last. So those of a client that a crash ends are left to the others. What a lost node's shard or
/// lock refuses is tried again, as what meets something full: a recovery will serve it.
#[derive(Debug)]
pub struct Bursts {
    bursts: Box<[Burst]>,
}

#[derive(Debug)]
pub(super) struct Burst {
    pub(super) from: Nanos,
    /// Operations that no client has taken.
    left: AtomicU64,
}

impl Bursts {
    /// Bursts from these instants on, in their order, that share `operations` evenly; the last one
    /// gets the rest.
    ///
    /// # Panics
    /// If there is none, or they are out of order.
    pub fn new(starts: &[Nanos], operations: u64) -> Self {
        assert!(!starts.is_empty() && starts.is_sorted(), "bursts follow one another");
        let each = operations / starts.len() as u64;
        let last = operations - each * (starts.len() as u64 - 1);
        let burst = |(place, &from): (usize, &Nanos)| {
            let left = if place + 1 == starts.len() { last } else { each };
            Burst { from, left: AtomicU64::new(left) }
        };
        Self { bursts: starts.iter().enumerate().map(burst).collect() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Burst> {
        self.bursts.iter()
    }
}

impl Burst {
    /// Takes one of its operations, if any is left.
    pub(super) fn take(&self) -> bool {
        let fewer = |left: u64| left.checked_sub(1);
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok()
    }
}
