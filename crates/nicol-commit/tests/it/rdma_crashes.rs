//! Crashes of a node under the RDMA systems, at every step of transactions: its survivors go on,
//! and what it has left behind is refused in words.

use std::collections::BTreeMap;
use std::sync::Arc;

use nicol_commit::Sabotage;
use nicol_commit::rdma_occ::{LogContent, Node, RdmaOccConfig, SYSTEMS};
use nicol_core::faults::{Crash, CrashScope, FaultFamilies, FaultPlan};
use nicol_core::txn::Abort;
use nicol_core::units::{Bytes, Nanos};
use nicol_workload::churn::{Churn, ChurnConfig};

use crate::cluster::{self, NODES, RUN, Run};

/// When the crashes of a test come: every step of a transaction takes longer than the distance of
/// two of them.
const FIRST: Nanos = Nanos::from_micros(60);
const APART: Nanos = Nanos(700);

/// How a run goes.
#[derive(Clone, Debug)]
struct Case {
    how: Run,
    /// Do other nodes reach records of ordered tables?
    ordered: bool,
}

impl Case {
    /// One crash.
    fn of(on: &'static str, crash: Crash) -> Self {
        let faults = FaultPlan { crashes: vec![crash], ..FaultPlan::none() };
        let (engines, clients_per_node) = (1, 4);
        let transactions = u64::from(NODES) * u64::from(clients_per_node) * 12;
        let how = Run { on, engines, clients_per_node, transactions, faults, ..RUN };
        Self { how, ordered: false }
    }

    fn replicas(mut self, replicas: usize) -> Self {
        self.how.replicas = replicas;
        self
    }

    fn faults(mut self, faults: FaultPlan) -> Self {
        self.how.faults = faults;
        self
    }
}

/// The crash of number `number` in a test.
fn crash(number: u64) -> Crash {
    let at = Nanos(FIRST.0 + number * APART.0);
    Crash { scope: CrashScope::Node, node: 1, at, restart_after: None }
}

/// What several runs have come to, by name: aborts, and what was done without the lost node.
type Seen = BTreeMap<&'static str, u64>;

/// Runs transactions until every client has ended, and judges them. What is wrong.
fn run(config: &RdmaOccConfig, case: &Case, seed: u64, seen: &mut Seen) -> Vec<String> {
    let ordered = case.ordered;
    let workload = Churn::new(ChurnConfig { ordered, ship: false, ..ChurnConfig::new(NODES, 6) });
    let ran = cluster::run::<Node>(&case.how, config, Arc::new(workload), seed);
    for name in Abort::NAMES {
        *seen.entry(name).or_default() += ran.aborted(name);
    }
    let counts = [("unknown", ran.counts.unknown), ("locks_awaiting_recovery", ran.awaiting)];
    for (name, count) in ran.without.into_iter().chain(counts) {
        *seen.entry(name).or_default() += count;
    }
    let leaked = (ran.leaked > 0).then(|| format!("{} leaked", ran.leaked));
    ran.wrong.into_iter().chain(ran.anomalies).chain(leaked).collect()
}

fn config(system: &str) -> RdmaOccConfig {
    RdmaOccConfig::named(system, 64, 16).unwrap()
}

/// As the public code logs, in logs that are always nearly full: what a lost coordinator has logged
/// must not fill them for ever. AMB-44
fn acknowledging(system: &str) -> RdmaOccConfig {
    let (log_content, log_acks, log) = (LogContent::Whole, true, Bytes(1_024));
    RdmaOccConfig { log_content, log_acks, log, ..config(system) }
}

/// Crashes at `count` instants that are [`APART`]; what was seen in all runs.
fn crashes(config: &RdmaOccConfig, on: &'static str, replicas: usize, count: u64) -> Seen {
    let mut seen = Seen::new();
    for number in 0..count {
        let case =
            Case { ordered: number % 4 == 3, ..Case::of(on, crash(number)).replicas(replicas) };
        let wrong = run(config, &case, number, &mut seen);
        assert_eq!(wrong, [""; 0], "{number}: {case:?} {config:?}");
    }
    seen
}

#[test]
fn survivors_go_on_whatever_step_a_crash_meets() {
    for system in SYSTEMS {
        for on in ["connectx5", "liquidio3"] {
            let seen = crashes(&config(system), on, 3, 40);
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
fn survivors_go_on_where_logs_are_whole_and_acknowledged() {
    for system in ["farm", "fasst", "drtm-h"] {
        let seen = crashes(&acknowledging(system), "connectx5", 3, 40);
        for name in ["logs_excused", "locks_awaiting_recovery", "shard_unavailable"] {
            assert!(seen[name] > 0, "{system} has never seen {name}: {seen:?}");
        }
    }
}

#[test]
fn a_shard_without_backups_is_refused_when_its_node_is_gone() {
    for system in SYSTEMS {
        let seen = crashes(&config(system), "connectx5", 1, 40);
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
        let at = [8_116_675, 8_460_537].map(Nanos);
        let restart_after = Some(Nanos(229_376));
        let twice = at.map(|at| Crash { scope: CrashScope::Host, node: 2, at, restart_after });
        let faults = FaultPlan { crashes: twice.to_vec(), ..FaultPlan::messages(162) };
        let case = Case { ordered: false, ..case }.replicas(2).faults(faults);
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
            let case = Case { ordered: seed % 5 == 4, ..Case::of(on, crash(seed)) }
                .replicas(2 + seed as usize % 2)
                .faults(families.draw(seed));
            let of = if seed % 3 == 2 { acknowledging(system) } else { config(system) };
            let config = RdmaOccConfig { timeout: Nanos::from_micros(500), ..of };
            let wrong = run(&config, &case, seed, &mut seen);
            assert_eq!(wrong, [""; 0], "{system}, seed {seed}: {case:?}");
        }
        assert!(seen["unknown"] > 20 && seen["shard_unavailable"] > 20, "{system}: {seen:?}");
    }
}

/// A write whose primary and only backup are lost while it is logged is not reported as committed.
#[test]
fn the_crash_of_every_replica_leaves_outcomes_unknown() {
    for system in SYSTEMS {
        let mut seen = Seen::new();
        for number in 0..40 {
            let both = [1, 2].map(|node| Crash { node, ..crash(number) });
            let faults = FaultPlan { crashes: both.to_vec(), ..FaultPlan::none() };
            let case = Case::of("liquidio3", crash(number)).replicas(2).faults(faults);
            let wrong = run(&config(system), &case, number, &mut seen);
            assert_eq!(wrong, [""; 0], "{system}, {number}: {case:?}");
        }
        assert!(seen["unknown"] > 20 && seen["shard_unavailable"] > 20, "{system}: {seen:?}");
    }
}

#[test]
fn a_commit_that_does_not_wait_for_a_backup_that_lives_is_caught() {
    for system in ["farm", "fasst", "drtm-r"] {
        let timeout = Nanos::from_micros(500);
        let whole = RdmaOccConfig { timeout, ..config(system) };
        let broken = RdmaOccConfig { sabotage: Sabotage::ForgetsBackups, ..whole.clone() };
        let caught = (0..200).any(|seed| {
            let mut faults = FaultPlan::messages(seed);
            faults.crashes.push(crash(seed));
            let case = Case::of("connectx5", crash(seed)).faults(faults);
            let caught = !run(&broken, &case, seed, &mut Seen::new()).is_empty();
            if caught {
                assert_eq!(run(&whole, &case, seed, &mut Seen::new()), [""; 0], "seed {seed}");
            }
            caught
        });
        assert!(caught, "{system}: nobody saw what a backup lacks");
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
