//! Xenic under crashes at every position of its transactions: survivors go on, nothing of theirs
//! stays locked, and what a dead node has left undecided is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use nicol_core::faults::{Crash, CrashScope};
use nicol_core::txn::Abort;
use nicol_core::units::Nanos;
use nicol_core::workload::Workload;
use nicol_protocols::commit::Sabotage;
use nicol_protocols::commit::xenic::{ExecuteAt, Node, XenicConfig};
use nicol_workload::churn::{Churn, ChurnConfig};
use nicol_workload::smallbank::{Smallbank, SmallbankConfig};

use crate::cluster::{NODES, Ran, Run, run};

const RUN: Run = Run {
    on: "liquidio3",
    nodes: NODES,
    replicas: 3,
    clients_per_node: 8,
    transactions: 240,
    faults: false,
    crash: None,
};
/// From the middle of the first transactions on, in which step each client is then differs.
const FIRST_CRASH: Nanos = Nanos::from_micros(4);

fn smallbank(accounts: u64) -> Arc<dyn Workload> {
    Arc::new(Smallbank::new(SmallbankConfig::paper(NODES, accounts)))
}

fn churn(ordered: bool) -> Arc<dyn Workload> {
    let rows = 16 * u64::from(NODES);
    Arc::new(Churn::new(ChurnConfig { nodes: NODES, rows, ordered, ship: true }))
}

fn config(workload: &Arc<dyn Workload>) -> XenicConfig {
    XenicConfig {
        timeout: Nanos::from_micros(500),
        ..XenicConfig::paper(workload.records_per_shard() + workload.growth_per_shard(), 16)
    }
}

fn crash(scope: CrashScope, at: Nanos, restarts: bool) -> Option<Crash> {
    let restart_after = restarts.then_some(Nanos::from_micros(80));
    Some(Crash { scope, node: 1, at, restart_after })
}

fn held(how: Run, config: &XenicConfig, workload: &Arc<dyn Workload>, seed: u64) -> Ran {
    let ran = run::<Node>(how, config, workload.clone(), seed);
    let (crash, leaked) = (how.crash, ran.leaked);
    assert!(
        ran.held(),
        "seed {seed}, {crash:?}, {leaked} leaked: {:#?} {:#?}",
        ran.anomalies,
        ran.wrong
    );
    ran
}

fn aborts(ran: &Ran, name: &str) -> u64 {
    let reasons = Abort::NAMES.iter().zip(ran.counts.aborts);
    reasons.filter(|(reason, _)| **reason == name).map(|(_, count)| count).sum()
}

/// Crashes of node 1 at `instants` instants, 1.3 us apart, each way of being down in its turn.
fn at_every_position(
    instants: u64,
    config: &XenicConfig,
    workload: &Arc<dyn Workload>,
) -> BTreeMap<&'static str, u64> {
    let mut seen = BTreeMap::new();
    for position in 0..instants {
        let scopes = [CrashScope::Node, CrashScope::Nic, CrashScope::Host];
        let scope = scopes[position as usize % scopes.len()];
        let at = FIRST_CRASH + Nanos(1_300) * position;
        let how = Run { crash: crash(scope, at, position % 2 == 0), ..RUN };
        let ran = held(how, config, workload, position);
        for name in ["shard_unavailable", "awaits_recovery"] {
            *seen.entry(name).or_default() += aborts(&ran, name);
        }
        for (name, count) in [("unknown", ran.counts.unknown), ("awaiting", ran.awaiting)] {
            *seen.entry(name).or_default() += count;
        }
        for (name, count) in ran.without {
            *seen.entry(name).or_default() += count;
        }
    }
    seen
}

#[test]
fn a_crash_at_every_position_leaves_nothing_locked_but_what_awaits_recovery() {
    let (smallbank, churn) = (smallbank(30), churn(false));
    let paper = config(&smallbank);
    let split = XenicConfig { combined_ops: false, multi_hop: false, ..paper.clone() };
    let at_host = XenicConfig { execute_at: ExecuteAt::Host, ..paper.clone() };
    let at_nic = XenicConfig { multi_hop: false, execute_at: ExecuteAt::Nic, ..paper.clone() };
    for (config, workload, ships) in [
        (paper, &smallbank, true),
        (config(&churn), &churn, true),
        (split, &smallbank, false),
        (at_host, &smallbank, false),
        (at_nic, &smallbank, false),
    ] {
        let seen = at_every_position(30, &config, workload);
        for (name, count) in &seen {
            let ends_at_p2 = *name == "ships_undecided";
            // It takes the crash of every replica.
            let all = *name == "writes_without_replica";
            assert!(*count > 0 || all || ends_at_p2 && !ships, "{config:?}: no {name}: {seen:?}");
        }
    }
}

#[test]
fn scans_meet_what_awaits_recovery_in_words() {
    let workload = churn(true);
    let seen = at_every_position(30, &config(&workload), &workload);
    assert!(seen["awaits_recovery"] > 0 && seen["awaiting"] > 0, "{seen:?}");
}

#[test]
fn messages_that_are_lost_change_nothing_of_it() {
    let workload = smallbank(30);
    for position in 0..30 {
        let at = FIRST_CRASH + Nanos(1_700) * position;
        let how = Run { faults: true, crash: crash(CrashScope::Node, at, true), ..RUN };
        held(how, &config(&workload), &workload, position);
    }
}

/// A write of which no replica is left is not reported as committed.
#[test]
fn what_no_replica_keeps_is_of_unknown_outcome() {
    let workload = smallbank(30);
    let mut without_replica = 0;
    for position in 0..60 {
        let at = FIRST_CRASH + Nanos(700) * position;
        let how = Run { replicas: 1, crash: crash(CrashScope::Node, at, false), ..RUN };
        // Without backups nothing is excused: the primary alone keeps a write.
        let ran = held(how, &config(&workload), &workload, position);
        without_replica += ran.without.get("writes_without_replica").copied().unwrap_or_default();
    }
    assert_eq!(without_replica, 0);
}

#[test]
fn a_crash_of_everything_leaves_every_attempt_unknown_and_nobody_waiting() {
    let workload = smallbank(30);
    let how = Run { crash: crash(CrashScope::All, Nanos::from_micros(30), true), ..RUN };
    let ran = held(how, &config(&workload), &workload, 1);
    assert!(ran.counts.unknown > 0 && ran.awaiting == 0, "{:?}", ran.counts);
}

/// What is broken is caught by something, under crashes of any instant, and what is not holds there.
fn is_caught(sabotage: Sabotage, faults: bool) -> bool {
    let workload = smallbank(8);
    let whole = XenicConfig { local_paths: false, multi_hop: false, ..config(&workload) };
    let broken = XenicConfig { sabotage, ..whole.clone() };
    (0..200).any(|seed| {
        let at = FIRST_CRASH + Nanos(1_100) * seed;
        let how = Run { faults, crash: crash(CrashScope::Node, at, false), ..RUN };
        let caught = !run::<Node>(how, &broken, workload.clone(), seed).held();
        if caught {
            held(how, &whole, &workload, seed);
        }
        caught
    })
}

#[test]
fn a_lock_that_awaits_recovery_and_is_stolen_is_caught() {
    assert!(is_caught(Sabotage::StealsLocks, false));
}

#[test]
fn a_commit_that_does_not_wait_for_a_backup_that_lives_is_caught() {
    assert!(is_caught(Sabotage::ForgetsBackups, true));
}
