//! State that all clients of a run share: whether it has ended, and its result.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use nicol_core::units::Nanos;

use super::bursts::Bursts;
use super::plan::RunPlan;
use super::progress::{Progress, Waiting};
use super::result::RunResult;
use super::schedule::Retry;

/// Clients that a run may have.
pub const CLIENTS_MAX: u32 = 1 << 20;

/// The state that the clients of a run share across threads.
#[derive(Debug)]
pub struct RunControl {
    plan: RunPlan,
    kinds: &'static [&'static str],
    running: AtomicU32,
    /// Clients that took the place of one whose last operation has no known end.
    successors: AtomicU32,
    /// The clients that have begun.
    begun: Mutex<BTreeSet<u32>>,
    /// The activity of each client that has begun.
    progress: Mutex<Vec<Arc<Progress>>>,
    stopped: AtomicBool,
    /// When clients work; without it, all the time.
    bursts: OnceLock<Bursts>,
    result: Mutex<RunResult>,
}

impl RunControl {
    /// A run of `plan` with a workload of these `kinds`. It is finished once `plan.clients` clients
    /// have run.
    ///
    /// # Panics
    /// If the plan contradicts itself or has no end.
    pub fn new(plan: RunPlan, kinds: &'static [&'static str]) -> Arc<Self> {
        assert!((1..=CLIENTS_MAX).contains(&plan.clients), "1 to {CLIENTS_MAX} clients");
        assert!(plan.begin <= plan.warmup_until, "the window is within the run");
        assert!(plan.warmup_until < plan.stop_at, "the window is not empty");
        assert!(plan.retry.attempts_max > 0, "an operation is tried at least once");
        let ends = plan.stop_at < Nanos::MAX || plan.operations_per_client.is_some();
        assert!(ends, "a run ends at a time or after a number of operations");
        Arc::new(Self {
            plan,
            kinds,
            running: AtomicU32::new(plan.clients),
            successors: AtomicU32::new(0),
            begun: Mutex::new(BTreeSet::new()),
            progress: Mutex::default(),
            stopped: AtomicBool::new(false),
            bursts: OnceLock::new(),
            result: Mutex::new(RunResult::new(plan, kinds)),
        })
    }

    pub fn plan(&self) -> &RunPlan {
        &self.plan
    }

    /// The clients, none of which has begun, take their operations from `bursts`, instead of a
    /// number each.
    ///
    /// # Panics
    /// If that was said before.
    pub fn work_in(&self, bursts: Bursts) {
        assert!(self.bursts.set(bursts).is_ok(), "a run has its bursts once");
    }

    pub(super) fn bursts(&self) -> Option<&Bursts> {
        self.bursts.get()
    }

    /// The names of the workload's kinds of operations.
    pub fn kinds(&self) -> &'static [&'static str] {
        self.kinds
    }

    /// True if every client has ended and its part of the result is merged.
    pub fn finished(&self) -> bool {
        self.running() == 0
    }

    /// Clients that have not ended.
    pub fn running(&self) -> u32 {
        self.running.load(Ordering::Acquire)
    }

    /// The clients that have an operation under way, first the one that waits the longest.
    pub fn waiting(&self) -> Vec<Waiting> {
        let clients = self.clients();
        let mut waiting: Vec<Waiting> =
            clients.iter().filter_map(|client| client.waiting(self.kinds)).collect();
        waiting.sort_by_key(|one| (one.last_sign, one.client));
        waiting
    }

    /// When an operation or an attempt of any client last began or ended, if some client has an
    /// operation under way: `None` while all of them wait for their next one.
    pub fn last_sign(&self) -> Option<Nanos> {
        let clients = self.clients();
        let waits = clients.iter().any(|client| client.waiting(self.kinds).is_some());
        clients.iter().map(|client| client.last_sign()).max().filter(|_| waits)
    }

    fn clients(&self) -> MutexGuard<'_, Vec<Arc<Progress>>> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks every client to stop after its current attempt.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.result().stopped = true;
    }

    /// True if [`RunControl::stop`] was called.
    pub fn stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// The result merged so far: complete once the run is [finished](RunControl::finished). The
    /// first call after that sorts the history.
    pub fn result(&self) -> MutexGuard<'_, RunResult> {
        // A panic while merging leaves counters that are too low, which the books' check notices.
        let mut result = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        if self.finished() {
            result.sort_history();
        }
        result
    }

    /// The name in the history of a client that begins with this number: the number, or a new one
    /// if the one that had it never learnt how its last operation ended: it was told so, or a crash
    /// ended it. Nobody may go on under that name.
    pub(super) fn name(&self, client: u32) -> u32 {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        if begun.insert(client) {
            return client;
        }
        self.plan.clients + self.successors.fetch_add(1, Ordering::Relaxed)
    }

    /// Where the client of this name in the history notes what it is doing.
    pub(super) fn progress(&self, client: u32) -> Arc<Progress> {
        let progress = Arc::new(Progress::new(client));
        self.clients().push(Arc::clone(&progress));
        progress
    }

    /// Records that `clients` clients have ended, after their results were merged.
    pub(super) fn ended(&self, clients: u32) {
        let before = self.running.fetch_sub(clients, Ordering::Release);
        assert!(before >= clients, "a client ends once");
    }
}

/// The default of [`Retry`] in commands: waits of up to 2 us at first and 1 ms at most, a thousand
/// attempts. A round trip is about 2.5 us on the papers' testbeds, so a first wait of that order
/// lets the other operation finish. No client waits for another one, as in the papers.
pub const RETRY: Retry = Retry {
    attempts_max: 1_000,
    full_max: 16,
    first: Nanos::from_micros(2),
    longest: Nanos::from_millis(1),
    adaptive_window: false,
};
