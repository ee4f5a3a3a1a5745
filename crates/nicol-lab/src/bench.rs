//! `bench`: a system under a workload in a world, measured and judged.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Context, Result, bail, ensure};
use nicol_check::serializability;
use nicol_core::commit::{CommitNode, PATHS};
use nicol_core::engine::{EngineStats, Start};
use nicol_core::fabric::Fabric;
use nicol_core::history::first::Event;
use nicol_core::ids::{Key, Side};
use nicol_core::names::did_you_mean;
use nicol_core::records::Records;
use nicol_core::system::{Audit, load_nodes};
use nicol_core::txn::{Abort, Procedures};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::{ShardMap, View, ViewError};
use nicol_core::workload::Workload;
use nicol_protocols::commit::Sabotage;
use nicol_rt::LogDevice;
use nicol_sim::{Profile, Spending};
use nicol_workload::driver::{Counts, Load, RETRY, RunControl, RunPlan, RunResult, spawn_clients};
use nicol_workload::tpcc::Indices;

use crate::memory::{self, Loading};
use crate::parallel;
use crate::report::{
    BenchReport, Check, CoreTime, Kind, Latency, Lookups, Memory, Resource, SCHEMA,
};
use crate::settings::{self, EngineSettings, SystemConfig};
use crate::systems::System;
use crate::workloads::{self, BuiltWorkload, WorkloadSpec};

/// Clients per node where the user says nothing: of TPC-C at most so many.
const CLIENTS: usize = 64;
/// Terminals of a TPC-C warehouse. (TPC-C 4.2.2)
const TERMINALS: usize = 10;
/// The flags that give fewer records.
const SIZE_FLAGS: &str = "--records, --warehouses, --items, --customers, --replicas or --nodes";
/// Violations that a report spells out; more are counted.
const VIOLATIONS_SHOWN: usize = 20;

/// How long a run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Length {
    /// A span of the world's time.
    Time(Nanos),
    /// A number of transactions over all clients.
    Transactions(u64),
}

/// What to run. Where a field is an option, `None` takes the world's default.
#[derive(Clone, Debug)]
pub struct BenchConfig {
    /// The workload.
    pub workload: WorkloadSpec,
    /// The system's name.
    pub system: String,
    /// Settings of the system, as key=value.
    pub settings: Vec<String>,
    /// `threads`, or the name or file of a profile.
    pub on: String,
    /// Nodes.
    pub nodes: usize,
    /// Copies of each shard.
    pub replicas: usize,
    /// Host engines per node.
    pub host_engines: Option<usize>,
    /// NIC engines per node.
    pub nic_engines: Option<usize>,
    /// Clients per node.
    pub clients: Option<usize>,
    /// The measured part.
    pub length: Option<Length>,
    /// The part before it.
    pub warmup: Option<Nanos>,
    /// Open loop at this rate.
    pub rate: Option<u64>,
    /// The seed.
    pub seed: u64,
    /// Message faults?
    pub faults: bool,
    /// Threads of the live world.
    pub threads: Option<usize>,
    /// What makes writes durable in the live world.
    pub log_device: LogDevice,
    /// A protocol broken on purpose; for negative tests only.
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

/// What a world measured around a run.
pub(crate) struct Measured {
    pub(crate) stats: EngineStats,
    pub(crate) resources: Vec<Resource>,
    /// Only the simulator knows.
    pub(crate) core_time: Vec<Spending>,
    pub(crate) settled: bool,
    pub(crate) simulated: Option<Simulated>,
    pub(crate) wall_s: f64,
}

/// What only the simulator knows.
pub(crate) struct Simulated {
    pub(crate) time: Nanos,
    pub(crate) events: u64,
    pub(crate) digest: u64,
}

/// A run and the history that was judged.
pub struct BenchRun {
    /// The report.
    pub report: BenchReport,
    /// The history; empty if none was recorded.
    pub history: Vec<Event>,
}

/// A cluster's memory, its system and its clients: what a world starts on its engines.
pub(crate) struct Cluster<N> {
    pub(crate) view: View,
    pub(crate) nodes: Vec<Arc<N>>,
    pub(crate) workload: Arc<dyn Workload>,
    pub(crate) procedures: Procedures,
    pub(crate) run: Arc<RunControl>,
    pub(crate) clients_per_node: usize,
    /// Initial records of all replicas, at most.
    pub(crate) records: u64,
    pub(crate) memory: Option<Memory>,
}

impl<N: CommitNode> Start for Cluster<N> {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        let node = &self.nodes[usize::from(here.node.0)];
        let Some(coordinator) = node.start(fabric, &self.procedures) else { return };
        let hosts = self.view.engines(here.node, Side::Host);
        // Clients of a node are dealt out to its host engines, the first ones getting the rest.
        let core = usize::from(here.core);
        let share = |core: usize| (self.clients_per_node + hosts - 1 - core) / hosts;
        let first: usize =
            usize::from(here.node.0) * self.clients_per_node + (0..core).map(share).sum::<usize>();
        let clients = share(core) as u32;
        spawn_clients(fabric, &coordinator, &self.workload, &self.run, first as u32, clients);
    }
}

