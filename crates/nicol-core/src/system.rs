//! A system node, whatever its family: how it is loaded, when it is at rest, what it counts and
//! what an audit finds.
//!
//! A family adds how its engines start and what its clients call: for transactions that is
//! [`CommitNode`](crate::commit::CommitNode), for single operations
//! [`KeyValueNode`](crate::key_value::KeyValueNode).

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use crate::engine::{Loss, Revival};
use crate::fabric::Fabric;
use crate::ids::{Key, NodeId, ShardId, Version};
use crate::medium::MediumWrite;
use crate::records::RecordSource;
use crate::steering::Decisions;
use crate::units::{Bytes, Nanos};
use crate::view::{Halves, Succession, View};

/// The content that was read back: of each key the newest write; no value of one that was deleted.
pub type ReadBack = BTreeMap<Key, (Version, Option<Vec<u8>>)>;

/// The origin of a cluster's records.
pub struct Origin<'a, C> {
    /// The nodes, and who holds which shard.
    pub view: &'a View,
    pub config: &'a C,
    pub source: &'a dyn RecordSource,
}

/// Puts a node together with the shard that it leads, once every node has copied what it backs up.
pub type Opening<N, S> = Box<dyn FnOnce(Option<S>) -> N + Send>;

/// One node of a system: its memory, shared by its engines.
pub trait SystemNode: NodeState + Sized {
    type Config: Clone + Debug + Send + Sync + 'static;

    /// Do all replicas of a shard hold the same bytes once everything is at rest? Where a minority
    /// may lag behind, they need not.
    const REPLICAS_CONVERGE: bool = true;

    /// Does it serve again after a crash? If not, a node that has crashed holds nothing in a later
    /// life either, and no view moves its shard.
    const RECOVERS: bool = false;

    /// Does it come back even if every node has crashed, from what their log devices hold?
    const RECOVERS_FROM_LOGS: bool = false;

    /// Do simulated copies of a shard take memory for what is written to them only?
    const SHARES_COPIES: bool = false;

    /// Do the survivors of a crash go on, under the views that follow? If not, and it does not
    /// recover either, they wait for the dead.
    const FOLLOWS_VIEWS: bool = false;

    /// Which sides of a node the system needs together, under this configuration. Default: both.
    ///
    /// [`Halves::HostAlone`] is for systems whose hosts do everything, over cards that execute
    /// verbs for as long as their machine runs. Where NIC engines stand in for such a card it
    /// counts as [`Halves::Together`].
    fn halves(config: &Self::Config) -> Halves {
        let _however = config;
        Halves::Together
    }

    /// What becomes of a shard whose primary's node has lost its data, under this configuration.
    /// Default: nobody serves it any more.
    fn succession(config: &Self::Config) -> Succession {
        let _however = config;
        Succession::Nobody
    }

    /// The loaded form of a shard.
    type Shard: Send + Sync + 'static;

    /// Loads a shard, once for all nodes that hold it.
    ///
    /// # Errors
    /// If the configuration leaves no room for its records.
    fn load(from: &Origin<'_, Self::Config>, shard: ShardId) -> Result<Self::Shard, TooSmall>;

    /// A copy of a loaded shard that takes next to no time, and memory for what is written only.
    /// `None`, the default, if there is no such copy.
    fn share(shard: &Self::Shard) -> Option<Self::Shard> {
        let _dear = shard;
        None
    }

    /// Opens node `id`: copies what it backs up of `shards`, which are all in the order of their
    /// numbers, and says how the node is put together with the one that it [leads](View::led_by).
    /// That is `None` for a node that leads none, such as one for clients.
    fn open(
        from: &Origin<'_, Self::Config>,
        id: NodeId,
        shards: &[Self::Shard],
    ) -> Opening<Self, Self::Shard>;

    /// What log devices hold after every node has ended, over what `source` has loaded; `None` of a
    /// system that, set like this, does not log all that it acknowledges.
    ///
    /// Errors: what was acknowledged may be lost, in words.
    fn read_back(
        config: &Self::Config,
        view: &View,
        source: &dyn RecordSource,
        media: &[(NodeId, Vec<MediumWrite>)],
    ) -> Option<Result<ReadBack, String>> {
        let _no_logs = (config, view, source, media);
        None
    }

    /// Starts one engine of a new incarnation of a node that has lost its data. It serves no shard:
    /// it refuses requests with the reason. By default nothing is started, and requests end with
    /// [`Unreachable`](crate::fabric::FabricError::Unreachable).
    fn start_without_data<F: Fabric>(fabric: &F) {
        let _refuses_everything = fabric;
    }

    /// Starts one engine of a new life of a node that has crashed. Default: without data, for ever.
    fn restart<F: Fabric>(self: &Arc<Self>, fabric: &F) {
        Self::start_without_data(fabric);
    }

    /// The same, with what its log device holds. Default: without that.
    fn restart_from<F: Fabric>(self: &Arc<Self>, fabric: &F, revival: &Revival<'_>) {
        let _forgotten = revival;
        self.restart(fabric);
    }
}

/// The state of a node, whatever its system: what crashes take of it, and what can be asked of it
/// from outside.
///
/// Apart from [`SystemNode`], and usable as an object, so that what drives and judges runs is
/// compiled once and not again for each system.
pub trait NodeState: Send + Sync + 'static {
    /// The sides of `loss` have crashed, with the node's structures in their memory. A side that is
    /// up may go on to use the rest. If the node's data is [lost](SystemNode::halves) with one of
    /// the sides, no check relies on what the node holds.
    fn crashed(&self, loss: &Loss) {
        let _lost = loss;
    }

