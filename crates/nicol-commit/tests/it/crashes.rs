//! Xenic under crashes at every position of its transactions: survivors go on, nothing of theirs
//! stays locked, and what a dead node has left undecided is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use nicol_commit::Sabotage;
use nicol_commit::rdma_occ::{self, RdmaOccConfig};
use nicol_commit::xenic::{CombinedOps, ExecuteAt, Node, XenicConfig};
use nicol_core::commit::CommitNode;
use nicol_core::engine::Loss;
use nicol_core::faults::{Crash, CrashScope, FaultPlan};
use nicol_core::ids::NodeId;
use nicol_core::system::{Sequential, load_nodes};
use nicol_core::units::Nanos;
use nicol_core::view::View;
use nicol_core::workload::Workload;
use nicol_workload::churn::{Churn, ChurnConfig};
use nicol_workload::smallbank::{Smallbank, SmallbankConfig};

use crate::cluster::{NODES, RUN, Ran, Run, run};

const TRANSACTIONS: u64 = 240;
/// From the middle of the first transactions on, in which step each client is then differs.
const FIRST_CRASH: Nanos = Nanos::from_micros(4);

pub fn smallbank(accounts: u64) -> Arc<dyn Workload> {
    Arc::new(Smallbank::new(SmallbankConfig::paper(NODES, accounts)))
}

pub fn churn(ordered: bool) -> Arc<dyn Workload> {
    let rows = 16 * u64::from(NODES);
    Arc::new(Churn::new(ChurnConfig { ordered, ..ChurnConfig::new(NODES, rows) }))
}

pub fn config(workload: &Arc<dyn Workload>) -> XenicConfig {
    XenicConfig {
        timeout: Nanos::from_micros(500),
        ..XenicConfig::paper(workload.records_per_shard() + workload.growth_per_shard(), 16)
    }
}

pub fn crash(scope: CrashScope, node: u16, at: Nanos, restarts: bool) -> Crash {
    let restart_after = restarts.then_some(Nanos::from_micros(80));
    Crash { scope, node, at, restart_after }
}

/// A run with these crashes, and no other faults.
pub fn with(crashes: Vec<Crash>) -> Run {
    Run { transactions: TRANSACTIONS, faults: FaultPlan { crashes, ..FaultPlan::none() }, ..RUN }
}