impl<N: CommitNode> Cluster<N> {
    /// What its nodes have counted in `group`, by name.
    pub(crate) fn counters(&self, group: &str) -> BTreeMap<&'static str, u64> {
        let mut sums = BTreeMap::new();
        for counter in self.nodes.iter().flat_map(|node| node.counters()) {
            if counter.group == group {
                *sums.entry(counter.name).or_default() += counter.value;
            }
        }
        sums
    }

    pub(crate) fn is_settled(&self) -> bool {
        self.nodes.iter().all(|node| node.is_settled())
    }
}

/// Runs a benchmark in its world.
pub fn run(config: &BenchConfig) -> Result<BenchRun> {
    let system = System::find(&config.system)?;
    ensure!(
        system.synced_log || config.log_device == LogDevice::Memory,
        "--log-device: {} does not wait for a log device; xenic does",
        system.name
    );
    system.run(config)
}

/// Runs a benchmark of the system whose nodes are `N`.
pub(crate) fn run_system<N>(config: &BenchConfig) -> Result<BenchRun>
where
    N: CommitNode<Config: SystemConfig>,
{
    if config.on == "threads" {
        return crate::live::run::<N>(config, &config.build(N::SCANS, None)?);
    }
    let on = || format!("--on {}{}", config.on, did_you_mean(&config.on, ["threads"]));
    let profile = Arc::new(Profile::load(&config.on).with_context(on)?);
    let built = config.build(N::SCANS, Some(profile.cores.nic_memory.value))?;
    crate::simulated::run::<N>(config, &built, &profile)
}

/// A configuration with its parts built.
pub(crate) struct Built<C> {
    pub(crate) workload: BuiltWorkload,
    pub(crate) system: C,
    pub(crate) engine: EngineSettings,
}

/// A view that there cannot be, under the flag that asked for it.
pub fn refused_view(error: ViewError) -> anyhow::Error {
    let flag = match error {
        ViewError::Nodes(_) => "--nodes",
        ViewError::Replicas { .. } => "--replicas",
        ViewError::Engines(_) => "--host-engines, --nic-engines",
        ViewError::Placement { .. } => "placement",
    };
    anyhow::Error::new(error).context(flag)
}

impl BenchConfig {
    /// `system` under `workload`, on `on`, from `seed`: three nodes, three copies, no faults, and
    /// the world's defaults otherwise.
    pub fn new(system: &str, workload: WorkloadSpec, on: &str, seed: u64) -> Self {
        Self {
            workload,
            system: system.to_owned(),
            settings: Vec::new(),
            on: on.to_owned(),
            nodes: 3,
            replicas: 3,
            host_engines: None,
            nic_engines: None,
            clients: None,
            length: None,
            warmup: None,
            rate: None,
            seed,
            faults: false,
            threads: None,
            log_device: LogDevice::Memory,
            sabotage: Sabotage::None,
        }
    }