    /// The lives of these sides are over, though their memory is whole: see
    /// [`Start::ended`](crate::engine::Start::ended). Only of nodes whose
    /// [`halves`](SystemNode::halves) keep it. Default: as if they had crashed.
    fn ended(&self, loss: &Loss) {
        self.crashed(loss);
    }

    /// Of a node that has crashed: has it its data again, so that it serves? Never where
    /// [`RECOVERS`](SystemNode::RECOVERS) is not set.
    fn has_recovered(&self) -> bool {
        false
    }

    /// Whether it serves `shard`, which the current view has it lead. Default: at once.
    fn serves(&self, shard: ShardId) -> bool {
        let _at_once = shard;
        true
    }

    /// True if it has nothing left to do: every log is applied, every lock released.
    fn is_settled(&self) -> bool;

    /// The state of its memory; meaningful once the cluster is quiet.
    fn audit(&self) -> Audit;

    /// Locks that transactions hold now on records of the shards that it leads, as its memory tells
    /// even in the moment of its crash. Default: it does not tell.
    fn locks_held(&self) -> u64 {
        0
    }

    /// Its counts so far.
    fn counters(&self) -> Vec<Counter> {
        Vec::new()
    }

    /// How long the places were taken that it has a fixed number of. Default: it has none.
    fn taken(&self) -> Vec<Taken> {
        Vec::new()
    }

    /// Its decisions at run time; `None` if it has no choice.
    fn decisions(&self) -> Option<Decisions> {
        None
    }

    /// Checks the structure of its memory, once the cluster is quiet. Goes over every record.
    ///
    /// # Panics
    /// If an invariant does not hold.
    fn check(&self) {}

    /// The memory that it takes; `None` of a system that does not count it, and serves no store.
    fn memory(&self) -> Option<NodeMemory> {
        None
    }

    /// True if the table of its own shard has reached its limit. Then a write that needs more
    /// memory aborts with `NoResources`.
    fn is_full(&self) -> bool {
        false
    }

    /// Records of the node's own shard. Default: counts them.
    fn records(&self) -> u64 {
        let mut records = 0;
        self.for_each(&mut |_, _| records += 1);
        records
    }

    /// Reads a record of the node's own shard into `value`; false if there is none.
    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool;

    /// Calls `each` with every record of the node's own shard, in the order of its memory.
    fn for_each(&self, each: &mut dyn FnMut(Key, &[u8]));

    /// Calls `each` with every record that the node holds of `shard`, as primary or as backup, so
    /// that replicas can be compared record by record where a crash lets some of them differ, and
    /// with its version, which is 0 where the system exports none. A system whose survivors cannot
    /// go on after a crash need not offer it.
    fn for_each_of(&self, shard: ShardId, each: &mut dyn FnMut(Key, Version, &[u8])) {
        let _offers_none = (shard, each);
    }
}

/// The survivors of a crash of a system, as values: the constants of [`SystemNode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Survival {
    /// See [`SystemNode::REPLICAS_CONVERGE`].
    pub replicas_converge: bool,
    /// See [`SystemNode::RECOVERS`].
    pub recovers: bool,
    /// See [`SystemNode::RECOVERS_FROM_LOGS`].
    pub recovers_from_logs: bool,
    /// See [`SystemNode::FOLLOWS_VIEWS`].
    pub follows_views: bool,
}

impl Survival {
    /// That of the system of these nodes.
    pub const fn of<N: SystemNode>() -> Self {
        Self {
            replicas_converge: N::REPLICAS_CONVERGE,
            recovers: N::RECOVERS,
            recovers_from_logs: N::RECOVERS_FROM_LOGS,
            follows_views: N::FOLLOWS_VIEWS,
        }
    }

    /// Does the system go on after a crash, so that it needs views and leases?
    pub const fn goes_on(self) -> bool {
        self.recovers || self.follows_views
    }
}

