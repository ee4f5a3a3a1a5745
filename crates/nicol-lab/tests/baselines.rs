//! Xenic's baselines in both worlds, under every checker.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nicol_check::serializability;
use nicol_core::cluster::Layout;
use nicol_core::commit::{Member, Procedures};
use nicol_core::engine::Start;
use nicol_core::fabric::Fabric;
use nicol_core::faults::FaultPlan;
use nicol_core::ids::{Key, Side};
use nicol_core::txn::Abort;
use nicol_core::units::{Bytes, Nanos};
use nicol_core::workload::{ShardMap, Workload};
use nicol_lab::workloads::{BuiltWorkload, WorkloadSpec, build};
use nicol_protocols::commit::Sabotage;
use nicol_protocols::commit::hybrid::{HybridConfig, Node};
use nicol_rt::{LiveCluster, LiveConfig};
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};
use nicol_workload::driver::{Counts, Load, RETRY, RunControl, RunPlan, spawn_clients};

const NODES: usize = 3;
const HOST_ENGINES: usize = 2;
const CLIENTS_PER_NODE: usize = 8;
const WORKLOADS: [&str; 4] = ["smallbank", "ycsb-t", "churn", "retwis"];

/// A system's name and its configuration for so many records of such values.
type System = (&'static str, fn(u64, usize) -> HybridConfig);

const SYSTEMS: [System; 6] = [
    ("farm", HybridConfig::farm),
    ("fasst", HybridConfig::fasst),
    ("drtm-r", HybridConfig::drtm_r),
    ("drtm-r-original", HybridConfig::drtm_r_original),
    ("drtm-h", HybridConfig::drtm_h),
    ("drtm-h-nc", HybridConfig::drtm_h_nc),
];

/// A run: what varies from test to test.
struct Run {
    system: System,
    workload: &'static str,
    records: u64,
    transactions: u64,
    seed: u64,
    faults: bool,
    adjust: fn(&mut HybridConfig),
}

impl Run {
    fn new(system: System, workload: &'static str, seed: u64) -> Self {
        Self {
            system,
            workload,
            records: 200,
            transactions: 2_000,
            seed,
            faults: false,
            adjust: |_| {},
        }
    }

    fn name(&self) -> String {
        format!("{} under {}, seed {}", self.system.0, self.workload, self.seed)
    }

    fn cluster(&self) -> Cluster {
        let spec = WorkloadSpec {
            name: self.workload.to_owned(),
            records: Some(self.records),
            ..WorkloadSpec::default()
        };
        let BuiltWorkload { workload, value_bytes } = build(&spec, NODES).unwrap();
        let records = workload.records_per_shard() + workload.growth_per_shard();
        let mut config = self.system.1(records, value_bytes);
        (self.adjust)(&mut config);
        let layout = Layout::new(NODES, NODES, HOST_ENGINES, 1).unwrap();
        let nodes =
            layout.node_ids().map(|id| Arc::new(Node::load(id, &layout, &config, &*workload)));
        let clients = (CLIENTS_PER_NODE * NODES) as u64;
        let plan = RunPlan {
            seed: self.seed,
            clients: clients as u32,
            begin: Nanos::ZERO,
            warmup_until: Nanos::ZERO,
            stop_at: Nanos::MAX,
            transactions_per_client: Some(self.transactions.div_ceil(clients)),
            load: Load::Closed,
            retry: RETRY,
            record: true,
            history_max: usize::MAX,
        };
        Cluster {
            nodes: nodes.collect(),
            procedures: workload.procedures(),
            run: RunControl::new(plan, workload.kinds()),
            workload,
            layout,
        }
    }

    fn simulate(&self) -> Judged {
        let cluster = self.cluster();
        let profile = Arc::new(Profile::load("connectx5").unwrap());
        let mut config = SimConfig::new(cluster.layout.clone(), profile, self.seed);
        if self.faults {
            config.faults = FaultPlan::messages(self.seed);
        }
        let world = SimCluster::new(config);
        world.start(&cluster);
        let ran = world.run_until(&mut |_| cluster.run.finished(), Nanos::from_secs(60));
        assert_eq!(ran, RunEnd::Done, "{}: the clients are stuck", self.name());
        let limit = world.now() + Nanos::from_secs(10);
        world.run_until(&mut |_| cluster.is_settled(), limit);
        cluster.judge()
    }

    fn live(&self) -> Judged {
        let cluster = Arc::new(self.cluster());
        let config = LiveConfig {
            layout: cluster.layout.clone(),
            threads: None,
            pin: !self.faults,
            seed: self.seed,
            faults: self.faults.then(|| FaultPlan::messages(self.seed)),
        };
        let world = LiveCluster::launch(&config, &cluster).unwrap();
        let poll = Duration::from_millis(2);
        world.run_until(|| cluster.run.finished(), poll).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        world.run_until(|| cluster.is_settled() || Instant::now() > deadline, poll).unwrap();
        world.stop().unwrap();
        cluster.judge()
    }
}

/// A cluster's memory and its clients: what a world starts on its engines.
struct Cluster {
    layout: Layout,
    nodes: Vec<Arc<Node>>,
    workload: Arc<dyn Workload>,
    procedures: Procedures,
    run: Arc<RunControl>,
}

impl Start for Cluster {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        let node = &self.nodes[usize::from(here.node.0)];
        let Some(coordinator) = node.start(fabric, &self.procedures) else { return };
        let share = CLIENTS_PER_NODE / self.layout.engines(Side::Host);
        let first = usize::from(here.node.0) * CLIENTS_PER_NODE + usize::from(here.core) * share;
        spawn_clients(fabric, &coordinator, &self.workload, &self.run, first as u32, share as u32);
    }
}

