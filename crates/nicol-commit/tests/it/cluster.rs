//! A cluster in the simulated world under a workload, judged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nicol_check::serializability;
use nicol_core::commit::{CommitNode, PATHS, WITHOUT_LOST_NODES};
use nicol_core::engine::{EngineStats, Loss, Revival, Start};
use nicol_core::fabric::Fabric;
use nicol_core::faults::FaultPlan;
use nicol_core::history::{self, Action, End, Found, Operation};
use nicol_core::ids::{Key, NodeId};
use nicol_core::records::Records;
use nicol_core::system::{Sequential, load_nodes};
use nicol_core::txn::{Abort, Procedures};
use nicol_core::units::{Nanos, Picos};
use nicol_core::view::{Halves, ShardMap, Succession, View};
use nicol_core::workload::Workload;
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};
use nicol_workload::driver::{
    Counts, Load, RETRY, RunControl, RunPlan, history as told_by, spawn_clients,
};

pub const NODES: u16 = 3;
/// Simulated time after which a run that has not ended is stuck.
const LIMIT: Nanos = Nanos::from_secs(20);

/// How a run goes.
#[derive(Clone, Debug)]
pub struct Run {
    pub on: &'static str,
    pub nodes: u16,
    pub replicas: usize,
    /// Host engines of a node, and NIC engines, but for those of a node that has only so many.
    pub engines: usize,
    pub nic_engines_at_most: usize,
    pub clients_per_node: u32,
    /// Transactions of all clients together.
    pub transactions: u64,
    /// Which messages are lost, repeated, delayed and corrupted, and what crashes.
    pub faults: FaultPlan,
    /// See [`nicol_core::engine::Tuning`].
    pub tasks_per_round: usize,
    /// How long the log device takes; without it memory is durable.
    pub log_device: Option<Nanos>,
}

/// Three copies on three nodes, without faults.
pub const RUN: Run = Run {
    on: "liquidio3",
    nodes: NODES,
    replicas: 3,
    engines: 2,
    nic_engines_at_most: usize::MAX,
    clients_per_node: 8,
    transactions: 1_000,
    faults: FaultPlan::none(),
    tasks_per_round: 256,
    log_device: None,
};

/// What else every engine of a cluster runs.
pub trait Beside: Send + Sync + 'static {
    fn start<F: Fabric>(&self, fabric: &F, run: &Arc<RunControl>);
}

/// Nothing.
impl Beside for () {
    fn start<F: Fabric>(&self, _fabric: &F, _run: &Arc<RunControl>) {}
}

/// What has become of a run.
#[derive(Debug)]
pub struct Ran {
    pub counts: Counts,
    /// What the engines did until the last client ended.
    pub stats: EngineStats,
    /// The median latency.
    pub latency: Nanos,
    /// When the last client had ended.
    pub ended: Nanos,
    /// Committed transactions by the way that they took.
    pub paths: BTreeMap<&'static str, u64>,
    /// What nobody will release, such as locks.
    pub leaked: u64,
    /// Locks that only a recovery may release.
    pub awaiting: u64,
    /// When writes to shards were acknowledged whose first primary has crashed.
    pub to_inherited: Vec<u64>,
    /// What was done without lost nodes.
    pub without: BTreeMap<&'static str, u64>,
    /// What the history breaks.
    pub anomalies: Vec<String>,
    /// What the state breaks, and clients that do not end.
    pub wrong: Vec<String>,
}

impl Ran {
    /// Did everything hold that is promised?
    pub fn held(&self) -> bool {
        self.leaked == 0 && self.anomalies.is_empty() && self.wrong.is_empty()
    }

    /// Attempts that were aborted for this reason.
    pub fn aborted(&self, reason: &str) -> u64 {
        let reasons = Abort::NAMES.iter().zip(self.counts.aborts);
        reasons.filter(|(name, _)| **name == reason).map(|(_, count)| count).sum()
    }
}