/// The memory of a node, by what it is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// Its tables: the primary's and the backups', free space in them included.
    pub tables: Bytes,
    /// The index of its NIC.
    pub index: Bytes,
    pub logs: Bytes,
}

/// A number that a node counts up. Names are the system's; those of one group belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counter {
    /// The subject, such as `paths`.
    pub group: &'static str,
    /// Its name within the group.
    pub name: &'static str,
    pub value: u64,
}

/// How long the places of something were taken of which a node has a fixed number, such as the
/// entries of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Taken {
    /// The name of the places, such as `fifo_entries`.
    pub name: &'static str,
    /// How many there are.
    pub places: u32,
    /// The sum over all times at which one was given back.
    pub time: Nanos,
}

/// The findings about a node's memory when everything is quiet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Resources that will never be released, by name, such as `locks`; zeros included.
    pub leaks: Vec<(&'static str, u64)>,
    /// Resources that only recovery may release, by name: it belongs to work that a dead node left
    /// undecided.
    pub awaiting_recovery: Vec<(&'static str, u64)>,
    /// The keys of the node's own shard that only recovery may release.
    pub keys_awaiting_recovery: Vec<Key>,
    /// Digest of the primary shard, then of each backup shard held.
    pub digests: Vec<(ShardId, u64)>,
}

/// How the work of loading several nodes is done.
pub trait ParallelMap {
    /// The result of `work` for each item, in their order.
    fn map<I: Sync, T: Send>(&self, items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T>;
}

/// One node after the other.
#[derive(Clone, Copy, Debug)]
pub struct Sequential;

impl ParallelMap for Sequential {
    fn map<I: Sync, T: Send>(&self, items: &[I], work: impl Fn(&I) -> T + Sync) -> Vec<T> {
        items.iter().map(work).collect()
    }
}

/// There is no room for what is loaded: what there is too little of, and what to give instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no {what} is left for a record that is loaded: give {instead}")]
pub struct TooSmall {
    /// The resource that is too small, such as slots.
    pub what: &'static str,
    /// Such as more of a setting, or fewer records.
    pub instead: &'static str,
}

/// Calls `load` with the records of `shard` until one has no room.
///
/// # Errors
/// What there is too little of for that one.
pub fn load_records(
    Origin { view, source, .. }: &Origin<'_, impl Sized>,
    shard: ShardId,
    mut load: impl FnMut(Key, &[u8]) -> Result<(), TooSmall>,
) -> Result<(), TooSmall> {
    let mut loaded = Ok(());
    source.load(*view, shard, &mut |key, value| loaded = loaded.and_then(|()| load(key, value)));
    loaded
}

/// Loads a cluster's nodes: each shard once, then its copies.
///
/// # Errors
/// If a shard has no room for its records.
///
/// # Panics
/// If a node leads more than one shard: no system holds two (decision 0019).
pub fn load_nodes<N: SystemNode>(
    view: &View,
    config: &N::Config,
    source: &dyn RecordSource,
    parallel: &impl ParallelMap,
) -> Result<Vec<Arc<N>>, TooSmall> {
    let from = Origin { view, config, source };
    Ok(open_nodes(&from, load_shards::<N>(&from, parallel)?, parallel))
}

/// Loads the shards of a cluster, in the order of their numbers.
///
/// # Errors
/// If a shard has no room for its records.
pub fn load_shards<N: SystemNode>(
    from: &Origin<'_, N::Config>,
    parallel: &impl ParallelMap,
) -> Result<Vec<N::Shard>, TooSmall> {
    let numbers: Vec<ShardId> = from.view.shard_ids().collect();
    parallel.map(&numbers, |&shard| N::load(from, shard)).into_iter().collect()
}

/// Opens a cluster's nodes over its shards, which are in the order of their numbers.
///
/// # Panics
/// As [`load_nodes`] does.
pub fn open_nodes<N: SystemNode>(
    from: &Origin<'_, N::Config>,
    shards: Vec<N::Shard>,
    parallel: &impl ParallelMap,
) -> Vec<Arc<N>> {
    let ids: Vec<NodeId> = from.view.node_ids().collect();
    let opened = parallel.map(&ids, |&id| N::open(from, id, &shards));
    let mut shards: Vec<_> = shards.into_iter().map(Some).collect();
    let complete = |(&id, open): (&NodeId, Opening<N, N::Shard>)| {
        let mut leads = from.view.led_by(id);
        let (led, another) = (leads.next(), leads.next());
        assert!(
            another.is_none(),
            "{id:?} leads {led:?} and {another:?}: give each a node of its own"
        );
        Arc::new(open(led.and_then(|shard| shards[usize::from(shard.0)].take())))
    };
    ids.iter().zip(opened).map(complete).collect()
}
