//! The measurements of a run.

use hdrhistogram::Histogram;
use nicol_core::history::Operation;
use nicol_core::units::Nanos;

use super::latency::Latencies;
use super::plan::RunPlan;
use super::session::ABORTS_MAX;

/// Ends of operations. Each issued operation ends in exactly one of the other ways.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub issued: u64,
    pub committed: u64,
    /// Refused by the application, which is a complete operation that changed nothing.
    pub refused: u64,
    /// Aborted at every attempt, or for a reason that no further attempt can mend.
    pub failed: u64,
    /// The run ended before another attempt, or before the first one's turn.
    pub abandoned: u64,
    /// Unknown: it may have taken effect, or may still.
    pub unknown: u64,
    /// Pieces of operations that took effect and were not the last one.
    pub pieces: u64,
    /// Attempts of all of these.
    pub attempts: u64,
    /// Attempts that aborted, by reason, in the order of the family's names.
    pub aborts: [u64; ABORTS_MAX],
}

impl Counts {
    /// Adds `other`'s counts.
    pub fn add(&mut self, other: &Self) {
        self.issued += other.issued;
        self.committed += other.committed;
        self.refused += other.refused;
        self.failed += other.failed;
        self.abandoned += other.abandoned;
        self.unknown += other.unknown;
        self.pieces += other.pieces;
        self.attempts += other.attempts;
        for (mine, theirs) in self.aborts.iter_mut().zip(&other.aborts) {
            *mine += theirs;
        }
    }

    /// Attempts that aborted, refusals included.
    pub fn aborted(&self) -> u64 {
        self.aborts.iter().sum()
    }

    /// Returns true if the counts add up, which holds once no operation is in progress.
    pub fn balance(&self) -> bool {
        let ended = self.committed + self.refused + self.failed + self.abandoned + self.unknown;
        let attempts = self.aborted() + self.committed + self.pieces + self.unknown;
        ended == self.issued && self.attempts == attempts
    }
}

/// The measurements of one kind of operation.
#[derive(Clone, Debug)]
pub struct KindResult {
    pub name: &'static str,
    /// Operations that took effect in the whole run, warm-up included.
    pub committed: u64,
    /// Those whose end lies in the measured window: what throughput is.
    pub committed_in_window: u64,
    /// The sum of what these have left: of transactions the first eight bytes of their outputs,
    /// which is what [`nicol_core::workload::Workload::audit`] takes.
    pub total: i128,
    /// Latencies of those whose start lies in the measured window.
    pub latency: Latencies,
    /// Of a kind that is deferred: latencies of the answers to those that were due in the measured
    /// window, executed or not.
    pub answers: Latencies,
}

/// The measurements of one engine's clients, or of all.
#[derive(Clone, Debug)]
pub struct RunResult {
    plan: RunPlan,
    /// The ends of all operations.
    pub whole: Counts,
    /// The ends of those whose start lies in the measured window.
    pub window: Counts,
    /// By kind, in the workload's order.
    pub kinds: Vec<KindResult>,
    /// Operations of an open loop that were due before the end and never issued, because their
    /// clients were busy: the system did not keep up. Latency does not include them.
    pub overdue: u64,
    /// The earliest start of a measured operation.
    pub first_start: Nanos,
    /// The latest end of an operation that took effect.
    pub last_end: Nanos,
    /// What the clients saw, if recorded; sorted by start, then id, once the run is finished.
    pub history: Vec<Operation>,
    /// True if the history is in its order.
    is_sorted: bool,
    /// Did an engine's history fill up, so that its clients stopped early?
    pub history_full: bool,
    /// Was the run stopped before its planned end?
    pub stopped: bool,
}

impl RunResult {
    pub fn new(plan: RunPlan, kinds: &'static [&'static str]) -> Self {
        let kind = |name: &&'static str| KindResult {
            name,
            committed: 0,
            committed_in_window: 0,
            total: 0,
            latency: Latencies::default(),
            answers: Latencies::default(),
        };
        Self {
            plan,
            whole: Counts::default(),
            window: Counts::default(),
            kinds: kinds.iter().map(kind).collect(),
            overdue: 0,
            first_start: Nanos::MAX,
            last_end: Nanos::ZERO,
            history: Vec::new(),
            is_sorted: true,
            history_full: false,
            stopped: false,
        }
    }

    /// Adds the result of other clients of the same run.
    ///
    /// # Panics
    /// If it is of another workload.
    pub fn merge(&mut self, other: &mut Self) {
        assert_eq!(self.kinds.len(), other.kinds.len(), "results of one workload are merged");
        self.whole.add(&other.whole);
        self.window.add(&other.window);
        for (mine, theirs) in self.kinds.iter_mut().zip(&other.kinds) {
            mine.committed += theirs.committed;
            mine.committed_in_window += theirs.committed_in_window;
            mine.total += theirs.total;
            mine.latency.merge(&theirs.latency);
            mine.answers.merge(&theirs.answers);
        }
        self.overdue += other.overdue;
        self.first_start = self.first_start.min(other.first_start);
        self.last_end = self.last_end.max(other.last_end);
        self.history_full |= other.history_full;
        self.stopped |= other.stopped;
        self.is_sorted &= other.history.is_empty();
        self.history.append(&mut other.history);
    }

    /// Sorts the history by start, then id: the order in which engines finish is the live world's,
    /// the history's is not.
    pub(super) fn sort_history(&mut self) {
        if !std::mem::replace(&mut self.is_sorted, true) {
            self.history.sort_by_cached_key(|operation| (operation.invoked, operation.id));
        }
    }

    /// The measured window's length: as planned, or up to the last end if the run was stopped, a
    /// history filled up, or the clients had a number of operations to run.
    pub fn window_length(&self) -> Nanos {
        let by_count = self.plan.operations_per_client.is_some();
        if by_count || self.history_full || self.stopped {
            let end = self.last_end.min(self.plan.stop_at);
            return end.since(self.first_start.max(self.plan.warmup_until));
        }
        self.plan.stop_at.since(self.plan.warmup_until)
    }

    /// Operations that took effect per second of the measured window, of all kinds; 0 if nothing
    /// was measured.
    pub fn throughput_per_s(&self) -> f64 {
        self.kinds.iter().map(|kind| self.throughput_of(kind)).sum()
    }

    /// The same of one kind.
    pub fn throughput_of(&self, kind: &KindResult) -> f64 {
        let seconds = self.window_length().as_secs_f64();
        if seconds > 0.0 { kind.committed_in_window as f64 / seconds } else { 0.0 }
    }

    /// The latency of all kinds together that clients wait for, in nanoseconds.
    pub fn latency(&self) -> Histogram<u64> {
        let mut all = Latencies::default();
        let waited_for = self.kinds.iter().filter(|kind| kind.answers.is_empty());
        waited_for.for_each(|kind| all.merge(&kind.latency));
        all.histogram()
    }

    /// The sums that [`nicol_core::workload::Workload::audit`] takes. They cover committed
    /// transactions only: an audit may differ by the transactions of unknown outcome.
    pub fn totals(&self) -> Vec<i128> {
        self.kinds.iter().map(|kind| kind.total).collect()
    }
}