    fn build<C: SystemConfig>(&self, scans: bool, nic_memory: Option<Bytes>) -> Result<Built<C>> {
        let mut spec = self.workload.clone();
        if scans && spec.is_tpcc() {
            spec.indices.get_or_insert(Indices::Trees);
        } else if spec.indices == Some(Indices::Trees) {
            bail!("--indices trees: {} has no ordered tables to scan", self.system);
        }
        if let Some(Length::Transactions(count)) = self.length {
            // Each client runs as many: up to one more than its share.
            let clients = self.nodes * self.clients_per_node();
            spec.transactions.get_or_insert(count + clients as u64);
        }
        let workload = workloads::build(&spec, self.nodes)?;
        let mut system = C::published(&self.system, &workload, nic_memory);
        let mut engine = system.engines();
        settings::apply(&self.settings, &mut system, &mut engine)?;
        system.break_on_purpose(self.sabotage);
        if self.rate == Some(0) {
            bail!("--rate 0: an open loop needs at least one transaction per second");
        }
        Ok(Built { workload, system, engine })
    }

    /// Clients per node, by the workload where the user says nothing: each district of TPC-C has a
    /// terminal, and more would mostly wait for one another.
    pub(crate) fn clients_per_node(&self) -> usize {
        let terminals = usize::from(self.workload.warehouses.unwrap_or(1)) * TERMINALS;
        let most = if self.workload.is_tpcc() { terminals } else { CLIENTS };
        self.clients.unwrap_or(CLIENTS.min(most))
    }

    pub(crate) fn load(&self) -> Load {
        self.rate.map_or(Load::Closed, |per_second| Load::Open { per_second })
    }

    /// The plan of a run of `length` for so many clients.
    pub(crate) fn plan(
        &self,
        length: Length,
        warmup: Nanos,
        clients_per_node: usize,
        record: bool,
    ) -> RunPlan {
        let clients = (clients_per_node * self.nodes) as u64;
        let (warmup, stop_at, transactions) = match length {
            Length::Time(span) => (warmup, warmup + span, None),
            Length::Transactions(count) => (Nanos::ZERO, Nanos::MAX, Some(count.div_ceil(clients))),
        };
        RunPlan {
            seed: self.seed,
            clients: clients as u32,
            begin: Nanos::ZERO,
            warmup_until: warmup,
            stop_at,
            transactions_per_client: transactions,
            load: self.load(),
            retry: RETRY,
            record,
            history_max: usize::MAX,
        }
    }

    pub(crate) fn cluster<N: CommitNode>(
        &self,
        view: &View,
        built: &Built<N::Config>,
        plan: RunPlan,
        clients_per_node: usize,
    ) -> Result<Cluster<N>> {
        let workload = built.workload.workload.clone();
        let copies = (view.nodes() * view.replicas()) as u64;
        let records = workload.records_per_shard() * copies;
        let value_bytes = built.workload.value_bytes as u64;
        memory::refuse_beyond_machine(records, value_bytes, SIZE_FLAGS)?;
        if let Some(Length::Transactions(_)) = self.length {
            // So many insert as many records as there is room for.
            let grown = records.saturating_add(workload.growth_per_shard().saturating_mul(copies));
            memory::refuse_beyond_machine(grown, value_bytes, "--transactions")?;
        }
        let loading = Loading::start();
        let nodes = load_nodes::<N>(view, &built.system, &*workload, &parallel::Threads(records));
        Ok(Cluster {
            records,
            memory: loading.end(records),
            view: view.clone(),
            nodes,
            procedures: workload.procedures(),
            run: RunControl::new(plan, workload.kinds()),
            workload,
            clients_per_node,
        })
    }
}

/// The records of a cluster that is quiet.
struct Quiet<'a, N>(&'a Cluster<N>);

impl<N: CommitNode> Records for Quiet<'_, N> {
    fn read(&mut self, key: Key) -> Option<Vec<u8>> {
        let Cluster { view, nodes, .. } = self.0;
        let node = view.primary(view.shard_of(key));
        let mut value = Vec::new();
        nodes[usize::from(node.0)].read(key, &mut value).then_some(value)
    }

    fn for_each(&mut self, each: &mut dyn FnMut(Key, &[u8])) {
        self.0.nodes.iter().for_each(|node| node.for_each(each));
    }
}

