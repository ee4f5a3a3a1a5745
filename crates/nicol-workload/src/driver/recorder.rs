//! Where the clients of one engine note what happened, without a lock and without allocating
//! (unless a history is recorded).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::history::Operation;
use nicol_core::units::Nanos;

use super::control::{CLIENTS_MAX, RunControl};
use super::progress::Progress;
use super::result::{Counts, RunResult};
use super::session::{Attempted, ClientOperation, HistoryEntry};

/// Bits of an id that number a client's operations; the others number the client. Those that took
/// the place of others come behind all of the plan.
const SEQUENCE_BITS: u32 = 40;
const _: () = assert!((CLIENTS_MAX as u64) < 1 << (63 - SEQUENCE_BITS), "there are as many again");

/// One engine's part of a run's result, shared by its clients. The last one to end merges it.
#[derive(Debug)]
pub struct Recorder {
    run: Arc<RunControl>,
    result: RefCell<RunResult>,
    slots: Cell<u32>,
    /// Clients that have ended and that the run is not told of yet.
    ended: Cell<u32>,
}

impl Recorder {
    /// A recorder for the clients of one engine.
    pub fn new(run: &Arc<RunControl>) -> Rc<Self> {
        Rc::new(Self {
            run: Arc::clone(run),
            result: RefCell::new(RunResult::new(*run.plan(), run.kinds())),
            slots: Cell::new(0),
            ended: Cell::new(0),
        })
    }

    pub(super) fn run(&self) -> &Arc<RunControl> {
        &self.run
    }

    /// True if the history has no space for another event.
    pub(super) fn is_full(&self) -> bool {
        let mut result = self.result.borrow_mut();
        let full = self.run.plan().record && result.history.len() >= self.run.plan().history_max;
        result.history_full |= full;
        full
    }

    pub(super) fn add_overdue(&self, operations: u64) {
        self.result.borrow_mut().overdue += operations;
    }

    /// Notes that an operation of `kind` that is due at `start` was queued and answered at `at`.
    pub(super) fn answered(&self, kind: usize, start: Nanos, at: Nanos) {
        if self.run.plan().measures(start) {
            self.result.borrow_mut().kinds[kind].answers.record(at.since(start));
        }
    }

    fn count(&self, start: Nanos, count: impl Fn(&mut Counts)) {
        let mut result = self.result.borrow_mut();
        count(&mut result.whole);
        if self.run.plan().measures(start) {
            count(&mut result.window);
        }
    }

    /// Notes that a slot is left, and whether a client has ended with it; the last one hands the
    /// result over and leaves an empty one, for clients that may come later.
    fn leave(&self, client: bool) {
        self.slots.set(self.slots.get() - 1);
        self.ended.set(self.ended.get() + u32::from(client));
        if self.slots.get() > 0 {
            return;
        }
        self.merge();
        self.run.ended(self.ended.take());
    }

    fn merge(&self) {
        let mut own = self.result.replace(RunResult::new(*self.run.plan(), self.run.kinds()));
        assert!(own.whole.balance(), "every issued operation ended: {:?}", own.whole);
        assert!(own.window.balance(), "every measured operation ended: {:?}", own.window);
        self.run.result().merge(&mut own);
    }
}

/// How an operation ended, after all its attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    Done,
    Refused,
    Failed,
    Abandoned,
    Unknown,
}

/// The operation that is under way.
#[derive(Clone, Copy, Debug)]
struct Current {
    kind: usize,
    /// When it was due: what latency and the window go by.
    start: Nanos,
    /// The start of the attempt under way, if one is.
    attempt: Option<Nanos>,
}

/// A client's place at its engine's recorder, with the operation it runs. It outlives the client's
/// calls: if the engine crashes and drops the client in the middle of an attempt, the attempt is
/// recorded as unknown, because others may see what it wrote.
#[derive(Debug)]
pub(super) struct ClientSlot<O: ClientOperation> {
    recorder: Rc<Recorder>,
    number: u32,
    /// Its name in the history.
    client: u32,
    /// Does a client of the plan end with it?
    is_client: bool,
    pub(super) operation: O,
    current: Option<Current>,
    progress: Arc<Progress>,
    /// Attempts recorded so far.
    recorded: u64,
}

impl<O: ClientOperation> ClientSlot<O> {
    pub(super) fn new(recorder: Rc<Recorder>, client: u32) -> Self {
        Self::of(recorder, client, true)
    }

    /// The place of what is executed in the background for this client and others. It has a name of
    /// its own: its operations overlap with theirs.
    pub(super) fn in_background(recorder: Rc<Recorder>, client: u32) -> Self {
        Self::of(recorder, client, false)
    }

    fn of(recorder: Rc<Recorder>, number: u32, is_client: bool) -> Self {
        recorder.slots.set(recorder.slots.get() + 1);
        let client = recorder.run.name(number);
        let progress = recorder.run.progress(client);
        let (operation, current, recorded) = (O::default(), None, 0);
        Self { recorder, number, client, is_client, operation, current, progress, recorded }
    }

