//! Where the clients of one engine note what happened, without a lock and without allocating
//! (unless a history is recorded).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::history::first::{End, Event, Read, Write};
use nicol_core::ids::TxnId;
use nicol_core::txn::{Outcome, Txn};
use nicol_core::units::Nanos;

use super::control::RunControl;
use super::result::{Counts, RunResult};

/// One engine's part of a run's result, shared by its clients. The last one to end merges it.
#[derive(Debug)]
pub struct Recorder {
    run: Arc<RunControl>,
    result: RefCell<RunResult>,
    slots: Cell<u32>,
}

impl Recorder {
    /// A recorder for the clients of one engine.
    pub fn new(run: &Arc<RunControl>) -> Rc<Self> {
        Rc::new(Self {
            run: Arc::clone(run),
            result: RefCell::new(RunResult::new(*run.plan(), run.kinds())),
            slots: Cell::new(0),
        })
    }

    pub(super) fn run(&self) -> &RunControl {
        &self.run
    }

    /// Has the history no space for another event?
    pub(super) fn is_full(&self) -> bool {
        let mut result = self.result.borrow_mut();
        let full = self.run.plan().record && result.history.len() >= self.run.plan().history_max;
        result.history_full |= full;
        full
    }

    pub(super) fn add_overdue(&self, transactions: u64) {
        self.result.borrow_mut().overdue += transactions;
    }

    fn count(&self, start: Nanos, count: impl Fn(&mut Counts)) {
        let mut result = self.result.borrow_mut();
        count(&mut result.whole);
        if self.run.plan().measures(start) {
            count(&mut result.window);
        }
    }

    /// Notes that a client has ended; the last one hands the result over and leaves an empty one,
    /// for clients that may come later.
    fn leave(&self) {
        self.slots.set(self.slots.get() - 1);
        if self.slots.get() > 0 {
            return;
        }
        let mut own = self.result.replace(RunResult::new(*self.run.plan(), self.run.kinds()));
        assert!(own.whole.balance(), "every issued transaction ended: {:?}", own.whole);
        assert!(own.window.balance(), "every measured transaction ended: {:?}", own.window);
        self.run.result().merge(&mut own);
    }
}

/// How a transaction ended, after all its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Committed,
    Refused,
    Failed,
    Abandoned,
    Unknown,
}

/// The transaction that is under way.
#[derive(Clone, Copy, Debug)]
struct Current {
    kind: usize,
    /// When it was due: what latency and the window go by.
    start: Nanos,
    /// The start of the attempt under way, if one is.
    attempt: Option<Nanos>,
}

/// A client's place at its engine's recorder, with the transaction it runs. It outlives the
/// client's calls: if the engine crashes and drops the client in the middle of an attempt, the
/// attempt is recorded as unknown, because others may see what it wrote.
#[derive(Debug)]
pub(super) struct ClientSlot {
    recorder: Rc<Recorder>,
    client: u32,
    pub(super) txn: Txn,
    current: Option<Current>,
}

impl ClientSlot {
    pub(super) fn new(recorder: Rc<Recorder>, client: u32) -> Self {
        recorder.slots.set(recorder.slots.get() + 1);
        Self { recorder, client, txn: Txn::default(), current: None }
    }

    /// Notes that a transaction of `kind`, due at `start`, begins.
    pub(super) fn begin(&mut self, kind: usize, start: Nanos) {
        assert!(self.current.is_none(), "a client runs one transaction at a time");
        self.current = Some(Current { kind, start, attempt: None });
        self.count(start, |counts| counts.issued += 1);
    }

    /// Notes that an attempt begins.
    pub(super) fn attempt(&mut self, at: Nanos) {
        let current = self.current.as_mut().expect("an attempt is one of a transaction");
        assert!(current.attempt.is_none(), "a transaction has one attempt at a time");
        current.attempt = Some(at);
        let start = current.start;
        self.count(start, |counts| counts.attempts += 1);
    }

    /// Notes how the attempt under way ended.
    pub(super) fn attempted(&mut self, outcome: Outcome, at: Nanos) {
        let current = self.current.as_mut().expect("an attempt is one of a transaction");
        let began = current.attempt.take().expect("an attempt ends after it began");
        let start = current.start;
        if let Outcome::Aborted(reason) = outcome {
            self.count(start, |counts| counts.aborts[reason.index()] += 1);
        }
        self.write_event(outcome, began, at);
    }

