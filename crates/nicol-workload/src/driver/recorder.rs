//! Where the clients of one engine note what happened, without a lock and without allocating
//! (unless a history is recorded).

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::history::{self, Action, Effect, End, Operation, digest};
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
    /// May its execution write keys that are not in its first request?
    adds_keys: bool,
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
    /// Attempts recorded so far.
    recorded: u64,
}

impl ClientSlot {
    pub(super) fn new(recorder: Rc<Recorder>, client: u32) -> Self {
        recorder.slots.set(recorder.slots.get() + 1);
        let client = recorder.run.name(client);
        Self { recorder, client, txn: Txn::default(), current: None, recorded: 0 }
    }

    /// Notes that a transaction of `kind`, due at `start`, begins. `adds_keys`: its execution may
    /// write keys that are not in its first request.
    pub(super) fn begin(&mut self, kind: usize, adds_keys: bool, start: Nanos) {
        assert!(self.current.is_none(), "a client runs one transaction at a time");
        self.current = Some(Current { kind, start, adds_keys, attempt: None });
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
        self.end_attempt(outcome, Some(at));
    }

    /// Ends the attempt under way; `at` is when its client learnt how, if it did.
    fn end_attempt(&mut self, outcome: Outcome, at: Option<Nanos>) {
        let current = self.current.as_mut().expect("an attempt is one of a transaction");
        let began = current.attempt.take().expect("an attempt ends after it began");
        let start = current.start;
        if let Outcome::Aborted(reason) = outcome {
            self.count(start, |counts| counts.aborts[reason.index()] += 1);
        }
        self.record(outcome, began, at);
    }

    /// Checks, once an attempt has committed, that only a kind of which that was said has added
    /// keys to the `initial` ones and written them.
    pub(super) fn check_added_keys(&self, initial: usize) {
        let adds_keys = self.current.is_some_and(|current| current.adds_keys);
        let mut added = self.txn.entries()[initial..].iter();
        assert!(adds_keys || !added.any(|entry| entry.write), "Workload::adds_keys says that too");
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
        let Current { kind, start, attempt, .. } =
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

    /// Records the attempt that began at `invoked`; `responded` is when its client learnt the end,
    /// if it did.
    fn record(&mut self, outcome: Outcome, invoked: Nanos, responded: Option<Nanos>) {
        if !self.recorder.run.plan().record {
            return;
        }
        let txn = &self.txn;
        if txn.id == TxnId(0) {
            // It ended before the coordinator numbered it, so that nobody can have seen it.
            assert!(outcome != Outcome::Committed, "a committed transaction has an id");
            return;
        }
        let current = self.current.expect("an attempt is one of a transaction");
        let end = match outcome {
            Outcome::Committed => End::Ok,
            Outcome::Aborted(_) => End::Failed,
            Outcome::Unknown => End::Unknown,
        };
        let is_unknown = end == End::Unknown;
        let operation = Operation {
            client: self.client,
            sequence: self.recorded,
            id: txn.id.0,
            invoked: invoked.0,
            responded: responded.map(|responded| responded.0),
            end,
            action: Action::Txn(history::Txn {
                reads: reads(txn),
                scans: scans(txn),
                writes: writes(txn, is_unknown),
                writes_more: is_unknown && txn.ship && current.adds_keys,
            }),
        };
        self.recorded += 1;
        self.recorder.result.borrow_mut().history.push(operation);
    }

    /// Ends what a crash cut off.
    fn cut_off(&mut self) {
        let Some(current) = self.current else { return };
        match current.attempt {
            Some(began) => {
                // The engine may be gone, and with it the time: the client never learnt the end.
                self.end_attempt(Outcome::Unknown, None);
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

/// What was read of each key, what scans found included.
fn reads(txn: &Txn) -> Vec<history::Read> {
    let fetched = |index: &usize| txn.entries()[*index].fetched;
    (0..txn.entries().len()).filter(fetched).map(|index| read(txn, index)).collect()
}

/// What was read of the key at `index`. Of what was executed elsewhere the value is not known.
fn read(txn: &Txn, index: usize) -> history::Read {
    let entry = &txn.entries()[index];
    let value = if entry.remote { None } else { txn.value(index) };
    history::Read {
        key: entry.key.into(),
        present: entry.present,
        version: Some(entry.version.0),
        digest: value.map(digest),
    }
}

/// The ranges that were read.
fn scans(txn: &Txn) -> Vec<history::Scan> {
    let made = (0..txn.scans().len()).filter_map(|scan| Some((scan, txn.found(scan)?)));
    made.map(|(scan, found)| {
        let range = txn.scans()[scan].range;
        let fetched = |index: &&u32| txn.entries()[**index as usize].fetched;
        history::Scan {
            first: range.first.into(),
            last: range.last.into(),
            backward: range.backward,
            limit: Some(range.limit),
            found: found.iter().filter(fetched).map(|&at| read(txn, at as usize)).collect(),
        }
    })
    .collect()
}

/// What was written; where the outcome is unknown, also the keys that may have been.
fn writes(txn: &Txn, is_unknown: bool) -> Vec<history::Write> {
    let write = |index: usize| {
        let entry = &txn.entries()[index];
        let update = txn.update(index).filter(|_| entry.fetched);
        let key = entry.key.into();
        match update {
            Some(update) => {
                let known = update.value.filter(|_| !entry.remote).map(digest);
                let effect = match update.value {
                    Some(_) => Effect::Put { digest: known },
                    None => Effect::Delete,
                };
                Some(history::Write { key, effect, version: Some(update.version.0) })
            }
            None if entry.write && is_unknown => {
                Some(history::Write { key, effect: Effect::Unknown, version: None })
            }
            None => None,
        }
    };
    (0..txn.entries().len()).filter_map(write).collect()
}
