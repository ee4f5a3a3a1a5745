//! Engines: transactions on the many cores of one node.

mod settings;

use nicol_core::faults::{Crash, CrashScope, FaultPlan};
use nicol_core::system::SystemNode;
use nicol_core::units::Nanos;
use nicol_engines::{
    Cicada, EngineConfig, Node, Protocol, Sabotage, Silo, TicToc, TwoPhaseLocking,
};
use nicol_schedule::QUEUE_MAX;

use crate::config::{BenchConfig, Length};
use crate::families::commit;
use crate::system::System;
use crate::workloads::WorkloadSpec;
use settings::names_of;

/// The systems of the family.
pub(crate) static SYSTEMS: &[System] = &[SILO, TWO_PHASE_LOCKING, TICTOC, CICADA];

const SILO: System = engine::<Silo>("silo", "Silo, SOSP '13", || names_of(OPTIMISTIC));
const TWO_PHASE_LOCKING: System =
    engine::<TwoPhaseLocking>("2pl", "Bernstein et al., 1987", || names_of(LOCKING));
const TICTOC: System =
    engine::<TicToc>("tictoc", "TicToc, SIGMOD '16", || names_of(WITH_TIMESTAMPS));
const CICADA: System = engine::<Cicada>("cicada", "Cicada, SIGMOD '17", || names_of(MULTI_VERSION));

/// The ways to break an optimistic engine.
const OPTIMISTIC: &[Sabotage] = &[
    Sabotage::SkipsValidation,
    Sabotage::TearsReads,
    Sabotage::IgnoresLocks,
    Sabotage::ForgetsLeaves,
    Sabotage::WrongEpoch,
    Sabotage::FreesEarly,
    Sabotage::KeepsLocks,
    Sabotage::AcknowledgesEarly,
    Sabotage::ClaimsEarly,
];

/// The ways to break an optimistic engine that orders by timestamps.
const WITH_TIMESTAMPS: &[Sabotage] = &[
    Sabotage::SkipsValidation,
    Sabotage::TearsReads,
    Sabotage::IgnoresLocks,
    Sabotage::ForgetsLeaves,
    Sabotage::WrongEpoch,
    Sabotage::FreesEarly,
    Sabotage::KeepsLocks,
    Sabotage::ForgetsReaders,
    Sabotage::AcknowledgesEarly,
    Sabotage::ClaimsEarly,
];

/// The ways to break locking.
const LOCKING: &[Sabotage] = &[
    Sabotage::SkipsValidation,
    Sabotage::IgnoresLocks,
    Sabotage::ForgetsLeaves,
    Sabotage::WrongEpoch,
    Sabotage::AlwaysWaits,
    Sabotage::FreesEarly,
    Sabotage::KeepsLocks,
    Sabotage::AcknowledgesEarly,
    Sabotage::ClaimsEarly,
];

/// The ways to break an engine that keeps several versions.
const MULTI_VERSION: &[Sabotage] = &[
    Sabotage::SkipsValidation,
    Sabotage::IgnoresLocks,
    Sabotage::ForgetsLeaves,
    Sabotage::WrongEpoch,
    Sabotage::FreesEarly,
    Sabotage::ForgetsReaders,
    Sabotage::ForgetsSeen,
    Sabotage::AcknowledgesEarly,
    Sabotage::ClaimsEarly,
];

const fn engine<P: Protocol>(
    name: &'static str,
    source: &'static str,
    sabotages: fn() -> Vec<&'static str>,
) -> System
where
    Node<P>: SystemNode<Config = EngineConfig>,
{
    System {
        family: "engine",
        replication: "none",
        scans: "all",
        mirrors_engines: false,
        one_server: true,
        returns: false,
        synced_log: true,
        single: None,
        survives: "stalls; a crash of its node loses everything, but for what log=on has in a log",
        // What stands in the way of an attempt differs from engine to engine.
        coverage: &[],
        coverage_of_crashes: &[],
        sabotages,
        trials,
        variation: |_, _, _| Vec::new(),
        serve: Err("its records have a fixed size; xenic's grow"),
        ..commit::system::<Node<P>>(name, source)
    }
}

