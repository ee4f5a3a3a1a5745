//! Persists on their way to a node's log thread and back, and what crashes ask of it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nicol_core::engine::Operation;
use nicol_core::ids::{EngineId, Incarnation};
use nicol_core::medium::{MediumCounts, MediumWrite};

use super::Disk;

/// How often it is looked whether a device that was full has room again.
const LOOK: Duration = Duration::from_millis(100);

/// Persists on their way to a node's log thread.
#[derive(Debug, Default)]
pub(crate) struct LogQueue {
    waiting: Mutex<Waiting>,
    filled: Condvar,
    answered: Condvar,
    /// Bytes written to the current file.
    bytes: AtomicU64,
    /// Records that are durable in it.
    records: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    persists: VecDeque<Persist>,
    asked: Option<Ask>,
    answer: Option<Answer>,
    /// True if the host is about to crash. Then no persist is handed back.
    held: bool,
    closed: bool,
    ended: bool,
    /// Why the device has no room, in words.
    full: Option<String>,
}

/// A persist and the engine that waits for it.
#[derive(Debug)]
pub(crate) struct Persist {
    pub(crate) from: EngineId,
    /// The engine's life that waits; a later life is not told.
    pub(crate) life: Incarnation,
    pub(crate) operation: Operation,
}

/// A request to a log thread, one at a time.
pub(crate) enum Ask {
    /// The host has crashed: decide about what was not handed back.
    Crash {
        seed: u64,
        /// Broken on purpose: everything is there.
        keeps_all: bool,
    },
    /// Read the records back, and cut off what follows them.
    Content,
    /// Go on in another file.
    Switch(Box<dyn Disk + Send>),
}

impl std::fmt::Debug for Ask {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Crash { .. } => "Crash",
            Self::Content => "Content",
            Self::Switch(_) => "Switch",
        })
    }
}

#[derive(Debug)]
pub(crate) enum Answer {
    Crashed(MediumCounts),
    Content(Vec<MediumWrite>),
    Switched,
}

/// The next action of a log thread.
#[derive(Debug)]
pub(crate) enum Next {
    /// A group of persists waits.
    Group,
    Asked(Ask),
    /// Nothing has come while there was no room: there may be some now.
    Look,
    /// Nothing will come any more.
    Closed,
}

impl LogQueue {
    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues persists of one life of an engine.
    pub(crate) fn add(
        &self,
        (from, life): (EngineId, Incarnation),
        operations: impl Iterator<Item = Operation>,
    ) {
        let mut waiting = self.lock();
        let idle = waiting.persists.is_empty();
        waiting.persists.extend(operations.map(|operation| Persist { from, life, operation }));
        drop(waiting);
        if idle {
            self.filled.notify_one();
        }
    }

    /// No more persists will come: the thread ends once it has made durable what waits.
    pub(crate) fn close(&self) {
        let mut waiting = self.lock();
        (waiting.closed, waiting.held) = (true, false);
        drop(waiting);
        self.filled.notify_one();
    }

    /// The host begins to crash: no persist is handed back from now on, until the crash has decided
    /// about those that wait, or until [`release`](Self::release).
    pub(crate) fn hold(&self) {
        let mut waiting = self.lock();
        waiting.held = !waiting.closed;
    }

    /// The host does not crash after all, or has crashed: persists are handed back again.
    pub(crate) fn release(&self) {
        self.lock().held = false;
        self.filled.notify_one();
    }

    /// The thread has ended, by an error or not: no engine may wait for it.
    pub(crate) fn end(&self) {
        self.lock().ended = true;
        self.answered.notify_all();
    }

    /// The host has crashed, and no engine of the node runs. Returns once it is decided what is
    /// left of each write that was not handed back, by dice of `seed`.
    pub(crate) fn crash(&self, seed: u64, keeps_all: bool) -> MediumCounts {
        match self.ask(Ask::Crash { seed, keeps_all }) {
            Some(Answer::Crashed(counts)) => counts,
            _ => MediumCounts::default(),
        }
    }

    /// The content of the device. Nothing if its thread has ended.
    pub(crate) fn content(&self) -> Vec<MediumWrite> {
        match self.ask(Ask::Content) {
            Some(Answer::Content(writes)) => writes,
            _ => Vec::new(),
        }
    }

    /// Has the thread go on in another file, and waits until it does; false if it has ended. What
    /// waits goes to the new file.
    pub(crate) fn switch(&self, to: Box<dyn Disk + Send>) -> bool {
        self.ask(Ask::Switch(to)).is_some()
    }

    /// Bytes written to the current file.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// Records that are durable in the current file.
    pub(crate) fn records(&self) -> u64 {
        self.records.load(Ordering::Relaxed)
    }