/// What a run came to.
struct Judged {
    counts: Counts,
    serializable: bool,
    violations: Vec<String>,
}

impl Cluster {
    fn is_settled(&self) -> bool {
        self.nodes.iter().all(|node| node.is_settled())
    }

    fn judge(&self) -> Judged {
        let mut result = self.run.result();
        let history = std::mem::take(&mut result.history);
        let (counts, totals) = (result.whole, result.totals());
        drop(result);
        let settled = self.is_settled();
        let mut violations = Vec::new();
        if settled {
            self.audit(&counts, &totals, &mut violations);
        } else {
            violations.push("the cluster did not become quiet".to_owned());
        }
        let report = serializability::check(&history);
        let serializable = report.violations.is_empty();
        violations.extend(report.violations.iter().take(5).map(ToString::to_string));
        Judged { counts, serializable, violations }
    }

    fn audit(&self, counts: &Counts, totals: &[i128], violations: &mut Vec<String>) {
        let mut digests = BTreeMap::new();
        for node in &self.nodes {
            let audit = node.audit();
            if audit.leaked_locks > 0 {
                violations.push(format!("{:?}: {} locks leaked", node.id(), audit.leaked_locks));
            }
            violations.extend(node.primary().check());
            for (shard, digest) in audit.digests {
                if *digests.entry(shard).or_insert(digest) != digest {
                    violations.push(format!("{shard:?} differs at {:?}", node.id()));
                }
            }
        }
        // The sums cover known commits only: one of unknown outcome may have moved money.
        if counts.unknown == 0 {
            let mut read = |key: Key| {
                let node = self.layout.primary(self.layout.shard_of(key));
                let mut value = Vec::new();
                self.nodes[usize::from(node.0)].read(key, &mut value).then_some(value)
            };
            violations.extend(self.workload.audit(&self.layout, &mut read, totals));
        }
    }
}

fn held(name: &str, judged: &Judged) {
    assert!(judged.violations.is_empty(), "{name}: {:#?}", judged.violations);
}

