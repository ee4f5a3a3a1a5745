//! Engines that run out of call slots again and again: every step of every system meets a call that
//! cannot be made, and nothing is lost, locked for ever or done twice.

use std::sync::Arc;

use nicol_check::serializability;
use nicol_core::chance::{Purpose, Stream};
use nicol_core::cluster::Layout;
use nicol_core::commit::{InTurn, Member, Procedures, load_nodes};
use nicol_core::engine::{CALLS_MAX, Start};
use nicol_core::fabric::{Fabric, FabricError, ReplyTo};
use nicol_core::faults::FaultPlan;
use nicol_core::ids::Side;
use nicol_core::units::Nanos;
use nicol_core::workload::Workload;
use nicol_protocols::commit::{hybrid, xenic};
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};
use nicol_workload::chooser::{Distribution, PartsPerMillion};
use nicol_workload::churn::{Churn, ChurnConfig};
use nicol_workload::driver::{Load, RETRY, RunControl, RunPlan, spawn_clients};
use nicol_workload::ycsb_t::{YcsbT, YcsbTConfig};

const NODES: usize = 3;
const CLIENTS_PER_HOST: u32 = 6;
/// Slots that an engine is left now and then, at most.
const SPARE_MAX: u64 = 4;

/// A cluster whose engines are short of call slots.
struct Short<N> {
    seed: u64,
    nodes: Vec<Arc<N>>,
    workload: Arc<dyn Workload>,
    procedures: Procedures,
    run: Arc<RunControl>,
}

impl<N: Member> Start for Short<N> {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        let number = u32::from(here.node.0) * 2 + u32::from(here.side == Side::Nic);
        let random = Stream::new(self.seed, Purpose::Test, number);
        fabric.spawn(starve(fabric.clone(), random, self.run.clone()));
        let node = &self.nodes[usize::from(here.node.0)];
        let Some(coordinator) = node.start(fabric, &self.procedures) else { return };
        let first = u32::from(here.node.0) * CLIENTS_PER_HOST;
        spawn_clients(fabric, &coordinator, &self.workload, &self.run, first, CLIENTS_PER_HOST);
    }
}

/// Takes all free call slots of an engine, and gives a few back for a while, until the run ends.
async fn starve<F: Fabric>(fabric: F, mut random: Stream, run: Arc<RunControl>) {
    let mut taken: Vec<(ReplyTo, F::Completion)> = Vec::with_capacity(CALLS_MAX);
    let give_back = |(asker, reply): (ReplyTo, F::Completion)| {
        drop(reply);
        fabric.refuse(asker, FabricError::Unreachable);
    };
    while !run.finished() {
        loop {
            let (asker, reply) = fabric.expect(fabric.here());
            // What could not be opened has no number.
            if asker.request.sequence == 0 {
                break;
            }
            taken.push((asker, reply));
        }
        fabric.sleep_until(fabric.now() + Nanos(random.below(8_000))).await;
        for _ in 0..=random.below(SPARE_MAX) {
            taken.pop().map(give_back);
        }
        fabric.sleep_until(fabric.now() + Nanos(random.below(8_000))).await;
    }
    taken.drain(..).for_each(give_back);
}

/// Records that come and go, of which many transactions want the same ones.
fn churn(ship: bool) -> Arc<dyn Workload> {
    Arc::new(Churn::new(ChurnConfig { nodes: NODES as u16, rows: 8, ship }))
}

/// Increments of single records: those of a node's own are executed by its host.
fn increments() -> Arc<dyn Workload> {
    Arc::new(YcsbT::new(YcsbTConfig {
        nodes: NODES as u16,
        records_per_node: 1,
        keys_per_txn: 1,
        value_bytes: 8,
        read_fraction: PartsPerMillion(0),
        distribution: Distribution::Uniform,
        ship: false,
    }))
}

