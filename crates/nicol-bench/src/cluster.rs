//! A cluster's memory, its system and its clients: what a world starts on its engines.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use nicol_core::engine::{Loss, Revival, Start, StartOn};
use nicol_core::fabric::Fabric;
use nicol_core::faults::FaultPlan;
use nicol_core::ids::{EngineId, Key, NodeId, ShardId, Side};
use nicol_core::records::Records;
use nicol_core::steering::Decisions;
use nicol_core::system::{NodeState, Origin, Survival, SystemNode, load_shards, open_nodes};
use nicol_core::units::Nanos;
use nicol_core::view::{Role, ShardMap, View};
use nicol_rt::LiveWorld;
use nicol_sim::SimWorld;
use nicol_workload::driver::{RunControl, RunPlan};

use crate::befell::Befell;
use crate::config::{BenchConfig, Length};
use crate::family::{Built, Counters, Family, Judge, JudgeOf, Outline};
use crate::memory::{self, Loading};
use crate::parallel;
use crate::report::Memory;
use crate::toll::lost;

/// The fields that give fewer records.
const SIZES: [&str; 6] = ["records", "warehouses", "items", "customers", "replicas", "nodes"];

/// A loaded cluster of whatever family: its memory and its clients, as the harness sees them.
pub(crate) struct Cluster {
    pub(crate) view: View,
    pub(crate) nodes: Vec<Arc<dyn NodeState>>,
    pub(crate) outline: Outline,
    pub(crate) judge: Box<dyn Judge>,
    pub(crate) survival: Survival,
    pub(crate) run: Arc<RunControl>,
    pub(crate) clients_per_node: usize,
    /// Initial records of all replicas, at most.
    pub(crate) records: u64,
    pub(crate) memory: Option<Memory>,
    /// By node: whether it has lost its data in a crash. Then its memory is not audited.
    down: Vec<AtomicBool>,
    /// Whether the host of any node has crashed.
    host_crashed: AtomicBool,
    /// Nodes that have lost shards which they led, and how many of them while transactions held
    /// locks there.
    primaries_lost: [AtomicU64; 2],
    /// The nodes that must serve again before the cluster is at rest.
    returning: OnceLock<Vec<NodeId>>,
}

/// The parts of a cluster that a world starts on its engines: its system and its clients.
struct Engines<Y: Family> {
    cluster: Arc<Cluster>,
    nodes: Vec<Arc<Y::Node>>,
    workload: Arc<Y::Workload>,
}

/// A loaded cluster that either world can start.
pub(crate) struct Loaded {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) engines: Arc<dyn StartInWorlds>,
}

/// A system that can be started on the engines of either world.
pub(crate) trait StartInWorlds: StartOn<SimWorld> + StartOn<LiveWorld> {}

impl<S: StartOn<SimWorld> + StartOn<LiveWorld>> StartInWorlds for S {}

impl<Y: Family> Start for Engines<Y> {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        let clients = self.cluster.clients_of(here);
        let node = &self.nodes[here.node.index()];
        Y::start(node, fabric, &self.workload, &self.cluster.run, clients);
    }

    fn crashed(&self, loss: &Loss) {
        self.cluster.note_loss(loss);
        self.cluster.host_crashed.fetch_or(loss.host, Ordering::Relaxed);
        self.nodes[loss.node.index()].crashed(loss);
    }

    fn ended(&self, loss: &Loss) {
        self.cluster.note_loss(loss);
        self.nodes[loss.node.index()].ended(loss);
    }

    /// A node that has crashed has no data in its next life until it recovers, if it can, and its
    /// clients do not come back.
    fn restart<F: Fabric>(&self, fabric: &F, revival: &Revival<'_>) {
        self.nodes[fabric.here().node.index()].restart_from(fabric, revival);
    }
}

/// Loads a cluster, unless that takes more memory than the machine has.
///
/// Errors: in words, with the flags that ask for less.
pub(crate) fn load<Y: Family>(
    config: &BenchConfig,
    view: &View,
    built: Built<Y>,
    plan: RunPlan,
    clients_per_node: usize,
) -> Result<Loaded> {
    let Built { workload, system, outline } = built;
    let source = outline.source.clone();
    let copies = usize::from(view.shards()) as u64 * view.replicas() as u64;
    let records = source.records_per_shard() * copies;
    let value_bytes = outline.value_bytes as u64;
    let shares = Y::Node::SHARES_COPIES && !config.is_live();
    let held = if shares { records / view.replicas() as u64 } else { records };
    memory::refuse_beyond_machine(held, value_bytes, &SIZES)?;
    if let Some(Length::Transactions(_)) = config.length {
        // So many insert as many records as there is capacity for.
        let grown = held.saturating_add(source.growth_per_shard().saturating_mul(copies));
        memory::refuse_beyond_machine(grown, value_bytes, &["transactions"])?;
    }
    let loading = Loading::start();
    let from = Origin { view, config: &system, source: &*source };
    let parallel = parallel::Threads(records);
    let load = || load_shards::<Y::Node>(&from, &parallel);
    let shards = match &config.last_load {
        Some(last) => {
            let of = format!("{:?} {} {system:?}", config.sized_workload(), view.shards());
            last.shards::<Y::Node>(&of, load)?
        }
        None => load()?,
    };
    let nodes = open_nodes::<Y::Node>(&from, shards, &parallel);
    let states = nodes.iter().map(|node| Arc::clone(node) as Arc<dyn NodeState>);
    let cluster = Arc::new(Cluster {
        records,
        memory: loading.end(records, config.nodes),
        view: view.clone(),
        nodes: states.collect(),
        run: RunControl::new(plan, outline.kinds),
        outline,
        judge: Box::new(JudgeOf::<Y> { workload: workload.clone(), system }),
        survival: Survival::of::<Y::Node>(),
        clients_per_node,
        down: view.node_ids().map(|_| AtomicBool::default()).collect(),
        host_crashed: AtomicBool::default(),
        primaries_lost: Default::default(),
        returning: OnceLock::new(),
    });
    let engines = Arc::new(Engines::<Y> { cluster: cluster.clone(), nodes, workload });
    Ok(Loaded { cluster, engines })
}

