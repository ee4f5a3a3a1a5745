//! Xenic with `recovery=prepared` under crashes: what a lost node left undecided is decided by the
//! survivors, and no lock of it stays.

use std::sync::Arc;

use nicol_commit::Sabotage;
use nicol_commit::xenic::{CombinedOps, ExecuteAt, Node, Recovery, XenicConfig};
use nicol_core::faults::{CrashScope, FaultPlan};
use nicol_core::units::Nanos;
use nicol_core::workload::Workload;

use crate::cluster::{Ran, Run, run};
use crate::crashes::{churn, config, crash, smallbank, with};

/// When the survivors learn of a crash in the first 2 ms: the lost node had a lease for 10 ms, and
/// the view service looks every 2 ms.
const LEARNT: Nanos = Nanos::from_micros(12_020);

/// How often the view service looks who asks.
const LOOKS_EVERY: Nanos = Nanos::from_millis(2);

fn prepared(workload: &Arc<dyn Workload>) -> XenicConfig {
    XenicConfig { recovery: Recovery::Prepared, ..config(workload) }
}

/// Nothing awaits a recovery any more; how many transactions the survivors have decided.
fn recovers(how: &Run, config: &XenicConfig, workload: &Arc<dyn Workload>, seed: u64) -> Ran {
    let ran = run::<Node>(how, config, workload.clone(), seed);
    let crashes = &how.faults.crashes;
    assert!(ran.held(), "seed {seed}, {crashes:?}: {:#?} {:#?}", ran.anomalies, ran.wrong);
    assert_eq!(ran.awaiting, 0, "seed {seed}, {crashes:?}: somebody still waits");
    // A new life of the lost node tells the service of the loss before its lease has ended.
    let comes_back = crashes.iter().all(|crash| crash.restart_after.is_some());
    let learnt = if comes_back { LOOKS_EVERY } else { LEARNT };
    let again = ran.to_inherited.iter().any(|&at| at > learnt.0);
    assert!(again, "seed {seed}, {crashes:?}: no lost shard is served again");
    ran
}

fn decided(ran: &Ran) -> u64 {
    ran.without.get("decided_for_the_lost").copied().unwrap_or_default()
}

#[test]
fn what_a_lost_coordinator_left_is_decided_whatever_step_it_was_in() {
    let (smallbank, churn, ordered) = (smallbank(30), churn(false), churn(true));
    let base = prepared(&smallbank);
    let split = XenicConfig { combined_ops: CombinedOps::None, multi_hop: false, ..base.clone() };
    let at_nic = XenicConfig { multi_hop: false, execute_at: ExecuteAt::Nic, ..base.clone() };
    for (config, workload) in [
        (base, &smallbank),
        (prepared(&churn), &churn),
        (prepared(&ordered), &ordered),
        (split, &smallbank),
        (at_nic, &smallbank),
    ] {
        let mut of_all = 0;
        for position in 0..20 {
            let at = Nanos::from_micros(4) + Nanos(1_300) * position;
            let how = with(vec![crash(CrashScope::Node, 1, at, position % 2 == 0)]);
            of_all += decided(&recovers(&how, &config, workload, position));
        }
        assert!(of_all > 20, "{config:?}: {of_all} were left");
    }
}

/// Log devices that take their time let the load last beyond the recovery: what it has decided is
/// read, and written, by others.
#[test]
fn clients_go_on_with_what_a_recovery_has_decided() {
    let workload = smallbank(10);
    let timeout = Nanos::from_millis(5);
    let config = XenicConfig { timeout, ..prepared(&workload) };
    let mut of_all = 0;
    for position in 0..5 {
        let at = Nanos::from_micros(1_000) + Nanos(130_700) * position;
        let slow = with(vec![crash(CrashScope::Node, 1, at, false)]);
        let how = Run { log_device: Some(Nanos::from_micros(200)), transactions: 2_400, ..slow };
        let ran = recovers(&how, &config, &workload, position);
        assert!(ran.ended > LEARNT * 2, "it ended at {:?}", ran.ended);
        of_all += decided(&ran);
    }
    assert!(of_all > 10, "{of_all} were left");
}

/// The survivor that recovers is lost, too, at every instant of its recovery. Of five nodes these
/// two are not the backups of one shard.
#[test]
fn a_recovery_whose_leader_is_lost_begins_anew() {
    let workload = smallbank(30);
    let mut of_all = 0;
    for position in 0..40 {
        let first = crash(CrashScope::Node, 2, Nanos::from_micros(9 + position % 5), false);
        let second = crash(CrashScope::Node, 0, LEARNT + Nanos(700) * position, false);
        let how = Run { nodes: 5, ..with(vec![first, second]) };
        of_all += decided(&recovers(&how, &prepared(&workload), &workload, position));
    }
    assert!(of_all > 20, "{of_all} were left");
}

#[test]
fn messages_that_are_lost_and_repeated_change_nothing_of_it() {
    let workload = smallbank(30);
    for position in 0..20 {
        let at = Nanos::from_micros(4) + Nanos(1_700) * position;
        let mut how = with(vec![crash(CrashScope::Node, 1, at, true)]);
        how.faults = FaultPlan { crashes: how.faults.crashes, ..FaultPlan::messages(position) };
        recovers(&how, &prepared(&workload), &workload, position);
    }
}

/// Under crashes of any instant it is caught, and what is whole holds there.
fn is_caught(sabotage: Sabotage) -> bool {
    let workload = smallbank(8);
    let whole = XenicConfig { local_paths: false, multi_hop: false, ..prepared(&workload) };
    let broken = XenicConfig { sabotage, ..whole.clone() };
    (0..200).any(|seed| {
        let at = Nanos::from_micros(4) + Nanos(1_100) * seed;
        let how = with(vec![crash(CrashScope::Node, 1, at, false)]);
        let ran = run::<Node>(&how, &broken, workload.clone(), seed);
        let caught = !ran.held() || ran.awaiting > 0;
        if caught {
            recovers(&how, &whole, &workload, seed);
        }
        caught
    })
}

#[test]
fn what_is_applied_before_its_decision_is_caught() {
    assert!(is_caught(Sabotage::AppliesUndecided));
}