pub struct Cluster<N, B> {
    pub nodes: Vec<Arc<N>>,
    /// Host engines of a node.
    pub engines: usize,
    pub clients_per_node: u32,
    pub workload: Arc<dyn Workload>,
    pub procedures: Procedures,
    pub run: Arc<RunControl>,
    /// By node: has it crashed?
    pub down: Vec<AtomicBool>,
    pub beside: B,
}

impl<N: CommitNode, B> Cluster<N, B> {
    fn survivors(&self) -> impl Iterator<Item = &Arc<N>> {
        let lives = |&(_, id): &(_, NodeId)| self.survives(id);
        self.nodes.iter().zip((0..).map(NodeId)).filter(lives).map(|(node, _)| node)
    }

    /// Has it not crashed, or is it back with its data?
    fn survives(&self, node: NodeId) -> bool {
        let crashed = self.down[node.index()].load(Ordering::Relaxed);
        !crashed || self.nodes[node.index()].has_recovered()
    }
}

impl<N: CommitNode, B: Beside> Start for Cluster<N, B> {
    fn start<F: Fabric>(&self, fabric: &F) {
        self.beside.start(fabric, &self.run);
        let here = fabric.here();
        let node = &self.nodes[usize::from(here.node.0)];
        let Some(coordinator) = node.start(fabric, &self.procedures) else { return };
        // The first host engine has the odd one.
        let engines = self.engines as u32;
        let core = u32::from(here.core);
        let share = |core: u32| (self.clients_per_node + engines - 1 - core) / engines;
        let before: u32 = (0..core).map(share).sum();
        let first = u32::from(here.node.0) * self.clients_per_node + before;
        spawn_clients(fabric, &coordinator, &self.workload, &self.run, first, share(core));
    }

    fn crashed(&self, loss: &Loss) {
        self.down[usize::from(loss.node.0)].store(true, Ordering::Relaxed);
        self.nodes[usize::from(loss.node.0)].crashed(loss);
    }

    fn restart<F: Fabric>(&self, fabric: &F, _revival: &Revival<'_>) {
        self.nodes[usize::from(fabric.here().node.0)].restart(fabric);
    }
}

/// The records of a cluster that is quiet.
pub struct Quiet<'a, N>(pub &'a [Arc<N>], pub &'a View);

impl<N: CommitNode> Records for Quiet<'_, N> {
    fn read(&mut self, key: Key) -> Option<Vec<u8>> {
        let node = self.1.primary(self.1.shard_of(key));
        let mut value = Vec::new();
        self.0[usize::from(node.0)].read(key, &mut value).then_some(value)
    }

    fn for_each(&mut self, each: &mut dyn FnMut(Key, &[u8])) {
        self.0.iter().for_each(|node| node.for_each(each));
    }
}

/// Runs `workload` on a cluster of `N` until every client has ended and nothing is left to do.
pub fn run<N: CommitNode>(
    run: &Run,
    config: &N::Config,
    workload: Arc<dyn Workload>,
    seed: u64,
) -> Ran {
    run_beside::<N, ()>(run, config, workload, seed, ())
}