/// Runs `workload` under `config`; how many attempts found no slot.
fn run<N: Member>(
    config: &N::Config,
    workload: Arc<dyn Workload>,
    faults: FaultPlan,
    seed: u64,
) -> u64 {
    let layout = Layout::new(NODES, 2, 1, 1).unwrap();
    let clients = NODES as u32 * CLIENTS_PER_HOST;
    let plan = RunPlan {
        seed,
        clients,
        begin: Nanos::ZERO,
        warmup_until: Nanos::ZERO,
        stop_at: Nanos::MAX,
        transactions_per_client: Some(40),
        load: Load::Closed,
        retry: RETRY,
        record: true,
        history_max: usize::MAX,
    };
    let short = Short::<N> {
        seed,
        nodes: load_nodes(&layout, config, &*workload, &InTurn),
        procedures: workload.procedures(),
        run: RunControl::new(plan, workload.kinds()),
        workload,
    };
    let profile = Arc::new(Profile::load("liquidio3").unwrap());
    let sim = SimConfig { faults, ..SimConfig::new(layout, profile, seed) };
    let world = SimCluster::new(sim);
    world.start(&short);
    let limit = Nanos::from_secs(60);
    let ran = world.run_until(&mut |_| short.run.finished(), limit);
    assert_eq!(ran, RunEnd::Done, "seed {seed}: clients are stuck");
    let is_settled = || short.nodes.iter().all(|node| node.is_settled());
    world.run_until(&mut |_| is_settled(), limit);
    assert!(is_settled(), "seed {seed}: {:?}", short.nodes[0].audit());
    world.settle(limit);
    for node in &short.nodes {
        node.check();
        assert_eq!(node.audit().leaked_locks, 0, "seed {seed}");
    }
    let mut result = short.run.result();
    let history = std::mem::take(&mut result.history);
    let report = serializability::check(&history);
    assert!(report.violations.is_empty(), "seed {seed}: {:#?}", report.violations.first());
    result.whole.aborts[nicol_core::txn::Abort::NoResources.index()]
}

/// A phase gives up so early that its requests are often still under way.
const PATIENCE: Nanos = Nanos::from_micros(105);

#[test]
fn xenic_survives_a_want_of_call_slots() {
    let config = xenic::XenicConfig::paper(64, 16);
    let mut denied = 0;
    for seed in 0..20 {
        denied += run::<xenic::Node>(&config, churn(seed % 2 == 0), FaultPlan::none(), seed);
    }
    assert!(denied > 0, "no engine was ever short of slots");
}

/// The NIC says that the host's table is out of date, and finds no slot to unlock before the host
/// has begun again.
#[test]
fn what_a_local_attempt_has_locked_is_not_unlocked_under_the_next_one() {
    let config = xenic::XenicConfig::paper(64, 16);
    for seed in 0..10 {
        run::<xenic::Node>(&config, increments(), FaultPlan::none(), seed);
    }
}

#[test]
fn xenic_survives_it_under_faults() {
    for seed in 0..30 {
        let combined = seed % 4 != 3;
        let config = xenic::XenicConfig {
            patience: PATIENCE,
            combined_ops: combined,
            multi_hop: combined,
            ..xenic::XenicConfig::paper(64, 16)
        };
        run::<xenic::Node>(&config, churn(seed % 2 == 0), FaultPlan::messages(seed), seed);
    }
}

#[test]
fn the_baselines_survive_it_with_faults_and_without() {
    for seed in 0..5 {
        for system in hybrid::SYSTEMS {
            let config = hybrid::HybridConfig::named(system, 64, 16).unwrap();
            run::<hybrid::Node>(&config, churn(false), FaultPlan::none(), seed);
            let config = hybrid::HybridConfig { patience: PATIENCE, ..config };
            run::<hybrid::Node>(&config, churn(false), FaultPlan::messages(seed), seed);
        }
    }
}

/// Many requests are lost, and many arrive when nobody waits for them any more.
fn late() -> FaultPlan {
    FaultPlan {
        loss: 300_000,
        tail: 500_000,
        tail_max: Nanos::from_millis(1),
        quiet_after: Nanos::from_millis(20),
        ..FaultPlan::none()
    }
}

/// A lock request that arrives behind the unlock would be granted for ever.
#[test]
fn an_unlock_that_finds_no_slot_at_first_fences_what_went_unanswered() {
    let config = xenic::XenicConfig { patience: PATIENCE, ..xenic::XenicConfig::paper(64, 16) };
    for seed in 110..130 {
        run::<xenic::Node>(&config, churn(false), late(), seed);
    }
    for seed in 850..860 {
        for system in ["fasst", "farm"] {
            let config = hybrid::HybridConfig::named(system, 64, 16).unwrap();
            let config = hybrid::HybridConfig { patience: PATIENCE, ..config };
            run::<hybrid::Node>(&config, churn(false), late(), seed);
        }
    }
}