    /// Goes on under a new name: the last operation under the old one may be under way still.
    pub(super) fn rename(&mut self) {
        self.client = self.recorder.run.name(self.number);
        self.progress.rename(self.client);
        self.recorded = 0;
    }

    /// The client's name in the history.
    pub(super) fn name(&self) -> u32 {
        self.client
    }

    /// Notes that an operation of `kind`, due at `start`, begins `now`.
    pub(super) fn begin(&mut self, kind: usize, start: Nanos, now: Nanos) {
        assert!(self.current.is_none(), "a client runs one operation at a time");
        self.current = Some(Current { kind, start, attempt: None });
        self.progress.begin(kind, start, now);
        self.count(start, |counts| counts.issued += 1);
    }

    /// Notes that an attempt begins.
    pub(super) fn attempt(&mut self, at: Nanos) {
        let current = self.current.as_mut().expect("an attempt is one at an operation");
        assert!(current.attempt.is_none(), "an operation has one attempt at a time");
        current.attempt = Some(at);
        let start = current.start;
        self.progress.attempt(at);
        self.count(start, |counts| counts.attempts += 1);
    }

    /// Notes how the attempt under way ended.
    pub(super) fn attempted(&mut self, attempted: Attempted, at: Nanos) {
        self.progress.attempted(at);
        self.end_attempt(attempted, Some(at));
    }

    /// Ends the attempt under way; `at` is when its client learnt how, if it did.
    fn end_attempt(&mut self, attempted: Attempted, at: Option<Nanos>) {
        let current = self.current.as_mut().expect("an attempt is one at an operation");
        let began = current.attempt.take().expect("an attempt ends after it began");
        let start = current.start;
        if let Attempted::Aborted { reason, .. } = attempted {
            self.count(start, |counts| counts.aborts[reason] += 1);
        }
        self.record(attempted, began, at);
    }

    /// Notes that a piece of the operation under way has taken effect and was not the last one;
    /// `left` is what it left.
    pub(super) fn piece(&mut self, left: i64) {
        let current = self.current.expect("a piece is one of an operation");
        self.recorder.result.borrow_mut().kinds[current.kind].total += i128::from(left);
        self.count(current.start, |counts| counts.pieces += 1);
    }

    /// Notes how the operation under way ended, at `at`.
    pub(super) fn end(&mut self, ending: Ending, at: Nanos) {
        let Current { kind, start, attempt, .. } =
            self.current.take().expect("an operation ends after it began");
        assert!(attempt.is_none(), "the last attempt has ended");
        self.progress.end();
        self.count(start, |counts| match ending {
            Ending::Done => counts.committed += 1,
            Ending::Refused => counts.refused += 1,
            Ending::Failed => counts.failed += 1,
            Ending::Abandoned => counts.abandoned += 1,
            Ending::Unknown => counts.unknown += 1,
        });
        if ending == Ending::Done {
            self.done(kind, start, at);
        }
    }

    fn done(&self, kind: usize, start: Nanos, end: Nanos) {
        let plan = self.recorder.run.plan();
        let left = self.operation.left();
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
            kind.latency.record(end.since(start));
        }
    }

    fn count(&self, start: Nanos, count: impl Fn(&mut Counts)) {
        self.recorder.count(start, count);
    }

    /// Records the attempt that began at `invoked`; `responded` is when its client learnt the end,
    /// if it did.
    fn record(&mut self, attempted: Attempted, invoked: Nanos, responded: Option<Nanos>) {
        if !self.recorder.run.plan().record {
            return;
        }
        let end = attempted.end();
        let Some(HistoryEntry { id, action }) = self.operation.history_entry(end) else { return };
        let operation = Operation {
            client: self.client,
            sequence: self.recorded,
            id: id.unwrap_or_else(|| self.next_id()),
            invoked: invoked.0,
            responded: responded.map(|responded| responded.0),
            end,
            action,
        };
        self.recorded += 1;
        self.recorder.result.borrow_mut().history.push(operation);
    }

    /// An id of the next operation to be recorded that no other client gives; never 0.
    fn next_id(&self) -> u64 {
        (u64::from(self.client) + 1) << SEQUENCE_BITS | self.recorded
    }

    /// Ends what a crash cut off.
    fn cut_off(&mut self) {
        let Some(current) = self.current else { return };
        match current.attempt {
            Some(began) => {
                // The engine may be gone, and with it the time: the client never learnt the end.
                self.end_attempt(Attempted::Unknown, None);
                self.end(Ending::Unknown, began);
            }
            None => self.end(Ending::Abandoned, current.start),
        }
    }
}

impl<O: ClientOperation> Drop for ClientSlot<O> {
    fn drop(&mut self) {
        self.progress.end();
        if std::thread::panicking() {
            // The books may not balance; do not hide the first panic behind a second. The other
            // clients stop, and the thread's owner sees the panic.
            self.recorder.run.stop();
            self.recorder.run.ended(self.recorder.ended.take() + u32::from(self.is_client));
            return;
        }
        self.cut_off();
        self.recorder.leave(self.is_client);
    }
}