impl Cluster {
    /// Whether the system goes on after a crash, so that it needs views and leases.
    pub(crate) fn goes_on(&self) -> bool {
        self.survival.goes_on()
    }

    /// Whether nodes that were lost come back with their data.
    pub(crate) fn returns(&self) -> bool {
        self.survival.recovers
    }

    /// The numbers of the clients that the engine `here` runs. Those of a node are dealt out to its
    /// host engines, the first ones getting the rest.
    fn clients_of(&self, here: EngineId) -> Range<u32> {
        let position = self.hosts_of_clients().position(|node| node == here.node);
        let (Side::Host, Some(position)) = (here.side, position) else { return 0..0 };
        let hosts = self.view.engines(here.node, Side::Host);
        let core = usize::from(here.core);
        let share = |core: usize| (self.clients_per_node + hosts - 1 - core) / hosts;
        let before: usize = (0..core).map(share).sum();
        let first = position * self.clients_per_node + before;
        first as u32..(first + share(core)) as u32
    }

    /// Sides have crashed: from now on the data of the nodes that lost theirs is not audited.
    fn note_loss(&self, loss: &Loss) {
        let takes = |&side: &Side| loss.of(side) && self.view.halves().are_lost_with(side);
        if ![Side::Host, Side::Nic].iter().any(takes) {
            return;
        }
        let was_down = self.down[loss.node.index()].swap(true, Ordering::Relaxed);
        if !was_down && self.view.led_by(loss.node).next().is_some() {
            let held = self.nodes[loss.node.index()].locks_held() > 0;
            let [lost, felt] = &self.primaries_lost;
            lost.fetch_add(1, Ordering::Relaxed);
            felt.fetch_add(u64::from(held), Ordering::Relaxed);
        }
    }

    /// Nodes with shards: those that `plan` may take where a lease is so long, those that were
    /// lost, and of these the ones where transactions held locks, as far as the system
    /// [tells](NodeState::locks_held).
    pub(crate) fn primaries_lost(&self, plan: Option<&FaultPlan>, lease: Nanos) -> Befell {
        let [begun, felt] = [0, 1].map(|place| self.primaries_lost[place].load(Ordering::Relaxed));
        let drawn = plan.map_or(0, |plan| lost(plan, &self.view, lease).len() as u64);
        Befell { drawn, begun, felt }
    }

    /// Whether no host has crashed, so that their memory is whole.
    pub(crate) fn hosts_live(&self) -> bool {
        !self.host_crashed.load(Ordering::Relaxed)
    }

    /// The nodes that run clients: those for clients alone if there are any, else all.
    fn hosts_of_clients(&self) -> impl Iterator<Item = NodeId> {
        let apart = self.view.nodes_of(Role::Client).next().is_some();
        let role = if apart { Role::Client } else { Role::Server };
        self.view.nodes_of(role)
    }

    /// The counts of its nodes, by group and name.
    pub(crate) fn counters(&self) -> Counters {
        let mut groups = Counters::new();
        for counter in self.survivors().flat_map(|node| node.counters()) {
            *groups.entry(counter.group).or_default().entry(counter.name).or_default() +=
                counter.value;
        }
        groups
    }

    /// The decisions of its nodes at run time, those that have crashed included.
    pub(crate) fn decisions(&self) -> Vec<Decisions> {
        self.nodes.iter().filter_map(|node| node.decisions()).collect()
    }

    pub(crate) fn is_whole(&self) -> bool {
        self.survivors().count() == self.nodes.len()
    }

    /// The nodes that have not crashed, and those that were given their records again.
    pub(crate) fn survivors(&self) -> impl Iterator<Item = &dyn NodeState> {
        self.surviving_ids().map(|id| &*self.nodes[id.index()])
    }

    /// The same, by their numbers.
    pub(crate) fn surviving_ids(&self) -> impl Iterator<Item = NodeId> {
        self.view.node_ids().filter(|&node| self.survives(node))
    }

