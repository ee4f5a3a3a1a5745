//! The boundary between the RESP front and the engines that run its transactions.

use std::sync::Arc;

use nicol_core::ids::Key;
use nicol_core::txn::{Outcome, ProcedureId};

/// One transaction, to be run once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Keys to read only: sorted, none twice, none in `writes`.
    pub reads: Vec<Key>,
    /// Keys to read and lock: sorted, none twice.
    pub writes: Vec<Key>,
    /// The arguments of the procedure.
    pub args: Vec<u8>,
    /// The procedure, one of [`super::procedures`].
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

/// Runs transactions.
pub trait Backend: Send + Sync {
    /// Runs `request` once, without retries: the front retries what may be retried, so that a
    /// retry keeps its place among the commands of its connection. Must not block.
    ///
    /// `connection` lets a backend send a connection's transactions to one engine. A connection
    /// has at most one transaction in progress.
    fn submit(&self, connection: u64, request: Arc<Request>, done: Done);

    /// How many records there are, if that can be told cheaply (DBSIZE, INFO keyspace).
    fn records(&self) -> Option<u64> {
        None
    }
}
