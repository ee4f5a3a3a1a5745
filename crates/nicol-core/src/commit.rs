//! The `commit` family: what every transactional system offers to a workload, and to a server that
//! accepts transactions from clients outside the cluster.

use std::sync::Arc;

use crate::fabric::Fabric;
use crate::history::Promise;
use crate::ids::Key;
use crate::system::SystemNode;
use crate::txn::{Outcome, ProcedureId, Procedures, Txn};
use crate::units::Bytes;

/// A coordinator on one host engine: runs transactions to their end, many at a time.
pub trait CommitProtocol: Clone + 'static {
    /// Runs `txn` once, without retries. On commit its entries hold the versions read and its
    /// updates the versions installed.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn run(&self, txn: &mut Txn) -> Outcome;
}

/// A node of a system that runs transactions.
///
/// Of its counters, those of the group [`PATHS`] are transactions that it has coordinated and
/// committed, by the way that they took; a system with a single way has none.
pub trait CommitNode: SystemNode {
    /// What runs transactions on a host engine.
    type Coordinator<F: Fabric>: CommitProtocol;

    /// Has it ordered tables, which a local transaction may scan?
    const SCANS: bool;

    /// May clients on other nodes run transactions that scan?
    const SCANS_FROM_AFAR: bool = false;

    /// What it promises of its transactions.
    const PROMISE: Promise = Promise::StrictSerializable;

    /// Starts the system on one engine of this node; host engines get a coordinator.
    fn start<F: Fabric>(
        self: &Arc<Self>,
        fabric: &F,
        procedures: &Procedures,
    ) -> Option<Self::Coordinator<F>>;
}

/// The group of counters of committed transactions.
pub const PATHS: &str = "paths";

/// The group of counters of what survivors did without nodes that have lost their data.
pub const WITHOUT_LOST_NODES: &str = "without_lost_nodes";

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
    /// What it takes, by name.
    pub parts: Vec<(&'static str, Bytes)>,
    /// What all parts together may take; `None`: not limited.
    pub limit: Option<Bytes>,
}

impl StoreMemory {
    /// All parts.
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

    /// Records that its tables hold. A front asks before its first request and counts from there:
    /// what has been committed may not be in the tables yet.
    fn records(&self) -> u64;

    /// The memory that it takes. Default: not counted.
    ///
    /// Cost: some hundred short mutexes.
    fn memory(&self) -> StoreMemory {
        StoreMemory::default()
    }

    /// Is its memory used up? A transaction that inserts a record or makes one larger then aborts
    /// with `NoResources`, and trying again is of no use.
    ///
    /// Cost: some loads.
    fn is_full(&self) -> bool {
        false
    }
}