    /// What the attempt that just committed left for the audit's sums: 0 if nothing.
    pub(super) fn left(&self) -> i64 {
        self.txn.output.first_chunk::<8>().map_or(0, |left| i64::from_le_bytes(*left))
    }

    /// Notes that a piece of the transaction under way has committed and was not the last one;
    /// `left` is what it left.
    pub(super) fn piece(&mut self, left: i64) {
        let current = self.current.expect("a piece is one of a transaction");
        self.recorder.result.borrow_mut().kinds[current.kind].total += i128::from(left);
        self.count(current.start, |counts| counts.pieces += 1);
    }

    /// Notes how the transaction under way ended, at `at`.
    pub(super) fn end(&mut self, ending: Ending, at: Nanos) {
        let Current { kind, start, attempt } =
            self.current.take().expect("a transaction ends after it began");
        assert!(attempt.is_none(), "the last attempt has ended");
        self.count(start, |counts| match ending {
            Ending::Committed => counts.committed += 1,
            Ending::Refused => counts.refused += 1,
            Ending::Failed => counts.failed += 1,
            Ending::Abandoned => counts.abandoned += 1,
            Ending::Unknown => counts.unknown += 1,
        });
        if ending == Ending::Committed {
            self.commit(kind, start, at);
        }
    }

    fn commit(&self, kind: usize, start: Nanos, end: Nanos) {
        let plan = self.recorder.run.plan();
        let left = self.left();
        let mut result = self.recorder.result.borrow_mut();
        result.last_end = result.last_end.max(end);
        if plan.measures(start) {
            result.first_start = result.first_start.min(start);
        }
        let kind = &mut result.kinds[kind];
        kind.committed += 1;
        kind.total += i128::from(left);
        if plan.measures(end) {
            kind.committed_in_window += 1;
        }
        if plan.measures(start) {
            // At least one, the histogram's lowest: a fake world may take no time.
            kind.latency.saturating_record(end.since(start).0.max(1));
        }
    }

    fn count(&self, start: Nanos, count: impl Fn(&mut Counts)) {
        self.recorder.count(start, count);
    }

    fn write_event(&self, outcome: Outcome, start: Nanos, end: Nanos) {
        if !self.recorder.run.plan().record {
            return;
        }
        let txn = &self.txn;
        if txn.id == TxnId(0) {
            // It ended before the coordinator numbered it, so that nobody can have seen it.
            assert!(outcome != Outcome::Committed, "a committed transaction has an id");
            return;
        }
        let end_kind = match outcome {
            Outcome::Committed => End::Committed,
            Outcome::Aborted(_) => End::Aborted,
            Outcome::Unknown => End::Unknown,
        };
        let fetched = || (0..txn.entries().len()).filter(|index| txn.entries()[*index].fetched);
        let read = |index: usize| {
            let entry = &txn.entries()[index];
            Read { key: entry.key.0, version: entry.version.0, present: entry.present }
        };
        let write = |index: usize| {
            let write = txn.update(index)?;
            let deleted = write.value.is_none();
            Some(Write { key: write.key.0, version: write.version.0, deleted })
        };
        let is_unseen = |index: &usize| {
            outcome == Outcome::Unknown && txn.entries()[*index].write && write(*index).is_none()
        };
        let key = |index: usize| txn.entries()[index].key.0;
        self.recorder.result.borrow_mut().history.push(Event {
            client: self.client,
            id: txn.id.0,
            start_ns: start.0,
            end_ns: end.0,
            end: end_kind,
            reads: fetched().map(read).collect(),
            writes: fetched().filter_map(write).collect(),
            unseen_writes: (0..txn.entries().len()).filter(is_unseen).map(key).collect(),
        });
    }

    /// Ends what a crash cut off.
    fn cut_off(&mut self) {
        let Some(current) = self.current else { return };
        match current.attempt {
            Some(began) => {
                // The engine may be gone, and with it the time: an unknown event has no end.
                self.attempted(Outcome::Unknown, began);
                self.end(Ending::Unknown, began);
            }
            None => self.end(Ending::Abandoned, current.start),
        }
    }
}

impl Drop for ClientSlot {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // The books may not balance; do not hide the first panic behind a second. The other
            // clients stop, and the thread's owner sees the panic.
            self.recorder.run.stop();
            self.recorder.run.ended(1);
            return;
        }
        self.cut_off();
        self.recorder.leave();
        self.recorder.run.ended(1);
    }
}
