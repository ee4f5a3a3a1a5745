//! Crashes of a node under the RDMA systems, at every step of transactions: its survivors go on, and
//! what it has left behind is refused in words.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nicol_check::serializability;
use nicol_core::commit::CommitNode;
use nicol_core::engine::{AfterLoss, Loss, Revival, Start};
use nicol_core::fabric::Fabric;
use nicol_core::faults::{Crash, CrashScope, FaultFamilies, FaultPlan};
use nicol_core::history::Promise;
use nicol_core::ids::NodeId;
use nicol_core::system::{Sequential, SystemNode, load_nodes};
use nicol_core::txn::{Abort, Procedures};
use nicol_core::units::Nanos;
use nicol_core::view::View;
use nicol_core::workload::Workload;
use nicol_protocols::commit::Sabotage;
use nicol_protocols::commit::rdma_occ::{Node, RdmaOccConfig, SYSTEMS};
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};
use nicol_workload::churn::{Churn, ChurnConfig};
use nicol_workload::driver::{Load, RETRY, RunControl, RunPlan, history, spawn_clients};

const NODES: usize = 3;
const CLIENTS_PER_NODE: u32 = 4;
/// The node that crashes.
const LOST: NodeId = NodeId(1);
/// Simulated time after which a run that has not ended is stuck: a hundred leases.
const LIMIT: Nanos = Nanos::from_secs(1);
/// When the crashes of a test come: every step of a transaction takes longer than the distance of
/// two of them.
const FIRST: Nanos = Nanos::from_micros(60);
const APART: Nanos = Nanos(700);

/// How a run goes.
#[derive(Clone, Debug)]
struct Case {
    on: &'static str,
    replicas: usize,
    faults: FaultPlan,
    /// Do other nodes reach records of ordered tables?
    ordered: bool,
}

impl Case {
    /// One crash.
    fn of(on: &'static str, crash: Crash) -> Self {
        let faults = FaultPlan { crashes: vec![crash], ..FaultPlan::none() };
        Self { on, replicas: 3, faults, ordered: false }
    }
}

/// The crash of number `number` in a test.
fn crash(number: u64) -> Crash {
    let at = Nanos(FIRST.0 + number * APART.0);
    Crash { scope: CrashScope::Node, node: LOST.0, at, restart_after: None }
}

struct Cluster {
    nodes: Vec<Arc<Node>>,
    workload: Arc<dyn Workload>,
    procedures: Procedures,
    run: Arc<RunControl>,
    /// By node: has it crashed?
    down: [AtomicBool; NODES],
}

impl Start for Cluster {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        let node = &self.nodes[here.node.index()];
        let Some(coordinator) = node.start(fabric, &self.procedures) else { return };
        let first = u32::from(here.node.0) * CLIENTS_PER_NODE;
        spawn_clients(fabric, &coordinator, &self.workload, &self.run, first, CLIENTS_PER_NODE);
    }

    fn crashed(&self, loss: &Loss) -> AfterLoss {
        self.down[loss.node.index()].store(true, Ordering::Relaxed);
        AfterLoss::NodeStops
    }

    fn restart<F: Fabric>(&self, fabric: &F, _revival: &Revival<'_>) {
        Node::start_without_data(fabric);
    }
}

/// What several runs have come to, by name: aborts, and what was done without the lost node.
type Seen = BTreeMap<&'static str, u64>;

