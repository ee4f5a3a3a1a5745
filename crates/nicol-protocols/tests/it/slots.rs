//! Engines that run out of call slots again and again: every step of every system meets a call that
//! cannot be made, and nothing is lost, locked for ever or done twice.

use std::sync::Arc;

use nicol_check::serializability;
use nicol_core::commit::CommitNode;
use nicol_core::engine::{CALLS_MAX, Start};
use nicol_core::fabric::{Completions, Fabric, FabricError, ReplyTo};
use nicol_core::faults::FaultPlan;
use nicol_core::history::Promise;
use nicol_core::ids::Side;
use nicol_core::rng::{Purpose, Stream};
use nicol_core::system::{Sequential, load_nodes};
use nicol_core::txn::Procedures;
use nicol_core::units::Nanos;
use nicol_core::view::View;
use nicol_core::workload::Workload;
use nicol_protocols::commit::{rdma_occ, xenic};
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig};
use nicol_workload::chooser::{Distribution, PartsPerMillion};
use nicol_workload::churn::{Churn, ChurnConfig};
use nicol_workload::driver::{Load, RETRY, RunControl, RunPlan, history, spawn_clients};
use nicol_workload::ycsb_t::{YcsbT, YcsbTConfig};

const NODES: usize = 3;
/// Slots that an engine is left now and then, at most.
const SPARE_MAX: u64 = 4;

/// Who is short of call slots, and how many clients want them.
#[derive(Clone, Copy, Debug)]
struct Want {
    clients_per_host: u32,
    transactions: u64,
    /// A host has so many at any time, and its NIC has enough; if not set, every engine has a few
    /// now and then.
    host_slots: Option<usize>,
    /// See [`nicol_core::engine::Tuning`].
    tasks_per_round: usize,
}

const ALL_NOW_AND_THEN: Want =
    Want { clients_per_host: 6, transactions: 40, host_slots: None, tasks_per_round: 256 };

/// A cluster whose engines are short of call slots.
struct Short<N> {
    seed: u64,
    want: Want,
    nodes: Vec<Arc<N>>,
    workload: Arc<dyn Workload>,
    procedures: Procedures,
    run: Arc<RunControl>,
}

impl<N: CommitNode> Start for Short<N> {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        let number = u32::from(here.node.0) * 2 + u32::from(here.side == Side::Nic);
        let random = Stream::new(self.seed, Purpose::Test, number);
        match self.want.host_slots {
            None => fabric.spawn(starve(fabric.clone(), random, self.run.clone())),
            Some(slots) if here.side == Side::Host => {
                fabric.spawn(reserve(fabric.clone(), slots, self.run.clone()));
            }
            Some(_) => {}
        }
        let node = &self.nodes[usize::from(here.node.0)];
        let Some(coordinator) = node.start(fabric, &self.procedures) else { return };
        let clients = self.want.clients_per_host;
        let first = u32::from(here.node.0) * clients;
        spawn_clients(fabric, &coordinator, &self.workload, &self.run, first, clients);
    }
}

/// A call slot that is taken, and waits for nothing.
type Taken<F> = (ReplyTo, <F as Completions>::Completion);

fn give_back<F: Fabric>(fabric: &F, (asker, reply): Taken<F>) {
    drop(reply);
    fabric.refuse(asker, FabricError::Unreachable);
}

/// Leaves an engine so many call slots until the run ends.
async fn reserve<F: Fabric>(fabric: F, slots: usize, run: Arc<RunControl>) {
    let taken: Vec<Taken<F>> =
        (slots..CALLS_MAX).map(|_| fabric.open_delegated_call(fabric.here())).collect();
    while !run.finished() {
        fabric.sleep_until(fabric.now() + Nanos::from_micros(20)).await;
    }
    taken.into_iter().for_each(|taken| give_back(&fabric, taken));
}

/// Takes all free call slots of an engine, and gives a few back for a while, until the run ends.
async fn starve<F: Fabric>(fabric: F, mut random: Stream, run: Arc<RunControl>) {
    let mut taken: Vec<Taken<F>> = Vec::with_capacity(CALLS_MAX);
    while !run.finished() {
        loop {
            let (asker, reply) = fabric.open_delegated_call(fabric.here());
            // What could not be opened has no number.
            if asker.request.sequence == 0 {
                break;
            }
            taken.push((asker, reply));
        }
        fabric.sleep_until(fabric.now() + Nanos(random.below(8_000))).await;
        for _ in 0..=random.below(SPARE_MAX) {
            taken.pop().into_iter().for_each(|taken| give_back(&fabric, taken));
        }
        fabric.sleep_until(fabric.now() + Nanos(random.below(8_000))).await;
    }
    taken.into_iter().for_each(|taken| give_back(&fabric, taken));
}