/// Runs in which a broken protocol shows: few records that are soon deleted and freed, many cores.
fn trials(system: &System, _: &str, seed: u64) -> Vec<BenchConfig> {
    let trial = |workload: &str, settings: &[&str], transactions| {
        let mut spec = WorkloadSpec::named(workload);
        if !spec.is_tpcc() {
            spec.records = Some(FEW);
        }
        spec.shrink();
        BenchConfig {
            nodes: 1,
            replicas: 1,
            host_engines: Some(6),
            nic_engines: Some(1),
            clients: Some(6),
            length: Some(Length::Transactions(transactions)),
            settings: settings.iter().map(ToString::to_string).collect(),
            warmup: Some(Nanos::ZERO),
            ..BenchConfig::new(system.name, spec, "innova2", seed)
        }
    };
    let mut trials = vec![
        trial("smallbank", &["epoch_us=5"], SHORT),
        trial("churn-ordered", &["epoch_us=1", "stall_us=2"], SHORT),
        trial("churn", &["epoch_us=1", "stall_us=2"], SHORT),
        trial("churn", &["epoch_us=1", "stall_us=60"], SHORT),
    ];
    // Here nothing but the versions of leaves tells of a phantom.
    let mut phantoms = trial("churn-ordered", &["epoch_us=1", "stall_us=20"], SHORT);
    phantoms.workload.scan_first = Some(true);
    trials.push(phantoms);
    // A crash of everything, after which the log is read back.
    let at = Nanos::from_micros(150 + seed % 16 * 20);
    let crash = Crash { scope: CrashScope::All, node: 0, at, restart_after: None };
    trials.push(BenchConfig {
        on: "innova2:persist.latency=5us".to_owned(),
        fault_plan: Some(FaultPlan { crashes: vec![crash], ..FaultPlan::none() }),
        clients: Some(24),
        length: Some(Length::Transactions(100 * SHORT)),
        ..trial("smallbank", &["log=on", "epoch_us=20", "stall_us=4"], SHORT)
    });
    if seed.is_multiple_of(4) {
        // More clients than two workers' queues take, behind a scheduler that counts a request
        // until its client sends the next.
        let settings = ["scheduler=alnico", "completion=slot", "epoch_us=1000"];
        trials.push(BenchConfig {
            client_nodes: 1,
            host_engines: Some(2),
            clients: Some(MANY),
            ..trial("smallbank", &settings, 4 * MANY as u64)
        });
        // Memory that is freed too early must have become another record while somebody stalls.
        trials.push(trial("churn-ordered", &["epoch_us=1", "stall_us=60"], LONG));
    }
    if seed.is_multiple_of(2) {
        // An epoch that is read too early must end while somebody stalls behind it.
        trials.push(trial("churn", &["epoch_us=1", "stall_us=60"], LONG));
        trials.push(trial("churn", &["epoch_us=1", "stall_us=200"], LONG));
    }
    if seed % 32 == 31 {
        trials.push(trial("tpcc", &["epoch_us=20"], SHORT));
    }
    if system.name == "cicada" && seed.is_multiple_of(2) {
        // Timestamps hide most of what becomes of a record that is freed too early: who has found
        // it seldom sees a version of the next one.
        let mut hidden = trial("churn-ordered", &["epoch_us=1", "stall_us=10"], 4 * LONG);
        hidden.workload.scan_first = Some(true);
        (hidden.host_engines, hidden.clients) = (Some(12), Some(12));
        trials.push(hidden);
    }
    trials
}

/// Records of a trial: so few that transactions meet.
const FEW: u64 = 12;
/// Clients of a trial of a scheduler: more than two queues have places.
const MANY: usize = 2 * QUEUE_MAX + 100;
/// Transactions of a trial.
const SHORT: u64 = 500;
/// Transactions of one that looks for what is rare.
const LONG: u64 = 20 * SHORT;