/// Runs transactions until every client has ended, and judges them. What is wrong.
fn run(config: &RdmaOccConfig, case: &Case, seed: u64, seen: &mut Seen) -> Vec<String> {
    let workload: Arc<dyn Workload> = Arc::new(Churn::new(ChurnConfig {
        nodes: NODES as u16,
        rows: 6,
        ordered: case.ordered,
        ship: false,
    }));
    let view = View::new(NODES, case.replicas, 1, 1).unwrap();
    let plan = RunPlan {
        seed,
        clients: NODES as u32 * CLIENTS_PER_NODE,
        begin: Nanos::ZERO,
        warmup_until: Nanos::ZERO,
        stop_at: Nanos::MAX,
        operations_per_client: Some(12),
        load: Load::Closed,
        retry: RETRY,
        record: true,
        history_max: usize::MAX,
    };
    let cluster = Arc::new(Cluster {
        nodes: load_nodes(&view, config, &*workload, &Sequential),
        procedures: workload.procedures(),
        run: RunControl::new(plan, workload.kinds()),
        workload,
        down: Default::default(),
    });
    let profile = Arc::new(Profile::load(case.on).unwrap());
    let mut sim = SimConfig::new(view.clone(), profile, seed);
    sim.faults = case.faults.clone();
    sim.view_service = true;
    let world = SimCluster::new(sim);
    world.start(&cluster);
    let mut wrong = Vec::new();
    if world.run_until(&mut |_| cluster.run.finished(), LIMIT) != RunEnd::Done {
        wrong.push(format!("{} clients are stuck", cluster.run.running()));
        return wrong;
    }
    let lives = |node: &&Arc<Node>| !cluster.down[node.id().index()].load(Ordering::Relaxed);
    let survivors = || cluster.nodes.iter().filter(lives);
    let is_settled = || survivors().all(|node| node.is_settled());
    // What is under way may lock once more, for a node whose loss only the next view tells.
    while world.run_until(&mut |_| is_settled(), LIMIT) == RunEnd::Done {
        world.settle(LIMIT);
        if is_settled() {
            break;
        }
    }
    if !is_settled() {
        wrong.push("survivors do not become quiet".to_owned());
    }
    let survivors: Vec<_> = survivors().collect();
    wrong.extend(audit(&survivors, seen));
    wrong.extend(differing(&survivors, &view));
    let mut result = cluster.run.result();
    for (name, count) in Abort::NAMES.iter().zip(result.whole.aborts) {
        *seen.entry(name).or_default() += count;
    }
    *seen.entry("unknown").or_default() += result.whole.unknown;
    let operations = std::mem::take(&mut result.history);
    let told = history(Promise::default(), operations, &*cluster.workload, &view);
    let report = serializability::check(&told);
    wrong.extend(report.violations.iter().map(ToString::to_string));
    wrong
}

/// What has leaked; notes what awaits a recovery.
fn audit(survivors: &[&Arc<Node>], seen: &mut Seen) -> Vec<String> {
    let mut wrong = Vec::new();
    for node in survivors {
        node.check();
        let audit = node.audit();
        for (name, count) in audit.leaks.iter().filter(|(_, count)| *count > 0) {
            wrong.push(format!("{count} {name} leaked"));
        }
        for &(_, count) in &audit.awaiting_recovery {
            *seen.entry("locks_awaiting_recovery").or_default() += count;
        }
        for counter in node.counters() {
            *seen.entry(counter.name).or_default() += counter.value;
        }
    }
    wrong
}

/// Replicas of shards whose primary is left hold the same records, but for those that the primary
/// knows to await a recovery.
fn differing(survivors: &[&Arc<Node>], view: &View) -> Vec<String> {
    let mut lines = Vec::new();
    for primary in survivors {
        let undecided = primary.audit().keys_awaiting_recovery;
        for shard in view.led_by(primary.id()) {
            let records = |node: &Node| {
                let mut records = BTreeMap::new();
                node.for_each_of(shard, &mut |key, version, value| {
                    if !undecided.contains(&key) {
                        records.insert(key, (version, value.to_vec()));
                    }
                });
                records
            };
            let own = records(primary);
            let backups = survivors
                .iter()
                .filter(|node| view.backups(shard).any(|backup| backup == node.id()));
            for backup in backups.filter(|backup| records(backup) != own) {
                lines.push(format!("node {} differs in shard {}", backup.id().0, shard.0));
            }
        }
    }
    lines
}

fn config(system: &str) -> RdmaOccConfig {
    RdmaOccConfig::named(system, 64, 16).unwrap()
}

/// Crashes at `count` instants that are [`APART`]; what was seen in all runs.
fn crashes(system: &str, on: &'static str, replicas: usize, count: u64) -> Seen {
    let mut seen = Seen::new();
    for number in 0..count {
        let case = Case { replicas, ordered: number % 4 == 3, ..Case::of(on, crash(number)) };
        let wrong = run(&config(system), &case, number, &mut seen);
        assert_eq!(wrong, [""; 0], "{system}, {number}: {case:?}");
    }
    seen
}

