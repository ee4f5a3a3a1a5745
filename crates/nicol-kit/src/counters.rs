//! What a node counts for its reports.

use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::system::Counter;

/// Adds 1 to `counter`, without an order towards other memory.
pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// The counters of one group of a report, by name.
pub fn counters<const N: usize>(
    group: &'static str,
    named: [(&'static str, &AtomicU64); N],
) -> impl Iterator<Item = Counter> + use<N> {
    named
        .map(|(name, value)| Counter { group, name, value: value.load(Ordering::Relaxed) })
        .into_iter()
}
