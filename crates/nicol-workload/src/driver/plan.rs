//! What a run of clients is: how long, how many, under which load.

use nicol_core::units::Nanos;

use super::schedule::{Load, Retry};

/// The values of a run. Times are instants of the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunPlan {
    /// Seeds every client's stream of operations.
    pub seed: u64,
    /// Clients of the whole cluster, numbered from 0.
    pub clients: u32,
    /// When the clients start.
    pub begin: Nanos,
    /// The start of the measured window.
    pub warmup_until: Nanos,
    /// The end of the measured window: no operation starts from here on. [`Nanos::MAX`]: the run
    /// ends with the last client's last operation.
    pub stop_at: Nanos,
    /// Operations after which a client stops.
    pub operations_per_client: Option<u64>,
    pub load: Load,
    /// How aborted ones are retried.
    pub retry: Retry,
    /// Record a history of every attempt?
    pub record: bool,
    /// Capacity of each engine's history in events. When it is full its clients stop, since an
    /// incomplete history proves nothing, and
    /// [`RunResult::history_full`](super::RunResult::history_full) is set.
    pub history_max: usize,
}

impl RunPlan {
    /// True if `at` is within the measured window.
    pub fn measures(&self, at: Nanos) -> bool {
        self.warmup_until <= at && at < self.stop_at
    }
}
