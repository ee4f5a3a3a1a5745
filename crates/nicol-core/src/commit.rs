//! The `commit` family: what every transactional system offers to a workload.

use std::ops::AddAssign;
use std::sync::Arc;

use crate::fabric::Fabric;
use crate::ids::{Key, NodeId, ShardId};
use crate::txn::{Outcome, ProcedureId, Txn, Verdict};
use crate::view::View;
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

    /// Runs the logic of `txn`. An id that is not registered refuses: it came from a peer. So does
    /// a scan by a transaction that is not [`Txn::local`].
    pub fn execute(&self, txn: &mut Txn) -> Verdict {
        let verdict = match self.get(txn.procedure) {
            Some(execute) => execute(txn),
            None => Verdict::Refuse,
        };
        if txn.scans_in_vain() { Verdict::Refuse } else { verdict }
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

    /// Has it ordered tables, which a local transaction may scan?
    const SCANS: bool;

    /// What a node holds of a shard.
    type Shard: Send + Sync;
    /// What a node has besides its primary shard.
    type Copies: Send;

    /// Loads `shard` with the workload's records.
    fn load(
        shard: ShardId,
        view: &View,
        config: &Self::Config,
        workload: &dyn Workload,
    ) -> Self::Shard;

    /// Copies what node `id` backs up of `shards`, in the order of their numbers.
    fn copy(
        id: NodeId,
        view: &View,
        config: &Self::Config,
        workload: &dyn Workload,
        shards: &[Self::Shard],
    ) -> Self::Copies;

    /// Puts node `id` together.
    fn build(
        id: NodeId,
        view: &View,
        config: &Self::Config,
        primary: Self::Shard,
        copies: Self::Copies,
    ) -> Self;

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

    /// Transactions that this node has coordinated and committed, by the way that they took; empty
    /// for a system with a single way.
    fn paths(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// What lookups on its NIC have cost so far; all zero where there are none.
    fn lookups(&self) -> LookupStats {
        LookupStats::default()
    }

    /// Checks the structure of its memory, once the cluster is quiet. Goes over every record.
    ///
    /// # Panics
    /// If an invariant does not hold.
    fn check(&self) {}

    /// Reads a record of the node's own shard into `value`; false if there is none.
    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool;

    /// Calls `each` with every record of the node's own shard, in the order of its memory.
    fn for_each(&self, each: &mut dyn FnMut(Key, &[u8]));
}

/// How the work of loading several nodes is done.
pub trait Spread {
    /// What `work` makes of each item, in their order.
    fn map<I: Sync, T: Send>(&self, items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T>;
}

/// One node after the other.
#[derive(Clone, Copy, Debug)]
pub struct InTurn;

impl Spread for InTurn {
    fn map<I: Sync, T: Send>(&self, items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
        items.iter().map(work).collect()
    }
}

/// Loads a cluster's nodes: each shard once, then its copies.
pub fn load_nodes<N: Member>(
    view: &View,
    config: &N::Config,
    workload: &dyn Workload,
    spread: &impl Spread,
) -> Vec<Arc<N>> {
    let ids: Vec<NodeId> = view.node_ids().collect();
    let numbers: Vec<ShardId> = view.shard_ids().collect();
    let shards = spread.map(&numbers, |&shard| N::load(shard, view, config, workload));
    let copies = spread.map(&ids, |&id| N::copy(id, view, config, workload, &shards));
    let mut shards: Vec<_> = shards.into_iter().map(Some).collect();
    let build = |(&id, copies)| {
        let led = view.led_by(id).next();
        let Some(primary) = led.and_then(|shard| shards[usize::from(shard.0)].take()) else {
            panic!("node {} holds the primary of a shard", id.0)
        };
        Arc::new(N::build(id, view, config, primary, copies))
    };
    ids.iter().zip(copies).map(build).collect()
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

/// What a node's NIC has spent on lookups in its host's table so far. [Xenic21 4.1.4]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LookupStats {
    /// Keys looked up.
    pub lookups: u64,
    /// Answered by the index at once, negative entries included; the others missed.
    pub hits: u64,
    /// Hits of a negative entry: there is no such record.
    pub negative_hits: u64,
    /// Searches that one DMA read answered.
    pub first_reads: u64,
    /// DMA reads of all kinds.
    pub dma_reads: u64,
    /// Slots read, those of overflow pages included, and values out of line.
    pub objects_read: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Second, adjacent reads: the hint d_i + k was too low.
    pub second_reads: u64,
    /// Overflow pages read.
    pub overflow_reads: u64,
    /// Segment headers read: to prove a key absent, to find its overflow or where it went.
    pub header_reads: u64,
    /// Searches begun again, since the host was moving or replacing what was read.
    pub retries: u64,
    /// Reads of slots that were torn: the host wrote a slot while it was read, and the key was in no
    /// other (AMB-03).
    pub torn: u64,
    /// Keys of ordered tables that the host was asked for.
    pub asked: u64,
    /// Doublings that the node's own host table has begun.
    pub doublings: u64,
}

impl AddAssign for LookupStats {
    fn add_assign(&mut self, other: Self) {
        self.lookups += other.lookups;
        self.hits += other.hits;
        self.negative_hits += other.negative_hits;
        self.first_reads += other.first_reads;
        self.dma_reads += other.dma_reads;
        self.objects_read += other.objects_read;
        self.bytes_read += other.bytes_read;
        self.second_reads += other.second_reads;
        self.overflow_reads += other.overflow_reads;
        self.header_reads += other.header_reads;
        self.retries += other.retries;
        self.torn += other.torn;
        self.asked += other.asked;
        self.doublings += other.doublings;
    }
}