/// Judges a finished run: memory, invariants, replicas, and its history if it has one.
pub(crate) fn judge<N: CommitNode>(cluster: &Cluster<N>, settled: bool) -> (Check, Vec<Event>) {
    let (history, whole, totals, recorded) = {
        let mut result = cluster.run.result();
        let history = std::mem::take(&mut result.history);
        (history, result.whole, result.totals(), cluster.run.plan().record)
    };
    let mut check = Check { invariants: true, replicas_converge: true, ..Check::default() };
    if !settled {
        check.violations.push("the cluster did not become quiet: work is stuck".to_owned());
    }
    if cfg!(debug_assertions) && settled {
        // Goes over every record of every replica: more work than many a run.
        cluster.nodes.iter().for_each(|node| node.check());
    }
    audit_memory(cluster, &mut check);
    audit_invariants(cluster, &whole, &totals, &mut check);
    if recorded {
        let report = serializability::check(&history);
        check.serializable = Some(report.violations.is_empty());
        check.checked_transactions = history.len() as u64;
        for violation in report.violations.iter().take(VIOLATIONS_SHOWN) {
            check.violations.push(format!("serializability: {violation}"));
        }
    }
    (check, history)
}

fn audit_memory<N: CommitNode>(cluster: &Cluster<N>, check: &mut Check) {
    let audits: Vec<Audit> =
        parallel::map(&cluster.nodes, cluster.records, |node: &Arc<N>| node.audit());
    let mut leaks: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, count) in audits.iter().flat_map(|audit| &audit.leaks) {
        *leaks.entry(name).or_default() += count;
    }
    check.leaked_locks = leaks.get("locks").copied().unwrap_or_default();
    for (name, count) in leaks.iter().filter(|(_, count)| **count > 0) {
        check.violations.push(format!("{count} {} leaked", name.replace('_', " ")));
    }
    let mut digests = BTreeMap::new();
    for (node, audit) in audits.iter().enumerate() {
        for &(shard, digest) in &audit.digests {
            let (first, expected) = *digests.entry(shard).or_insert((node, digest));
            if expected != digest {
                check.replicas_converge = false;
                check.violations.push(format!(
                    "shard {} differs between node {first} and node {node}",
                    shard.0
                ));
            }
        }
    }
}

fn audit_invariants<N: CommitNode>(
    cluster: &Cluster<N>,
    whole: &Counts,
    totals: &[i128],
    check: &mut Check,
) {
    let mut state = Quiet(cluster);
    // The sums cover known commits only: a transaction of unknown outcome may have moved money.
    let wrong = if whole.unknown > 0 {
        cluster.workload.audit_state(&mut state)
    } else {
        cluster.workload.audit(&mut state, totals)
    };
    check.invariants = wrong.is_empty();
    check.violations.extend(wrong.into_iter().take(VIOLATIONS_SHOWN));
}