/// The same, while every engine runs `beside`, too.
pub fn run_beside<N: CommitNode, B: Beside>(
    run: &Run,
    config: &N::Config,
    workload: Arc<dyn Workload>,
    seed: u64,
    beside: B,
) -> Ran {
    let nics = run.engines.min(run.nic_engines_at_most);
    let view = View::new(usize::from(run.nodes), run.replicas, run.engines, nics).unwrap();
    // Whatever it could do without, a node ends with either half.
    let view = view.with_halves(Halves::Together).with_succession(N::succession(config));
    let clients = u32::from(run.nodes) * run.clients_per_node;
    let plan = RunPlan {
        seed,
        clients,
        begin: Nanos::ZERO,
        warmup_until: Nanos::ZERO,
        stop_at: Nanos::MAX,
        operations_per_client: Some(run.transactions.div_ceil(clients.into())),
        load: Load::Closed,
        retry: RETRY,
        record: true,
        history_max: usize::MAX,
    };
    let cluster = Arc::new(Cluster::<N, B> {
        nodes: load_nodes(&view, config, &*workload, &Sequential).unwrap(),
        engines: run.engines,
        clients_per_node: run.clients_per_node,
        procedures: workload.procedures(),
        run: RunControl::new(plan, workload.kinds()),
        workload,
        down: (0..run.nodes).map(|_| AtomicBool::default()).collect(),
        beside,
    });
    let mut profile = Profile::load(run.on).unwrap();
    if let Some(Nanos(latency)) = run.log_device {
        profile.persist.latency.value = Picos(latency * 1_000);
    }
    let mut sim = SimConfig::new(view.clone(), Arc::new(profile), seed);
    let FaultPlan { crashes, partitions, .. } = &run.faults;
    sim.view_service = !crashes.is_empty() || !partitions.is_empty();
    sim.faults = run.faults.clone();
    sim.tuning.tasks_per_round = run.tasks_per_round;
    let world = SimCluster::new(sim);
    world.start(cluster.clone());
    let mut wrong = Vec::new();
    if world.run_until(&mut |_| cluster.run.finished(), LIMIT) != RunEnd::Done {
        wrong.push(format!("{} clients are stuck", cluster.run.running()));
    }
    let (stats, ended) = (world.report().stats, world.now());
    if wrong.is_empty() {
        // What is under way may lock once more, for a node whose loss only the next view tells.
        let is_settled = || cluster.survivors().all(|node| node.is_settled());
        while world.run_until(&mut |_| is_settled(), LIMIT) == RunEnd::Done {
            world.settle(LIMIT);
            if is_settled() {
                break;
            }
        }
    }
    judge(&cluster, config, &view, (stats, ended), wrong)
}

fn judge<N: CommitNode, B>(
    cluster: &Cluster<N, B>,
    config: &N::Config,
    view: &View,
    (stats, ended): (EngineStats, Nanos),
    mut wrong: Vec<String>,
) -> Ran {
    let (mut leaked, mut awaiting) = (0, 0);
    let (mut paths, mut without) = (BTreeMap::new(), BTreeMap::new());
    let mut undecided = BTreeSet::new();
    for node in cluster.survivors() {
        if !node.is_settled() {
            wrong.push("the cluster did not become quiet: work is stuck".to_owned());
        } else {
            node.check();
        }
        let audit = node.audit();
        leaked += audit.leaks.iter().map(|(_, count)| count).sum::<u64>();
        awaiting += audit.awaiting_recovery.iter().map(|(_, count)| count).sum::<u64>();
        undecided.extend(audit.keys_awaiting_recovery);
        for counter in node.counters() {
            let counts = match counter.group {
                PATHS => &mut paths,
                WITHOUT_LOST_NODES => &mut without,
                _ => continue,
            };
            *counts.entry(counter.name).or_default() += counter.value;
        }
    }
    let whole = cluster.survivors().count() == cluster.nodes.len();
    let inherits = N::succession(config) == Succession::Backups;
    wrong.extend(differences(cluster, view, inherits, &undecided));
    let mut result = cluster.run.result();
    let mut quiet = Quiet(&cluster.nodes, view);
    wrong.extend(match result.whole.unknown {
        _ if !whole => Vec::new(),
        0 => cluster.workload.audit(&mut quiet, &result.totals()),
        _ => cluster.workload.audit_state(&mut quiet),
    });
    let mut operations = std::mem::take(&mut result.history);
    let to_inherited = writes_to_inherited(cluster, view, &operations);
    if N::succession(config) == Succession::Backups {
        read_at_the_end(cluster, view, &undecided, &mut operations);
    }
    let told = told_by(N::PROMISE, operations, &*cluster.workload, view);
    let report = serializability::check(&told);
    wrong.extend(report.undecided.iter().map(|why| format!("not judged: {why:?}")));
    let anomalies = report.violations.iter().map(ToString::to_string).collect();
    let latency = Nanos(result.latency().value_at_quantile(0.5));
    let counts = result.whole;
    Ran {
        counts,
        stats,
        latency,
        ended,
        paths,
        leaked,
        awaiting,
        to_inherited,
        without,
        anomalies,
        wrong,
    }
}

