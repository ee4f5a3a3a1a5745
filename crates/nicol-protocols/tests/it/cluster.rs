//! A cluster in the simulated world under a workload, judged.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nicol_check::serializability;
use nicol_core::commit::{CommitNode, PATHS};
use nicol_core::engine::{AfterLoss, EngineStats, Loss, Revival, Start};
use nicol_core::fabric::Fabric;
use nicol_core::faults::{Crash, FaultPlan};
use nicol_core::history::Promise;
use nicol_core::ids::{Key, NodeId};
use nicol_core::records::Records;
use nicol_core::system::{Sequential, load_nodes};
use nicol_core::txn::Procedures;
use nicol_core::units::Nanos;
use nicol_core::view::{ShardMap, View};
use nicol_core::workload::Workload;
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};
use nicol_workload::driver::{Counts, Load, RETRY, RunControl, RunPlan, history, spawn_clients};

pub const NODES: u16 = 3;
/// Host engines of a node, and NIC engines.
pub const ENGINES: usize = 2;
/// Simulated time after which a run that has not ended is stuck.
const LIMIT: Nanos = Nanos::from_secs(20);

/// How a run goes.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    pub on: &'static str,
    pub nodes: u16,
    pub replicas: usize,
    pub clients_per_node: u32,
    /// Transactions of all clients together.
    pub transactions: u64,
    /// Are messages lost, repeated, delayed and corrupted?
    pub faults: bool,
    /// Does anything crash?
    pub crash: Option<Crash>,
}

impl Run {
    fn plan(&self, seed: u64) -> FaultPlan {
        let mut plan = if self.faults { FaultPlan::messages(seed) } else { FaultPlan::none() };
        plan.crashes.extend(self.crash);
        plan
    }

    /// Is the view expected to change?
    fn changes_views(&self) -> bool {
        self.crash.is_some()
    }
}

/// What has become of a run.
#[derive(Debug)]
pub struct Ran {
    pub counts: Counts,
    /// What the engines did until the last client ended.
    pub stats: EngineStats,
    /// The median latency.
    pub latency: Nanos,
    /// Committed transactions by the way that they took.
    pub paths: BTreeMap<&'static str, u64>,
    /// Locks that nobody will release.
    pub leaked: u64,
    /// Locks that only a recovery may release.
    pub awaiting: u64,
    /// What was done without lost nodes.
    pub without: BTreeMap<&'static str, u64>,
    /// What the history breaks.
    pub anomalies: Vec<String>,
    /// What the state breaks.
    pub wrong: Vec<String>,
}

impl Ran {
    /// Did everything hold that is promised?
    pub fn held(&self) -> bool {
        self.leaked == 0 && self.anomalies.is_empty() && self.wrong.is_empty()
    }
}

pub struct Cluster<N> {
    pub nodes: Vec<Arc<N>>,
    pub clients_per_node: u32,
    pub workload: Arc<dyn Workload>,
    pub procedures: Procedures,
    pub run: Arc<RunControl>,
    /// By node: has it crashed?
    pub down: Vec<AtomicBool>,
}

impl<N: CommitNode> Cluster<N> {
    fn survivors(&self) -> impl Iterator<Item = &Arc<N>> {
        let lives = |(_, down): &(_, &AtomicBool)| !down.load(Ordering::Relaxed);
        self.nodes.iter().zip(&self.down).filter(lives).map(|(node, _)| node)
    }
}

