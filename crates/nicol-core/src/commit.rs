//! The `commit` family: what every transactional system offers to a workload.

use std::sync::Arc;

use crate::cluster::Layout;
use crate::fabric::Fabric;
use crate::ids::{Key, NodeId, ShardId};
use crate::txn::{Outcome, ProcedureId, Txn, Verdict};
use crate::workload::Workload;

/// Execution logic: reads the transaction's values and arguments, sets its writes and output, may
/// add keys. Runs on a host or a NIC core and must be a pure function of the transaction.
/// [Xenic21 4.2.2]
pub type Execute = fn(&mut Txn) -> Verdict;

/// The procedures of a workload, indexed by [`ProcedureId`].
#[derive(Clone, Debug, Default)]
pub struct Procedures(Vec<Execute>);

impl Procedures {
    /// The procedures whose ids are their positions.
    pub fn new(procedures: &[Execute]) -> Self {
        Self(procedures.to_vec())
    }

    /// Runs the logic of `txn`. An id that is not registered refuses: it came from a peer.
    pub fn execute(&self, txn: &mut Txn) -> Verdict {
        match self.get(txn.procedure) {
            Some(execute) => execute(txn),
            None => Verdict::Refuse,
        }
    }

    fn get(&self, id: ProcedureId) -> Option<Execute> {
        self.0.get(usize::from(id.0)).copied()
    }
}

/// A coordinator on one host engine: runs transactions to their end, many at a time.
pub trait CommitProtocol: Clone + 'static {
    /// Runs `txn` once, without retries. On commit its entries hold the versions read and its
    /// updates the versions installed.
    #[expect(async_fn_in_trait, reason = "futures stay on the polling thread that made them")]
    async fn run(&self, txn: &mut Txn) -> Outcome;
}

/// One node of a system: its memory, and how its engines start.
pub trait Member: Send + Sync + Sized + 'static {
    /// How the system runs.
    type Config: Clone + Send + Sync + 'static;
    /// What runs transactions on a host engine.
    type Coordinator<F: Fabric>: CommitProtocol;

    /// Builds node `id` and loads its shards with the workload's records.
    fn load(id: NodeId, layout: &Layout, config: &Self::Config, workload: &dyn Workload) -> Self;

    /// Starts the system on one engine of this node; host engines get a coordinator.
    fn start<F: Fabric>(
        self: &Arc<Self>,
        fabric: &F,
        procedures: &Procedures,
    ) -> Option<Self::Coordinator<F>>;

    /// Has everything that was logged been applied, and is every lock free?
    fn is_settled(&self) -> bool;

    /// The state of its memory; meaningful once the cluster is quiet.
    fn audit(&self) -> Audit;

    /// Reads a record of the node's own shard into `value`; false if there is none.
    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool;
}

/// What a node's memory looks like when everything is quiet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Locks that nobody will release.
    pub leaked_locks: u64,
    /// Cached objects that still wait for the host to apply them.
    pub pinned: u64,
    /// Records of the primary shard.
    pub records: u64,
    /// Digest of the primary shard, then of each backup shard held.
    pub digests: Vec<(ShardId, u64)>,
}