fn number(key: &history::Key) -> Option<Key> {
    match key {
        history::Key::Number(number) => Some(Key(*number)),
        history::Key::Bytes(_) => None,
    }
}

/// When writes to shards were acknowledged whose first primary has crashed.
fn writes_to_inherited<N, B>(
    cluster: &Cluster<N, B>,
    view: &View,
    operations: &[Operation],
) -> Vec<u64> {
    let is_inherited =
        |key: Key| cluster.down[view.primary(view.shard_of(key)).index()].load(Ordering::Relaxed);
    let writes_there = |operation: &&Operation| {
        let written = operation.txn().into_iter().flat_map(|txn| &txn.writes);
        written.filter_map(|write| number(&write.key)).any(is_inherited)
    };
    let ended = operations.iter().filter(|operation| operation.end == End::Ok).filter(writes_there);
    ended.filter_map(|operation| operation.responded).collect()
}

/// Every key that operations name and that a survivor holds is read there after all of them.
fn read_at_the_end<N: CommitNode, B>(
    cluster: &Cluster<N, B>,
    view: &View,
    undecided: &BTreeSet<Key>,
    operations: &mut Vec<Operation>,
) {
    let keys_of = |operation: &Operation| {
        let txn = operation.txn();
        let written = txn.into_iter().flat_map(|txn| txn.writes.iter().map(|write| &write.key));
        let read = txn.into_iter().flat_map(|txn| txn.reads.iter().map(|read| &read.key));
        written.chain(read).filter_map(number).collect::<Vec<_>>()
    };
    let named: BTreeSet<Key> = operations.iter().flat_map(keys_of).collect();
    let mut found = BTreeMap::new();
    for node in cluster.survivors() {
        for shard in view.shard_ids() {
            node.for_each_of(shard, &mut |key, version, value| {
                let (version, digest) = (Some(version.0), Some(history::digest(value)));
                found.insert(key, Found { present: true, version, digest });
            });
        }
    }
    let survives = |node: &NodeId| cluster.survives(*node);
    let is_held = |key: &Key| view.replicas_of(view.shard_of(*key)).iter().any(survives);
    let end = |operation: &Operation| operation.responded.unwrap_or(operation.invoked);
    let last = operations.iter().map(end).max().unwrap_or_default();
    let client = 1 + operations.iter().map(|one| one.client).max().unwrap_or_default();
    let id = operations.iter().map(|one| one.id).max().unwrap_or_default();
    let keys = named.into_iter().filter(|key| is_held(key) && !undecided.contains(key));
    for (place, key) in (1..).zip(keys) {
        let none = Found { present: false, version: None, digest: None };
        let found = Some(found.get(&key).copied().unwrap_or(none));
        operations.push(Operation {
            client,
            sequence: place,
            id: id + place,
            invoked: last + 2 * place,
            responded: Some(last + 2 * place + 1),
            end: End::Ok,
            action: Action::Get { key: key.into(), found },
        });
    }
}

/// Shards whose replicas hold different records, of all that some node leads, but for the keys that
/// it counts as undecided.
fn differences<N: CommitNode, B>(
    cluster: &Cluster<N, B>,
    view: &View,
    inherits: bool,
    undecided: &BTreeSet<Key>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    let survives = |node: &NodeId| cluster.survives(*node);
    for shard in view.shard_ids().filter(|&shard| inherits || survives(&view.primary(shard))) {
        let replicas = view.replicas_of(shard).iter().filter(|node| survives(node));
        let records = replicas.map(|node| {
            let mut records = BTreeMap::new();
            cluster.nodes[node.index()].for_each_of(shard, &mut |key, version, value| {
                if !undecided.contains(&key) {
                    records.insert(key, (version, value.to_vec()));
                }
            });
            records
        });
        let records: Vec<_> = records.collect();
        if records.iter().any(|of_one| *of_one != records[0]) {
            wrong.push(format!("the replicas of shard {} differ", shard.0));
        }
    }
    wrong
}
