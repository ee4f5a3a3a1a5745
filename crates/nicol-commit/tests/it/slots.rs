//! Engines that run out of call slots again and again: every step of every system meets a call that
//! cannot be made, and nothing is lost, locked for ever or done twice.

use std::sync::Arc;

use nicol_commit::xenic::CombinedOps;
use nicol_commit::{rdma_occ, xenic};
use nicol_core::commit::CommitNode;
use nicol_core::engine::CALLS_MAX;
use nicol_core::fabric::{Completions, Fabric, FabricError, ReplyTo};
use nicol_core::faults::FaultPlan;
use nicol_core::ids::Side;
use nicol_core::rng::{Purpose, Stream};
use nicol_core::txn::Abort;
use nicol_core::units::Nanos;
use nicol_core::workload::Workload;
use nicol_workload::chooser::{Distribution, PartsPerMillion};
use nicol_workload::churn::{Churn, ChurnConfig};
use nicol_workload::driver::RunControl;
use nicol_workload::ycsb_t::{YcsbT, YcsbTConfig};

use crate::cluster::{Beside, NODES, RUN, Run, run_beside};

/// Slots that an engine is left now and then, at most.
const SPARE_MAX: u64 = 4;

/// One engine of a side, and a few clients.
fn few_clients() -> Run {
    Run { engines: 1, replicas: 2, clients_per_node: 6, transactions: 720, ..RUN }
}

/// Who is short of call slots.
#[derive(Clone, Copy, Debug)]
enum Short {
    /// Every engine has a few now and then; the seed draws when.
    NowAndThen { seed: u64 },
    /// A host has so many at any time, and its NIC has enough.
    Hosts { slots: usize },
}

impl Beside for Short {
    fn start<F: Fabric>(&self, fabric: &F, run: &Arc<RunControl>) {
        let here = fabric.here();
        match *self {
            Self::NowAndThen { seed } => {
                let number = u32::from(here.node.0) * 2 + u32::from(here.side == Side::Nic);
                let random = Stream::new(seed, Purpose::Test, number);
                fabric.spawn(starve(fabric.clone(), random, run.clone()));
            }
            Self::Hosts { slots } if here.side == Side::Host => {
                fabric.spawn(reserve(fabric.clone(), slots, run.clone()));
            }
            Self::Hosts { .. } => {}
        }
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
    Arc::new(Churn::new(ChurnConfig { ship, ..ChurnConfig::new(NODES, 8) }))
}

/// Increments of single records: those of a node's own are executed by its host.
fn increments() -> Arc<dyn Workload> {
    Arc::new(YcsbT::new(YcsbTConfig {
        nodes: NODES,
        records_per_node: 1,
        keys_per_txn: 1,
        value_bytes: 8,
        read_fraction: PartsPerMillion(0),
        blind_fraction: PartsPerMillion(0),
        distribution: Distribution::Uniform,
        ship: false,
    }))
}

/// Runs `workload` while every engine is short of slots now and then; how many attempts found none.
fn run<N: CommitNode>(
    config: &N::Config,
    workload: Arc<dyn Workload>,
    faults: FaultPlan,
    seed: u64,
) -> u64 {
    let how = Run { faults, ..few_clients() };
    run_short::<N>(&how, Short::NowAndThen { seed }, config, workload, seed)
}

fn run_short<N: CommitNode>(
    how: &Run,
    short: Short,
    config: &N::Config,
    workload: Arc<dyn Workload>,
    seed: u64,
) -> u64 {
    let ran = run_beside::<N, Short>(how, config, workload, seed, short);
    let leaked = ran.leaked;
    assert!(ran.held(), "seed {seed}, {leaked} leaked: {:#?} {:#?}", ran.anomalies, ran.wrong);
    ran.counts.aborts[Abort::NoResources.index()]
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
    let how =
        Run { clients_per_node: 300, transactions: 3_600, tasks_per_round: 1, ..few_clients() };
    let config = xenic::XenicConfig { local_paths: false, ..xenic::XenicConfig::paper(64, 16) };
    run_short::<xenic::Node>(&how, Short::Hosts { slots: 40 }, &config, churn(false), 0);
}

#[test]
fn xenic_survives_it_under_faults() {
    for seed in 0..30 {
        let combined_ops = match seed % 8 {
            3 => CombinedOps::Keys,
            7 => CombinedOps::None,
            _ => CombinedOps::All,
        };
        let config = xenic::XenicConfig {
            timeout: TIMEOUT,
            combined_ops,
            multi_hop: combined_ops == CombinedOps::All,
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
