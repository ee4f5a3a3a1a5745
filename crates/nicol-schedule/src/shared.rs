//! What the engines of a server share for scheduling.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::ids::TxnId;
use nicol_core::system::Counter;
use nicol_core::txn::Txn;
use nicol_kit::counters;

use super::config::ScheduleConfig;
use super::decision::Scheduler;
use super::deposits::Deposits;
use super::features::{FeatureMap, Features, SPREAD};
use super::feedback::Contention;
use super::given::Assignments;

/// Parts of the transcripts: so many that clients and workers seldom meet at one.
const PARTS: usize = 64;

/// What clients know of their transactions for the judge alone, beside the wire: the sets that a
/// server's procedure has read and written. It costs no bytes there, as in the testbed nobody asks.
///
/// A client and the worker of its transaction meet at a part that few others use, and exchange
/// buffers.
#[derive(Clone, Debug)]
pub struct Transcripts(Arc<[Mutex<Part>; PARTS]>);

/// Transcripts, and buffers that are free.
#[derive(Debug, Default)]
struct Part {
    /// Besides, is all known that the transaction wrote?
    of: BTreeMap<TxnId, (Txn, bool)>,
    free: Vec<Txn>,
}

impl Default for Transcripts {
    fn default() -> Self {
        Self(Arc::new(std::array::from_fn(|_| Mutex::default())))
    }
}

impl Transcripts {
    fn part(&self, id: TxnId) -> MutexGuard<'_, Part> {
        let part = id.0.wrapping_mul(SPREAD) >> (u64::BITS - PARTS.ilog2());
        self.0[part as usize].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what `txn` has become, and gives another buffer for it. `complete`: it has no writes
    /// that are not in its sets.
    pub(crate) fn put(&self, id: TxnId, txn: &mut Txn, complete: bool) {
        let mut part = self.part(id);
        let free = part.free.pop().unwrap_or_default();
        part.of.insert(id, (std::mem::replace(txn, free), complete));
    }

    /// Makes `txn` what was kept of it, if anything was: is that complete?
    pub(crate) fn take(&self, id: TxnId, txn: &mut Txn) -> Option<bool> {
        let mut part = self.part(id);
        let (kept, complete) = part.of.remove(&id)?;
        let free = std::mem::replace(txn, kept);
        part.free.push(free);
        txn.id = id;
        Some(complete)
    }
}

/// The counters.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    /// Requests that were given to a worker.
    pub(crate) scheduled: AtomicU64,
    /// Attempts that aborted at a worker.
    pub(crate) aborts: AtomicU64,
    /// Requests that were refused since every queue was full.
    pub(crate) refused: AtomicU64,
    /// Feedback epochs that have ended, at each of which vectors were computed.
    pub(crate) epochs: AtomicU64,
    /// Vectors that were published.
    pub(crate) published: AtomicU64,
    /// Aborts on keys whose feature weighs anything, and all of them since vectors were published.
    pub(crate) detected: AtomicU64,
    pub(crate) aborts_since_vectors: AtomicU64,
}

/// The state of scheduling that the cores of one server share.
#[derive(Debug)]
pub struct Shared {
    pub(crate) config: ScheduleConfig,
    pub(crate) map: FeatureMap,
    pub(crate) workers: usize,
    /// Empty on a node for clients.
    assignments: Mutex<Assignments>,
    pub(crate) contention: Contention,
    pub(crate) counts: Counts,
    /// Requests that a worker has and that are not answered.
    pub(crate) open: AtomicU64,
    pub(crate) transcripts: Transcripts,
    /// Data whose entries have not come, and the other way round.
    pub(crate) deposits: Deposits,
}

impl Shared {
    /// For a server with so many host cores, if anything schedules there.
    pub fn of(
        config: Option<&ScheduleConfig>,
        map: &FeatureMap,
        cores: usize,
        transcripts: &Transcripts,
    ) -> Option<Arc<Self>> {
        Some(Arc::new(Self::new(config?, map.clone(), cores, transcripts.clone())))
    }

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
        assert!(workers > config.reserved, "a core is left for what does not take long");
        let ordinary = workers - config.reserved;
        let scheduler = Scheduler::new(ordinary, config.ranking, config.planes);
        Self {
            config: config.clone(),
            map,
            workers,
            assignments: Mutex::new(Assignments::new(scheduler)),
            contention: Contention::default(),
            counts: Counts::default(),
            open: AtomicU64::new(0),
            transcripts,
            deposits: Deposits::default(),
        }
    }

    /// The reserved worker that executes a long request. It follows from the request's first
    /// feature, so that Deliveries of one warehouse are executed one after the other. (AMB-39)
    pub(crate) fn reserved_for(&self, features: &Features) -> usize {
        let first = Features::of(features.touched()).next().unwrap_or_default();
        self.ordinary() + first % self.config.reserved.max(1)
    }

    /// Workers that take what does not take long: the first ones.
    pub(crate) fn ordinary(&self) -> usize {
        self.workers - self.config.reserved
    }

    /// The scheduler's state, whichever core schedules.
    pub(crate) fn assignments(&self) -> MutexGuard<'_, Assignments> {
        self.assignments.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True if every request of the workers is answered.
    pub fn is_settled(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }

    /// The counters of scheduling for reports.
    pub fn counters(&self) -> Vec<Counter> {
        let Counts { scheduled, aborts, refused, epochs, published, .. } = &self.counts;
        let Counts { detected, aborts_since_vectors, .. } = &self.counts;
        let named = [
            ("scheduled", scheduled),
            ("aborts", aborts),
            ("refused", refused),
            ("vectors_published", published),
            ("aborts_on_weighed", detected),
            ("aborts_since_vectors", aborts_since_vectors),
        ];
        let of_feedback =
            self.config.kind.weighs_features().then_some([("feedback_epochs", epochs)]);
        let of_feedback = of_feedback.into_iter().flat_map(|named| counters("schedule", named));
        counters("schedule", named).chain(of_feedback).collect()
    }
}