#[test]
fn every_baseline_commits_every_workload() {
    for system in SYSTEMS {
        for workload in WORKLOADS {
            let run = Run::new(system, workload, 1);
            let judged = run.simulate();
            held(&run.name(), &judged);
            assert!(judged.counts.committed > 1_500, "{}: {:?}", run.name(), judged.counts);
        }
    }
}

#[test]
fn message_faults_leave_no_lock_and_no_anomaly() {
    for system in SYSTEMS {
        let mut seen = [0; 6];
        let mut unknown = 0;
        for seed in 0..5 {
            for workload in WORKLOADS {
                let mut run = Run::new(system, workload, seed);
                run.faults = true;
                run.records = 40;
                run.adjust = |config| config.patience = Nanos::from_micros(500);
                let judged = run.simulate();
                held(&run.name(), &judged);
                unknown += judged.counts.unknown;
                for (count, aborts) in seen.iter_mut().zip(judged.counts.aborts) {
                    *count += aborts;
                }
            }
        }
        assert!(unknown > 0, "{}: no outcome was ever unknown", system.0);
        let locks_all = system.0 == "drtm-r-original";
        for (count, reason) in seen.iter().zip(Abort::NAMES) {
            let never = reason == "no_resources" || reason == "validate_locked" && locks_all;
            assert!((*count == 0) == never, "{}: {count} aborts by {reason}", system.0);
        }
    }
}

/// The systems whose protocol differs in the phases that can be broken: RPC and one-sided.
fn broken_systems() -> impl Iterator<Item = System> {
    SYSTEMS.into_iter().filter(|(name, _)| ["farm", "fasst", "drtm-r"].contains(name))
}

#[test]
fn every_broken_baseline_is_caught_within_200_seeds() {
    let breaks: [fn(&mut HybridConfig); 2] = [
        |config| config.sabotage = Sabotage::NoValidate,
        |config| config.sabotage = Sabotage::UnlockFirst,
    ];
    for (number, adjust) in breaks.into_iter().enumerate() {
        for system in broken_systems() {
            let caught = (0..200).any(|seed| {
                ["smallbank", "churn"].into_iter().any(|workload| {
                    let mut run = Run::new(system, workload, seed);
                    (run.records, run.transactions, run.adjust) = (10, 400, adjust);
                    !run.simulate().serializable
                })
            });
            assert!(caught, "{}: break {number} was never caught", system.0);
        }
    }
}

#[test]
fn a_small_log_and_no_room_for_addresses_only_cost_time() {
    for system in SYSTEMS {
        let mut run = Run::new(system, "smallbank", 2);
        run.faults = true;
        run.adjust = |config| {
            config.log = Bytes(1_024);
            config.cached_addresses = config.cached_addresses.min(8);
        };
        let judged = run.simulate();
        held(&run.name(), &judged);
        assert!(judged.counts.committed > 1_500, "{}: {:?}", run.name(), judged.counts);
    }
}

#[test]
fn values_out_of_line_are_read_and_committed() {
    for system in SYSTEMS {
        for seed in 0..4 {
            let mut run = Run::new(system, "ycsb-t", seed);
            run.faults = seed > 0;
            run.adjust = |config| {
                config.table.inline = 8;
                config.table.heap = Bytes(1 << 20);
            };
            let judged = run.simulate();
            held(&run.name(), &judged);
            assert!(judged.counts.committed > 1_500, "{}: {:?}", run.name(), judged.counts);
        }
    }
}

#[test]
fn every_baseline_keeps_its_promises_on_threads() {
    for system in SYSTEMS {
        for (workload, faults) in [("smallbank", false), ("retwis", false), ("churn", true)] {
            let mut run = Run::new(system, workload, 5);
            (run.transactions, run.faults) = (if faults { 400 } else { 10_000 }, faults);
            let judged = run.live();
            held(&run.name(), &judged);
            let committed = judged.counts.committed;
            assert!(committed > run.transactions / 2, "{}: {committed}", run.name());
        }
    }
}
