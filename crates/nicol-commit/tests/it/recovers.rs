//! Xenic with `recovery=prepared` under crashes: what a lost node left undecided is decided by the
//! survivors, no lock of it stays, and a backup leads its shard.

use std::sync::Arc;

use nicol_commit::Sabotage;
use nicol_commit::xenic::{CombinedOps, ExecuteAt, LogAtPrimary, Node, XenicConfig};
use nicol_core::faults::{CrashScope, FaultPlan, Partition, Stall};
use nicol_core::ids::NodeId;
use nicol_core::units::Nanos;
use nicol_core::view::NodeSet;
use nicol_core::workload::Workload;

use crate::cluster::{Ran, Run, run};
use crate::crashes::{churn, config, crash, smallbank, with};

/// When the survivors learn of a crash in the first 2 ms: the lost node had a lease for 10 ms, and
/// the view service looks every 2 ms.
const LEARNT: Nanos = Nanos::from_micros(12_020);

/// The second NIC engine of node 2, and its second host engine.
const NIC_OF_2: u32 = 11;
const HOST_OF_2: u32 = 9;

/// How often the view service looks who asks.
const LOOKS_EVERY: Nanos = Nanos::from_millis(2);

fn prepared(workload: &Arc<dyn Workload>) -> XenicConfig {
    config(workload).that_recovers()
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

/// Of one backup each, the lost node was that of shard 0: LOGs of what it coordinated itself, and
/// told its clients of, only the primary has. On all ways of transactions. (AMB-50)
#[test]
fn what_a_coordinator_told_of_that_was_the_last_backup_is_kept_by_the_primary() {
    let (smallbank, ordered) = (smallbank(30), churn(true));
    let base = prepared(&smallbank);
    let ordinary = XenicConfig { multi_hop: false, ..base.clone() };
    let ways = [(base, &smallbank), (ordinary, &smallbank), (prepared(&ordered), &ordered)];
    for (config, workload) in ways {
        let paper = XenicConfig { log_at_primary: LogAtPrimary::Paper, ..config.clone() };
        let mut lost = 0;
        for position in 0..16 {
            let at = Nanos::from_micros(4) + Nanos(1_500) * position;
            let crashed = with(vec![crash(CrashScope::Node, 1, at, position % 2 == 0)]);
            let how = Run { replicas: 2, ..crashed };
            recovers(&how, &config, workload, position);
            lost += run::<Node>(&how, &paper, workload.clone(), position).awaiting;
        }
        assert!(lost > 0, "{config:?}: as printed, nothing was lost");
    }
}

/// Under crashes of any instant it is caught, and what is whole holds there.
fn is_caught(sabotage: Sabotage, workload: &Arc<dyn Workload>, how: impl Fn(u64) -> Run) -> bool {
    let whole = XenicConfig { local_paths: false, multi_hop: false, ..prepared(workload) };
    let broken = XenicConfig { sabotage, ..whole.clone() };
    (0..200).any(|seed| {
        let how = how(seed);
        let ran = run::<Node>(&how, &broken, workload.clone(), seed);
        let caught = !ran.held() || ran.awaiting > 0;
        if caught {
            let ran = run::<Node>(&how, &whole, workload.clone(), seed);
            let (anomalies, wrong) = (&ran.anomalies, &ran.wrong);
            assert!(ran.held(), "{sabotage:?}, seed {seed}: {anomalies:#?} {wrong:#?}");
            assert_eq!(ran.awaiting, 0, "{sabotage:?}, seed {seed}: somebody still waits");
        }
        caught
    })
}

/// Node 1 is lost, at another instant in each run.
fn lost(seed: u64) -> Run {
    let at = Nanos::from_micros(4) + Nanos(1_100) * seed;
    with(vec![crash(CrashScope::Node, 1, at, false)])
}

/// It is lost, and messages are, so that backups differ in what they have logged.
fn lost_with_messages(seed: u64) -> Run {
    let mut how = lost(seed);
    how.faults = FaultPlan { crashes: how.faults.crashes, ..FaultPlan::messages(seed) };
    how
}

/// It is lost, and comes back, so that a view tells soon; an engine of another node stands still
/// from so long `before` until the shard is served again.
fn lost_while_stalled(engine: u32, before: Nanos) -> impl Fn(u64) -> Run {
    move |seed| {
        let at = Nanos::from_micros(4) + Nanos(1_100) * seed;
        let mut how = with(vec![crash(CrashScope::Node, 1, at, true)]);
        let from = Nanos(at.0 - before.0);
        let span = LOOKS_EVERY + Nanos::from_millis(1);
        how.faults.stalls = vec![Stall { engine, from, span }];
        how.faults.quiet_after = LOOKS_EVERY * 2;
        how
    }
}

#[test]
fn what_a_new_primary_must_not_do_is_caught() {
    let workload = smallbank(8);
    for sabotage in [Sabotage::AppliesUndecided, Sabotage::ServesAtOnce, Sabotage::RebuildsNoLocks]
    {
        assert!(is_caught(sabotage, &workload, lost), "{sabotage:?}");
    }
    assert!(is_caught(Sabotage::RestartsVersions, &churn(false), lost));
}

/// Of the first a coordinator stands still between EXECUTE and LOG; of the second a host, which has
/// not read the only record of its kind; of the third messages are lost.
#[test]
fn what_a_survivor_must_not_do_is_caught() {
    let workload = smallbank(8);
    let stalled = lost_while_stalled(NIC_OF_2, Nanos::from_micros(1));
    assert!(is_caught(Sabotage::TakesOverruled, &workload, stalled));
    let stalled = lost_while_stalled(HOST_OF_2, Nanos::from_micros(2));
    let one_backup = |seed| Run { replicas: 2, ..stalled(seed) };
    assert!(is_caught(Sabotage::ReportsUnread, &workload, one_backup));
    assert!(is_caught(Sabotage::DecidesUnreplicated, &workload, lost_with_messages));
}

/// The node is not lost, but cut off for longer than its lease: it acts on as the primary until
/// then, and is none when it is back.
#[test]
fn a_primary_that_was_cut_off_serves_nothing_beside_its_successor() {
    let workload = smallbank(30);
    for position in 0..20 {
        let from = Nanos::from_micros(4) + Nanos(1_700) * position;
        let until = from + Nanos::from_millis(25);
        let (side, one_way) = (NodeSet::from_iter([NodeId(1)]), position % 2 == 1);
        let mut how = with(Vec::new());
        how.faults.partitions = vec![Partition { from, until, side, one_way }];
        how.faults.quiet_after = Nanos::from_millis(30);
        let how = Run { transactions: 2_400, ..how };
        recovers(&how, &prepared(&workload), &workload, position);
    }
}

/// Of five nodes the primary of shard 1 is lost, and then the backup that was to lead it, at every
/// instant of its coming to do so. Of shard 0 they were both backups: what their coordinators have
/// written there, only its primary has. (AMB-50)
#[test]
fn a_successor_that_is_lost_has_one_itself() {
    let workload = smallbank(30);
    for position in 0..40 {
        let first = crash(CrashScope::Node, 1, Nanos::from_micros(9 + position % 5), false);
        let at = LEARNT + Nanos(700) * position;
        let second = crash(CrashScope::Node, 2, at, false);
        let how = Run { nodes: 5, ..with(vec![first, second]) };
        let ran = recovers(&how, &prepared(&workload), &workload, position);
        let again = ran.to_inherited.iter().any(|&at| at > (LEARNT * 2).0);
        assert!(again, "position {position}: the shard is not served again");
    }
}