    /// Counts bytes that have become durable in the current file, up to the record `last`.
    pub(crate) fn count_durable(&self, bytes: usize, last: u64) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.records.store(last, Ordering::Relaxed);
    }

    /// Another file has begun.
    pub(crate) fn begin_file(&self) {
        self.bytes.store(0, Ordering::Relaxed);
        self.records.store(0, Ordering::Relaxed);
    }

    /// Asks the thread and waits for its answer; `None` if it has ended.
    fn ask(&self, ask: Ask) -> Option<Answer> {
        let mut waiting = self.lock();
        assert!(waiting.asked.is_none(), "crashes and restarts come one after the other");
        (waiting.asked, waiting.answer) = (Some(ask), None);
        self.filled.notify_one();
        while waiting.answer.is_none() && !waiting.ended {
            waiting = self.answered.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        waiting.answer.take()
    }

    /// Answers what the thread was asked.
    pub(crate) fn answer(&self, answer: Answer) {
        self.lock().answer = Some(answer);
        self.answered.notify_all();
    }

    /// Waits for something to do. A group that waits is swapped with the empty `into`, and so is
    /// what waits when the host crashes.
    pub(crate) fn next(&self, into: &mut VecDeque<Persist>) -> Next {
        assert!(into.is_empty(), "the last group is finished");
        let mut waiting = self.lock();
        loop {
            if let Some(ask) = waiting.asked.take() {
                if matches!(ask, Ask::Crash { .. }) {
                    std::mem::swap(&mut waiting.persists, into);
                    waiting.held = false;
                }
                return Next::Asked(ask);
            }
            if !waiting.persists.is_empty() && !waiting.held {
                std::mem::swap(&mut waiting.persists, into);
                return Next::Group;
            }
            if waiting.closed {
                return Next::Closed;
            }
            if waiting.full.is_none() {
                waiting = self.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let looked = self.filled.wait_timeout(waiting, LOOK);
            let (again, timeout) = looked.unwrap_or_else(PoisonError::into_inner);
            waiting = again;
            if timeout.timed_out() {
                return Next::Look;
            }
        }
    }

    /// Why the device has no room, in words, if it has none.
    pub(crate) fn full(&self) -> Option<String> {
        self.lock().full.clone()
    }

    /// Says that the device has no room, and why; or that it has some.
    pub(crate) fn set_full(&self, why: Option<String>) {
        self.lock().full = why;
    }

    /// Waits a moment for room; false if nothing will come any more, or the host has crashed.
    pub(crate) fn wait_for_room(&self) -> bool {
        let waiting = self.lock();
        let stop = |waiting: &Waiting| waiting.closed || waiting.asked.is_some();
        let waited = self.filled.wait_timeout_while(waiting, LOOK, |waiting| !stop(waiting));
        let (waiting, _) = waited.unwrap_or_else(PoisonError::into_inner);
        !stop(&waiting)
    }

    /// Has the host crashed while a group was under way? Then the group was not made durable in
    /// time, and what waits behind it is moved to its end. Waits for the crash if it has begun.
    pub(crate) fn crashed_under_way(&self, group: &mut VecDeque<Persist>) -> Option<Ask> {
        let mut waiting = self.lock();
        while waiting.held && waiting.asked.is_none() {
            waiting = self.filled.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        if !matches!(waiting.asked, Some(Ask::Crash { .. })) {
            return None;
        }
        group.append(&mut waiting.persists);
        waiting.held = false;
        waiting.asked.take()
    }
}

/// Persists on their way back to an engine.
#[derive(Debug)]
pub(crate) struct Persisted {
    any: AtomicBool,
    of_life: Mutex<(Incarnation, Vec<Operation>)>,
}

impl Default for Persisted {
    fn default() -> Self {
        let of_life = Mutex::new((Incarnation::FIRST, Vec::new()));
        Self { any: AtomicBool::new(false), of_life }
    }
}

impl Persisted {
    fn lock(&self) -> MutexGuard<'_, (Incarnation, Vec<Operation>)> {
        self.of_life.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves an operation if the life that waits for it is not over; the engine's thread is to be
    /// woken afterwards.
    pub(crate) fn leave(&self, life: Incarnation, operation: Operation) {
        let mut of_life = self.lock();
        if of_life.0 == life {
            of_life.1.push(operation);
            self.any.store(true, Ordering::SeqCst);
        }
    }

    /// Forgets the requests of lives before `life`: no engine waits for them.
    pub(crate) fn begin(&self, life: Incarnation) {
        let mut of_life = self.lock();
        *of_life = (life, Vec::new());
        self.any.store(false, Ordering::SeqCst);
    }

    /// True if there is something to take.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }

    /// Moves all of them to `into`.
    pub(crate) fn take(&self, into: &mut VecDeque<Operation>) {
        if self.any.load(Ordering::Relaxed) {
            let mut of_life = self.lock();
            self.any.store(false, Ordering::SeqCst);
            into.extend(of_life.1.drain(..));
        }
    }
}