fn held(how: &Run, config: &XenicConfig, workload: &Arc<dyn Workload>, seed: u64) -> Ran {
    let ran = run::<Node>(how, config, workload.clone(), seed);
    let (crashes, leaked) = (&how.faults.crashes, ran.leaked);
    assert!(
        ran.held(),
        "seed {seed}, {crashes:?}, {leaked} leaked: {:#?} {:#?}",
        ran.anomalies,
        ran.wrong
    );
    ran
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
        let how = with(vec![crash(scope, 1, at, position % 2 == 0)]);
        let ran = held(&how, config, workload, position);
        for name in ["shard_unavailable", "awaits_recovery"] {
            *seen.entry(name).or_default() += ran.aborted(name);
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
    let split = XenicConfig { combined_ops: CombinedOps::None, multi_hop: false, ..paper.clone() };
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

/// Its NIC looks whether there is space for what it has executed, and goes on without it.
#[test]
fn a_host_that_is_lost_under_its_local_transactions_takes_nothing_with_it_that_its_nic_asks() {
    let workload = churn(false);
    for position in 60..95 {
        let at = FIRST_CRASH + Nanos(37) * position;
        let how = with(vec![crash(CrashScope::Host, 1, at, false)]);
        held(&how, &config(&workload), &workload, position);
    }
}

/// On hardware whose NIC engines are cores of the host, the next life of a NIC begins at once.
#[test]
fn a_nic_that_comes_back_before_anybody_knows_leaves_no_work_behind() {
    let workload = smallbank(40);
    for position in 0..40 {
        let at = Nanos::from_micros(5) + Nanos(7_000) * position;
        let restart_after = Some(Nanos::from_micros(1 + position * 40));
        let crash = Crash { restart_after, ..crash(CrashScope::Nic, position as u16, at, true) };
        for on in ["connectx5", "liquidio3"] {
            let how = Run { on, transactions: 2_000, ..with(vec![crash]) };
            held(&how, &config(&workload), &workload, position);
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
        let mut how = with(vec![crash(CrashScope::Node, 1, at, true)]);
        how.faults = FaultPlan { crashes: how.faults.crashes, ..FaultPlan::messages(position) };
        held(&how, &config(&workload), &workload, position);
    }
}

/// A write of which no replica is left is not reported as committed: its primary is lost between
/// EXECUTE and LOG, its backup before or after.
#[test]
fn what_no_replica_keeps_is_of_unknown_outcome() {
    let workload = smallbank(30);
    let mut without_replica = 0;
    for position in 0..60 {
        let at = FIRST_CRASH + Nanos(700) * position;
        let both = [1, 2].map(|node| crash(CrashScope::Node, node, at, false));
        let how = Run { replicas: 2, ..with(both.to_vec()) };
        let ran = held(&how, &config(&workload), &workload, position);
        without_replica += ran.without.get("writes_without_replica").copied().unwrap_or_default();
    }
    assert!(without_replica > 0, "every write found a replica");
}

#[test]
fn a_crash_of_everything_leaves_every_attempt_unknown_and_nobody_waiting() {
    let workload = smallbank(30);
    let how = with(vec![crash(CrashScope::All, 0, Nanos::from_micros(30), true)]);
    let ran = held(&how, &config(&workload), &workload, 1);
    assert!(ran.counts.unknown > 0 && ran.awaiting == 0, "{:?}", ran.counts);
}

/// What is broken is caught by something, under crashes of any instant, and what is not holds
/// there.
fn is_caught(sabotage: Sabotage, faults: bool) -> bool {
    let workload = smallbank(8);
    let whole = XenicConfig { local_paths: false, multi_hop: false, ..config(&workload) };
    let broken = XenicConfig { sabotage, ..whole.clone() };
    (0..200).any(|seed| {
        let at = FIRST_CRASH + Nanos(1_100) * seed;
        let mut how = with(vec![crash(CrashScope::Node, 1, at, false)]);
        if faults {
            how.faults = FaultPlan { crashes: how.faults.crashes, ..FaultPlan::messages(seed) };
        }
        let caught = !run::<Node>(&how, &broken, workload.clone(), seed).held();
        if caught {
            held(&how, &whole, &workload, seed);
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

/// Uses a node's structures after these sides of it have crashed.
fn use_after<N: CommitNode>(
    config: &N::Config,
    workload: &Arc<dyn Workload>,
    host: bool,
    nic: bool,
) {
    let view = View::new(usize::from(NODES), 3, 1, 1).unwrap();
    let nodes = load_nodes::<N>(&view, config, &**workload, &Sequential).unwrap();
    assert!(nodes[0].is_settled());
    nodes[0].crashed(&Loss { node: NodeId(0), host, nic });
    let _used = nodes[0].is_settled();
}

#[test]
#[should_panic(expected = "in the memory of a Nic was lost in a crash and is used afterwards")]
fn an_index_that_is_used_after_its_nic_has_crashed_is_caught() {
    let workload = smallbank(30);
    use_after::<Node>(&config(&workload), &workload, false, true);
}

#[test]
#[should_panic(expected = "in the memory of a Host was lost in a crash and is used afterwards")]
fn a_table_that_is_used_after_its_host_has_crashed_is_caught() {
    let workload = smallbank(30);
    let records = workload.records_per_shard() + workload.growth_per_shard();
    use_after::<rdma_occ::Node>(&RdmaOccConfig::farm(records, 16), &workload, true, false);
}
