//! What the engines of a server share for scheduling.

use std::collections::BTreeMap;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::ids::TxnId;
use nicol_core::system::Counter;
use nicol_core::txn::Txn;

use super::config::ScheduleConfig;
use super::decision::Scheduler;
use super::features::FeatureMap;
use super::feedback::Contention;
use crate::kit::counters;

/// What clients know of their transactions for the judge alone, beside the wire: the sets that a
/// server's procedure has read and written. It costs no bytes there, as in the testbed nobody asks.
#[derive(Clone, Debug, Default)]
pub struct Transcripts(Arc<Mutex<BTreeMap<TxnId, Txn>>>);

impl Transcripts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<TxnId, Txn>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn put(&self, id: TxnId, txn: Txn) {
        self.lock().insert(id, txn);
    }

    pub(crate) fn take(&self, id: TxnId) -> Option<Txn> {
        self.lock().remove(&id)
    }
}

/// What has been counted.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Requests that were given to a worker.
    pub(crate) scheduled: AtomicU64,
    /// Attempts that aborted at a worker.
    pub(crate) aborts: AtomicU64,
    /// Requests that were refused since every queue was full.
    pub(crate) refused: AtomicU64,
    /// Vectors that were published.
    pub(crate) published: AtomicU64,
    /// Aborts on keys whose feature is steered, and all of them while some feature is.
    pub(crate) detected: AtomicU64,
    pub(crate) aborts_while_steering: AtomicU64,
}

/// The state.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: ScheduleConfig,
    pub(crate) map: FeatureMap,
    pub(crate) workers: usize,
    /// Empty on a node for clients.
    scheduler: Mutex<Scheduler>,
    pub(crate) contention: Contention,
    pub(crate) counts: Counts,
    /// Requests that a worker has and that are not answered.
    pub(crate) open: AtomicU64,
    pub(crate) transcripts: Transcripts,
}

impl Shared {
    /// For a server with so many host cores.
    ///
    /// # Panics
    /// If no core is left to execute.
    pub(crate) fn new(
        config: &ScheduleConfig,
        map: FeatureMap,
        cores: usize,
        transcripts: Transcripts,
    ) -> Self {
        let workers = cores.saturating_sub(config.dispatchers());
        assert!(workers > config.reserved, "a core is left for what does not scan");
        let ordinary = workers - config.reserved;
        Self {
            config: config.clone(),
            map,
            workers,
            scheduler: Mutex::new(Scheduler::new(ordinary, config.ranking, config.planes)),
            contention: Contention::default(),
            counts: Counts::default(),
            open: AtomicU64::new(0),
            transcripts,
        }
    }

    /// Workers that take what does not scan: the first ones.
    pub(crate) fn ordinary(&self) -> usize {
        self.workers - self.config.reserved
    }

    pub(crate) fn scheduler(&self) -> MutexGuard<'_, Scheduler> {
        self.scheduler.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn counters(&self) -> Vec<Counter> {
        let Counts { scheduled, aborts, refused, published, detected, aborts_while_steering } =
            &self.counts;
        let named = [
            ("scheduled", scheduled),
            ("aborts", aborts),
            ("refused", refused),
            ("vectors_published", published),
            ("aborts_on_steered", detected),
            ("aborts_while_steering", aborts_while_steering),
        ];
        counters("schedule", named).collect()
    }
}