#[test]
fn survivors_go_on_whatever_step_a_crash_meets() {
    for system in SYSTEMS {
        for on in ["connectx5", "liquidio3"] {
            let seen = crashes(system, on, 3, 40);
            for name in [
                "logs_excused",
                "primaries_not_told",
                "locks_awaiting_recovery",
                "shard_unavailable",
                "awaits_recovery",
            ] {
                assert!(seen[name] > 0, "{system} on {on} has never seen {name}: {seen:?}");
            }
        }
    }
}

#[test]
fn a_shard_without_backups_is_refused_when_its_node_is_gone() {
    for system in SYSTEMS {
        let seen = crashes(system, "connectx5", 1, 40);
        assert!(seen["logs_excused"] == 0, "{system}: there are no backups");
        assert!(seen["shard_unavailable"] > 0, "{system}: {seen:?}");
    }
}

#[test]
fn a_node_that_comes_back_without_its_data_serves_nothing() {
    for system in SYSTEMS {
        let mut seen = Seen::new();
        for number in 0..12 {
            let restart_after = Some(Nanos::from_micros(100 + 40 * number));
            let scope = [CrashScope::Node, CrashScope::Host, CrashScope::Nic][number as usize % 3];
            let case = Case::of("connectx5", Crash { scope, restart_after, ..crash(number) });
            let wrong = run(&config(system), &case, number, &mut seen);
            assert_eq!(wrong, [""; 0], "{system}, {number}: {case:?}");
        }
        assert!(seen["shard_unavailable"] > 0, "{system}: {seen:?}");
    }
}

/// A request to a host's second life before that has a lease is dropped, and no view ends it.
#[test]
fn nobody_waits_for_a_life_that_has_no_lease_yet() {
    for system in SYSTEMS {
        let (at, restart_after) = (Nanos(68_106), Some(Nanos(1_744_896)));
        let crash = Crash { scope: CrashScope::Host, node: 0, at, restart_after };
        let case = Case { ordered: true, ..Case::of("liquidio3", crash) };
        let config = RdmaOccConfig { timeout: Nanos::from_micros(500), ..config(system) };
        let wrong = run(&config, &case, 279, &mut Seen::new());
        assert_eq!(wrong, [""; 0], "{system}");
        // A primary that is lost while WRITEs to another one are awaited.
        let families = FaultFamilies { crashes: true, messages: true, ..FaultFamilies::NONE };
        let case = Case { replicas: 2, faults: families.draw(162), ordered: false, ..case };
        let wrong = run(&config, &case, 162, &mut Seen::new());
        assert_eq!(wrong, [""; 0], "{system}");
    }
}

#[test]
fn crashes_and_messages_that_are_lost_leave_no_lock_and_no_anomaly() {
    for system in SYSTEMS {
        let mut seen = Seen::new();
        for seed in 0..24 {
            let messages = seed % 2 == 0;
            let families = FaultFamilies { crashes: true, messages, ..FaultFamilies::NONE };
            let on = ["connectx5", "liquidio3"][seed as usize / 2 % 2];
            let faults = families.draw(seed);
            let case = Case { on, replicas: 2 + seed as usize % 2, faults, ordered: seed % 5 == 4 };
            let config = RdmaOccConfig { timeout: Nanos::from_micros(500), ..config(system) };
            let wrong = run(&config, &case, seed, &mut seen);
            assert_eq!(wrong, [""; 0], "{system}, seed {seed}: {case:?}");
        }
        assert!(seen["unknown"] > 20 && seen["shard_unavailable"] > 20, "{system}: {seen:?}");
    }
}

#[test]
fn stolen_locks_are_caught() {
    for system in ["farm", "fasst", "drtm-r"] {
        let config = RdmaOccConfig { sabotage: Sabotage::StealsLocks, ..config(system) };
        let caught = (0..200).any(|number| {
            let case = Case::of("connectx5", crash(number));
            !run(&config, &case, number, &mut Seen::new()).is_empty()
        });
        assert!(caught, "{system}: nobody saw stolen locks");
    }
}
