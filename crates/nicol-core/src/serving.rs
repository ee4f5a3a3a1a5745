//! What a front, such as a server of clients outside the cluster, asks of a store that it serves,
//! whichever family the store's system belongs to: procedures over named keys, each run once. And
//! how the event loop of a front shares an engine's thread.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::ids::Key;
use crate::txn::{Outcome, ProcedureId};
use crate::units::Bytes;

/// One transaction, to be run once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Keys to read only: sorted, none twice, none in `writes`.
    pub reads: Vec<Key>,
    /// Keys to read and lock: sorted, none twice.
    pub writes: Vec<Key>,
    /// The arguments of the procedure.
    pub args: Vec<u8>,
    /// The procedure, one of those that the system was started with.
    pub procedure: ProcedureId,
}

/// How the attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Committed, aborted or unknown.
    pub outcome: Outcome,
    /// `Txn::output` of a committed transaction; ignored otherwise.
    pub output: Vec<u8>,
}

/// Called once with the response, on any thread; it only queues. Dropped without a call, the
/// outcome counts as unknown.
pub type Done = Box<dyn FnOnce(Response) + Send>;

/// The memory of a store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreMemory {
    /// The memory that it takes, by name.
    pub parts: Vec<(&'static str, Bytes)>,
    /// The most that all parts together may take; `None`: not limited.
    pub limit: Option<Bytes>,
}

impl StoreMemory {
    pub fn used(&self) -> Bytes {
        Bytes(self.parts.iter().map(|(_, bytes)| bytes.0).sum())
    }
}

/// How far a step of a walk over all records of a store has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Walked {
    /// The next step begins at this position, which is above the one of this step.
    Until(u64),
    /// All has been walked.
    End,
    /// The store does not walk its records.
    Unable,
}

/// Runs transactions for a front on other threads, such as a server's.
pub trait Backend: Send + Sync {
    /// Runs `request` once, without retries: the front retries what may be retried, so that a
    /// retry keeps its position among the commands of its connection. Must not block.
    ///
    /// `connection` lets a backend send a connection's transactions to one engine. A connection
    /// has at most one transaction in progress.
    fn submit(&self, connection: u64, request: Arc<Request>, done: Done);

    /// Goes a step over its records: appends the keys of those behind position `from`, some tens of
    /// them, to `keys`. A walk begins at position 0; the store remembers nothing of it.
    ///
    /// Names every record that had committed before the first step and is there until the last one,
    /// whatever else is written meanwhile. Other keys may be named too, and some twice: a
    /// transaction that reads them tells what is there. Positions mean nothing to the store that
    /// another process reads back.
    ///
    /// Cost: some short mutexes. Nothing is waited for, and writes cost no more for it.
    fn walk(&self, from: u64, keys: &mut Vec<Key>) -> Walked {
        let _names_none = (from, keys);
        Walked::Unable
    }

    /// The position before which about a share `draw` / 2^64 of the records stands.
    fn walk_position(&self, draw: u64) -> u64 {
        let _has_none = draw;
        0
    }

    /// The memory that it takes. Default: not counted.
    ///
    /// Cost: some hundred short mutexes.
    fn memory(&self) -> StoreMemory {
        StoreMemory::default()
    }

    /// True if its memory is used up. A transaction that inserts a record or makes one larger then
    /// aborts with `NoResources`, and trying again is of no use.
    ///
    /// Cost: some loads.
    fn is_full(&self) -> bool {
        false
    }

    /// Has the device of its logs no room? Requests that write then abort with `NoResources` before
    /// anything is done, and trying again is of no use until there is room.
    ///
    /// Cost: a load.
    fn is_out_of_room(&self) -> bool {
        false
    }
}

/// The event loop of a front, such as a server's, on an engine's thread: it runs between the rounds
/// of the engines, and the thread sleeps in it. What a client asks and what it is answered then
/// stay on one core, and no thread wakes another.
pub trait EventLoop: Send {
    /// Waits for events: until there is one, `limit` is over, or the waker is called. With a limit
    /// of 0 it only looks. The wait may end early, and a
    /// millisecond late.
    fn wait(&mut self, limit: Duration);

    /// Handles the events of the last wait and what engines have answered. Does not wait.
    fn turn(&mut self) -> Turn;

    /// Ends a wait, the next one if there is none now. May be called on any thread.
    fn waker(&self) -> Waker;
}

/// The result of a turn of an [`EventLoop`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// There was nothing to do.
    Idle,
    /// Something was done: there may be more for the engines, or for another turn.
    Worked,
    /// The loop has ended. It is to be dropped.
    Ended,
}