/// Records that come and go, of which many transactions want the same ones.
fn churn(ship: bool) -> Arc<dyn Workload> {
    Arc::new(Churn::new(ChurnConfig { nodes: NODES as u16, rows: 8, ordered: false, ship }))
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
fn run<N: CommitNode>(
    config: &N::Config,
    workload: Arc<dyn Workload>,
    faults: FaultPlan,
    seed: u64,
) -> u64 {
    run_with::<N>(ALL_NOW_AND_THEN, config, workload, faults, seed)
}

fn run_with<N: CommitNode>(
    want: Want,
    config: &N::Config,
    workload: Arc<dyn Workload>,
    faults: FaultPlan,
    seed: u64,
) -> u64 {
    let view = View::new(NODES, 2, 1, 1).unwrap();
    let clients = NODES as u32 * want.clients_per_host;
    let plan = RunPlan {
        seed,
        clients,
        begin: Nanos::ZERO,
        warmup_until: Nanos::ZERO,
        stop_at: Nanos::MAX,
        operations_per_client: Some(want.transactions),
        load: Load::Closed,
        retry: RETRY,
        record: true,
        history_max: usize::MAX,
    };
    let short = Arc::new(Short::<N> {
        seed,
        want,
        nodes: load_nodes(&view, config, &*workload, &Sequential),
        procedures: workload.procedures(),
        run: RunControl::new(plan, workload.kinds()),
        workload,
    });
    let profile = Arc::new(Profile::load("liquidio3").unwrap());
    let mut sim = SimConfig { faults, ..SimConfig::new(view.clone(), profile, seed) };
    sim.tuning.tasks_per_round = want.tasks_per_round;
    let world = SimCluster::new(sim);
    world.start(&short);
    let limit = Nanos::from_secs(20);
    let ran = world.run_until(&mut |_| short.run.finished(), limit);
    assert_eq!(ran, RunEnd::Done, "seed {seed}: clients are stuck");
    let is_settled = || short.nodes.iter().all(|node| node.is_settled());
    world.run_until(&mut |_| is_settled(), limit);
    assert!(is_settled(), "seed {seed}: {:?}", short.nodes[0].audit());
    world.settle(limit);
    for node in &short.nodes {
        node.check();
        assert_eq!(
            node.audit().leaks.iter().map(|(_, count)| count).sum::<u64>(),
            0,
            "seed {seed}"
        );
    }
    let mut result = short.run.result();
    let operations = std::mem::take(&mut result.history);
    let report =
        serializability::check(&history(Promise::default(), operations, &*short.workload, &view));
    assert!(report.held(), "seed {seed}: {report:#?}");
    result.whole.aborts[nicol_core::txn::Abort::NoResources.index()]
}

/// A phase gives up so early that its requests are often still under way.
const TIMEOUT: Nanos = Nanos::from_micros(105);

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

/// Other clients are quicker to take the slot that a host has just got its NIC's answer by.
#[test]
fn a_host_that_finds_no_slot_does_not_leave_its_transaction_at_the_nic() {
    let want =
        Want { clients_per_host: 300, transactions: 4, host_slots: Some(40), tasks_per_round: 1 };
    let config = xenic::XenicConfig { local_paths: false, ..xenic::XenicConfig::paper(64, 16) };
    run_with::<xenic::Node>(want, &config, churn(false), FaultPlan::none(), 0);
}

#[test]
fn xenic_survives_it_under_faults() {
    for seed in 0..30 {
        let combined = seed % 4 != 3;
        let config = xenic::XenicConfig {
            timeout: TIMEOUT,
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
        for system in rdma_occ::SYSTEMS {
            let config = rdma_occ::RdmaOccConfig::named(system, 64, 16).unwrap();
            run::<rdma_occ::Node>(&config, churn(false), FaultPlan::none(), seed);
            let config = rdma_occ::RdmaOccConfig { timeout: TIMEOUT, ..config };
            run::<rdma_occ::Node>(&config, churn(false), FaultPlan::messages(seed), seed);
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
    let config = xenic::XenicConfig { timeout: TIMEOUT, ..xenic::XenicConfig::paper(64, 16) };
    for seed in 110..130 {
        run::<xenic::Node>(&config, churn(false), late(), seed);
    }
    for seed in 850..860 {
        for system in ["fasst", "farm"] {
            let config = rdma_occ::RdmaOccConfig::named(system, 64, 16).unwrap();
            let config = rdma_occ::RdmaOccConfig { timeout: TIMEOUT, ..config };
            run::<rdma_occ::Node>(&config, churn(false), late(), seed);
        }
    }
}