/// Puts a run's parts into a report.
pub(crate) fn report<N: CommitNode<Config: SystemConfig>>(
    config: &BenchConfig,
    built: &Built<N::Config>,
    cluster: &Cluster<N>,
    profile: Option<&str>,
    measured: &Measured,
    check: Check,
) -> BenchReport {
    let result = cluster.run.result();
    let whole = result.whole;
    let committed_ever = whole.committed.max(1) as f64;
    let stats = &measured.stats;
    let throughput = result.throughput_per_s();
    let simulated = measured.simulated.as_ref();
    let window = |counts: &Counts| counts.committed;
    BenchReport {
        schema: SCHEMA,
        workload: cluster.workload.name().to_owned(),
        system: config.system.clone(),
        world: if profile.is_some() { "simulated" } else { "threads" },
        profile: profile.map(str::to_owned),
        warnings: built.system.warnings().into_iter().map(str::to_owned).collect(),
        nodes: config.nodes,
        replicas: config.replicas,
        host_engines: cluster.view.engines_most(Side::Host),
        nic_engines: cluster.view.engines_most(Side::Nic),
        clients_per_node: cluster.clients_per_node,
        load: if config.rate.is_some() { "open" } else { "closed" },
        rate_per_s: config.rate,
        seed: config.seed,
        faults: if config.faults { "messages" } else { "none" },
        log_device: profile.map_or(config.log_device.name(), |_| "profile"),
        committed: window(&result.window),
        aborted: result.window.aborted(),
        unknown: result.window.unknown,
        refused: result.window.refused,
        failed: result.window.failed,
        abort_reasons: Abort::NAMES.into_iter().zip(result.window.aborts).collect(),
        paths: cluster.counters(PATHS),
        throughput_per_s: throughput,
        throughput_per_node_per_s: throughput / config.nodes as f64,
        latency_us: latency(&result.latency()),
        kinds: kinds(&result),
        messages_per_txn: stats.messages_sent as f64 / committed_ever,
        bytes_per_txn: stats.frame_bytes_sent as f64 / committed_ever,
        frames_per_txn: stats.frames_sent as f64 / committed_ever,
        dma_per_txn: (stats.dma_reads + stats.dma_writes) as f64 / committed_ever,
        verbs_per_txn: stats.verbs as f64 / committed_ever,
        lookups: lookups(&cluster.counters("lookups")),
        resources: measured.resources.clone(),
        core_time: core_time(&measured.core_time, committed_ever),
        memory: memory::finish(cluster.memory),
        check,
        trace_digest: simulated.map(|simulated| format!("{:016x}", simulated.digest)),
        events: simulated.map(|simulated| simulated.events),
        simulated_s: simulated.map(|simulated| simulated.time.as_secs_f64()),
        wall_s: measured.wall_s,
        events_per_wall_s: simulated.map(|simulated| simulated.events as f64 / measured.wall_s),
        simulated_to_wall: simulated
            .map(|simulated| simulated.time.as_secs_f64() / measured.wall_s),
    }
}

fn core_time(spent: &[Spending], transactions: f64) -> Vec<CoreTime> {
    let used = spent.iter().filter(|spent| spent.time > Nanos::ZERO);
    let time = |spent: &Spending| CoreTime {
        side: spent.side.name(),
        on: spent.on,
        ns_per_txn: spent.time.0 as f64 / transactions,
    };
    used.map(time).collect()
}

fn lookups(counters: &BTreeMap<&str, u64>) -> Lookups {
    let of = |name: &str| counters.get(name).copied().unwrap_or_default();
    let (keys, hits) = (of("keys"), of("hits"));
    let per_key = |name| of(name) as f64 / keys.max(1) as f64;
    let per_miss = |name| of(name) as f64 / (keys - hits).max(1) as f64;
    Lookups {
        keys,
        hit_rate: per_key("hits"),
        negative_rate: per_key("negative_hits"),
        asked_rate: per_key("asked"),
        first_reads_per_miss: per_miss("first_reads"),
        reads_per_miss: per_miss("dma_reads"),
        objects_per_miss: per_miss("objects_read"),
        bytes_per_miss: per_miss("bytes_read"),
        second_reads_per_miss: per_miss("second_reads"),
        overflow_reads_per_miss: per_miss("overflow_reads"),
        retries_per_miss: per_miss("retries"),
        torn_reads: of("torn_reads"),
        table_doublings: of("table_doublings"),
    }
}

fn kinds(result: &RunResult) -> Vec<Kind> {
    let kind = |kind: &nicol_workload::driver::KindResult| Kind {
        name: kind.name,
        committed: kind.committed_in_window,
        latency_us: latency(&kind.latency),
    };
    result.kinds.iter().map(kind).collect()
}

fn latency(histogram: &hdrhistogram::Histogram<u64>) -> Latency {
    let at = |quantile: f64| histogram.value_at_quantile(quantile) as f64 / 1e3;
    Latency {
        p50: at(0.5),
        p90: at(0.9),
        p95: at(0.95),
        p99: at(0.99),
        p999: at(0.999),
        p9999: at(0.9999),
        max: histogram.max() as f64 / 1e3,
        mean: histogram.mean() / 1e3,
    }
}
