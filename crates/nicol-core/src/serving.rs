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

/// Runs transactions for a front on other threads, such as a server's.
pub trait Backend: Send + Sync {
    /// Runs `request` once, without retries: the front retries what may be retried, so that a
    /// retry keeps its position among the commands of its connection. Must not block.
    ///
    /// `connection` lets a backend send a connection's transactions to one engine. A connection
    /// has at most one transaction in progress.
    fn submit(&self, connection: u64, request: Arc<Request>, done: Done);

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