    /// Whether `node` has not crashed, or was given its records again by the others.
    pub(crate) fn survives(&self, node: NodeId) -> bool {
        !self.has_crashed(node)
            || !self.survival.recovers && self.nodes[node.index()].has_recovered()
    }

    /// Whether `node` has lost its data at any time.
    fn has_crashed(&self, node: NodeId) -> bool {
        self.down[node.index()].load(Ordering::Relaxed)
    }

    /// Does `heir` lead `shard` other than from the start?
    fn has_moved(&self, shard: ShardId, heir: NodeId) -> bool {
        heir != self.view.primary(shard) || !self.survival.recovers && self.has_crashed(heir)
    }

    /// The nodes whose memory counts: those that have not crashed, and those that have recovered.
    pub(crate) fn serving_ids(&self) -> impl Iterator<Item = NodeId> {
        let serves = |&id: &NodeId| self.survives(id) || self.nodes[id.index()].has_recovered();
        self.view.node_ids().filter(serves)
    }

    pub(crate) fn is_settled(&self) -> bool {
        let serving = |id: NodeId| self.serving_ids().any(|other| other == id);
        self.serving_ids().all(|id| self.nodes[id.index()].is_settled())
            && self.returning.get().is_none_or(|ids| ids.iter().all(|id| serving(*id)))
    }

    /// The nodes that crashes take down under `plan`, and that come back: the cluster is not at
    /// rest before they serve. Of a system whose nodes come back, unless one stays away while no
    /// other serves.
    pub(crate) fn expect_back(&self, plan: &FaultPlan) {
        let nodes = self.view.nodes();
        let (mut changes, mut up) = (Vec::new(), vec![[true; 2]; nodes]);
        for crash in &plan.crashes {
            changes.push((crash.at, false, crash));
            changes.extend(crash.restarts_at().map(|at| (at, true, crash)));
        }
        changes.sort_by_key(|(at, ..)| *at);
        let mut hit = vec![false; nodes];
        for (_, restarts, crash) in changes {
            for node in self.view.node_ids().filter(|node| crash.hits(*node, nodes)) {
                let sides = &mut up[node.index()];
                if restarts {
                    crash.scope.sides().iter().for_each(|side| sides[*side as usize] = true);
                } else {
                    // A half that lives waits for the other, and begins its next life with it.
                    crash.scope.sides().iter().for_each(|side| sides[*side as usize] = false);
                    hit[node.index()] = true;
                }
            }
        }
        let is_back = |node: &NodeId| hit[node.index()] && up[node.index()] == [true; 2];
        let is_away = |node: &NodeId| up[node.index()] != [true; 2];
        let back: Vec<NodeId> = self.view.node_ids().filter(is_back).collect();
        if self.survival.recovers_from_logs
            && !(self.view.node_ids().any(|node| is_away(&node)) && hit.iter().all(|hit| *hit))
        {
            let _first = self.returning.set(back);
        }
    }
}

/// The records of a cluster that is quiet: those of its survivors.
pub(crate) struct Quiet<'a> {
    cluster: &'a Cluster,
    /// The last view: it says who leads a shard.
    view: &'a View,
    /// The keys that a dead node has left undecided.
    undecided: &'a BTreeSet<Key>,
    /// The records of shards whose first primary is lost, at who leads them now.
    inherited: BTreeMap<Key, Vec<u8>>,
}

impl<'a> Quiet<'a> {
    pub(crate) fn new(cluster: &'a Cluster, view: &'a View, undecided: &'a BTreeSet<Key>) -> Self {
        let mut inherited = BTreeMap::new();
        for shard in view.shard_ids() {
            let heir = view.primary(shard);
            if cluster.has_moved(shard, heir) && cluster.survives(heir) {
                cluster.nodes[heir.index()].for_each_of(shard, &mut |key, _, value| {
                    inherited.insert(key, value.to_vec());
                });
            }
        }
        Self { cluster, view, undecided, inherited }
    }
}

impl Records for Quiet<'_> {
    fn read(&mut self, key: Key) -> Option<Vec<u8>> {
        if !self.is_known(key) {
            return None;
        }
        let shard = self.view.shard_of(key);
        let leads = self.view.primary(shard);
        if self.cluster.has_moved(shard, leads) {
            return self.inherited.get(&key).cloned();
        }
        let mut value = Vec::new();
        self.cluster.nodes[leads.index()].read(key, &mut value).then_some(value)
    }

    fn for_each(&mut self, each: &mut dyn FnMut(Key, &[u8])) {
        let known = |key: &Key| !self.undecided.contains(key);
        let each = &mut |key, value: &[u8]| {
            if known(&key) {
                each(key, value);
            }
        };
        self.cluster.survivors().for_each(|node| node.for_each(each));
        self.inherited.iter().for_each(|(key, value)| each(*key, value));
    }

    fn is_known(&self, key: Key) -> bool {
        let leads = self.view.primary(self.view.shard_of(key));
        self.cluster.survives(leads) && !self.undecided.contains(&key)
    }
}