impl<N: CommitNode> Start for Cluster<N> {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        let node = &self.nodes[usize::from(here.node.0)];
        let Some(coordinator) = node.start(fabric, &self.procedures) else { return };
        // The first host engine has the odd one.
        let engines = ENGINES as u32;
        let core = u32::from(here.core);
        let share = |core: u32| (self.clients_per_node + engines - 1 - core) / engines;
        let before: u32 = (0..core).map(share).sum();
        let first = u32::from(here.node.0) * self.clients_per_node + before;
        spawn_clients(fabric, &coordinator, &self.workload, &self.run, first, share(core));
    }

    fn crashed(&self, loss: &Loss) -> AfterLoss {
        self.down[usize::from(loss.node.0)].store(true, Ordering::Relaxed);
        AfterLoss::NodeStops
    }

    fn restart<F: Fabric>(&self, fabric: &F, _revival: &Revival<'_>) {
        N::start_without_data(fabric);
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
    run: Run,
    config: &N::Config,
    workload: Arc<dyn Workload>,
    seed: u64,
) -> Ran {
    let view = View::new(usize::from(run.nodes), run.replicas, ENGINES, ENGINES).unwrap();
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
    let cluster = Arc::new(Cluster::<N> {
        nodes: load_nodes(&view, config, &*workload, &Sequential),
        clients_per_node: run.clients_per_node,
        procedures: workload.procedures(),
        run: RunControl::new(plan, workload.kinds()),
        workload,
        down: (0..run.nodes).map(|_| AtomicBool::default()).collect(),
    });
    let profile = Arc::new(Profile::load(run.on).unwrap());
    let (faults, view_service) = (run.plan(seed), run.changes_views());
    let config = SimConfig::new(view.clone(), profile, seed);
    let world = SimCluster::new(SimConfig { faults, view_service, ..config });
    world.start(&cluster);
    let ended = world.run_until(&mut |_| cluster.run.finished(), LIMIT);
    assert_eq!(ended, RunEnd::Done, "seed {seed}: clients are stuck");
    let stats = world.report().stats;
    let is_settled = || cluster.survivors().all(|node| node.is_settled());
    // What is under way may lock once more, for a node whose loss only the next view tells.
    while world.run_until(&mut |_| is_settled(), LIMIT) == RunEnd::Done {
        world.settle(LIMIT);
        if is_settled() {
            break;
        }
    }
    judge(&cluster, &view, stats)
}

fn judge<N: CommitNode>(cluster: &Cluster<N>, view: &View, stats: EngineStats) -> Ran {
    let (mut leaked, mut awaiting, mut wrong) = (0, 0, Vec::new());
    let (mut paths, mut without) = (BTreeMap::new(), BTreeMap::new());
    let (mut digests, mut undecided) = (BTreeMap::new(), BTreeSet::new());
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
        for (shard, digest) in audit.digests {
            if *digests.entry(shard).or_insert(digest) != digest {
                wrong.push(format!("the replicas of shard {} differ", shard.0));
            }
        }
        for counter in node.counters() {
            let counts = match counter.group {
                PATHS => &mut paths,
                "without_lost_nodes" => &mut without,
                _ => continue,
            };
            *counts.entry(counter.name).or_default() += counter.value;
        }
    }
    let whole = cluster.survivors().count() == cluster.nodes.len();
    if !whole {
        wrong = differences(cluster, view, &undecided);
    }
    let mut result = cluster.run.result();
    let mut quiet = Quiet(&cluster.nodes, view);
    wrong.extend(match result.whole.unknown {
        _ if !whole => Vec::new(),
        0 => cluster.workload.audit(&mut quiet, &result.totals()),
        _ => cluster.workload.audit_state(&mut quiet),
    });
    let operations = std::mem::take(&mut result.history);
    let told = history(Promise::default(), operations, &*cluster.workload, view);
    let report = serializability::check(&told);
    wrong.extend(report.undecided.iter().map(|why| format!("not judged: {why:?}")));
    let anomalies = report.violations.iter().map(ToString::to_string).collect();
    let latency = Nanos(result.latency().value_at_quantile(0.5));
    let counts = result.whole;
    Ran { counts, stats, latency, paths, leaked, awaiting, without, anomalies, wrong }
}

/// What is wrong with the survivors of a crash: work that is stuck, and keys whose records differ
/// between replicas of a shard, although its primary lives and does not count them as undecided.
fn differences<N: CommitNode>(
    cluster: &Cluster<N>,
    view: &View,
    undecided: &BTreeSet<Key>,
) -> Vec<String> {
    let mut wrong = Vec::new();
    if !cluster.survivors().all(|node| node.is_settled()) {
        wrong.push("the cluster did not become quiet: work is stuck".to_owned());
    }
    let survives = |node: &NodeId| !cluster.down[node.index()].load(Ordering::Relaxed);
    for shard in view.shard_ids().filter(|&shard| survives(&view.primary(shard))) {
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
