//! Views and leases: who is given up, who learns of it, and that nobody serves without a lease.

use std::sync::Arc;

use nicol_core::fabric::conformance::AskingNode1;
use nicol_core::faults::{Crash, CrashScope, FaultPlan, Partition};
use nicol_core::ids::{EngineId, Epoch, NodeId, Side};
use nicol_core::units::Nanos;
use nicol_core::view::{NodeSet, View};
use nicol_sim::view_service::{LEASE, RENEWAL, SERVICE_LATENCY};
use nicol_sim::{CrashSabotage, Profile, SimCluster, SimConfig};

/// Runs for 60 ms with a service of views.
fn run(faults: FaultPlan, sabotage: CrashSabotage) -> (AskingNode1, SimCluster) {
    let view = View::new(3, 2, 1, 1).unwrap();
    let profile = Arc::new(Profile::load("liquidio3").unwrap());
    let config = SimConfig::new(view, profile, 1);
    let config = SimConfig { faults, sabotage, view_service: true, ..config };
    let cluster = SimCluster::new(config);
    let asking = AskingNode1::new(Nanos::from_micros(50));
    cluster.start(&Arc::new(asking.clone()));
    cluster.run_until(&mut |_| false, Nanos::from_millis(60));
    (asking, cluster)
}

/// The service, and node 2, cannot be reached from nodes 0 and 1 between these instants: node 0,
/// who asks, is on node 1's side of the cut.
fn cut(from: Nanos, until: Nanos) -> FaultPlan {
    let side = [NodeId(0), NodeId(1)].into_iter().collect::<NodeSet>();
    let partitions = vec![Partition { from, until, side, one_way: false }];
    FaultPlan { partitions, ..FaultPlan::none() }
}

const CUT: Nanos = Nanos::from_millis(5);
/// Node 1 has its last lease by then.
const LAST_LEASE_ENDS: Nanos = Nanos(CUT.0 + LEASE.0);

#[test]
fn a_node_that_is_cut_off_from_the_service_serves_nobody_after_its_lease() {
    let (asking, _cluster) = run(cut(CUT, Nanos::from_millis(50)), CrashSabotage::None);
    let served = asking.served();
    assert!(served.iter().any(|&at| at > CUT + RENEWAL), "it goes on while it has a lease");
    let late: Vec<_> = served.iter().filter(|&&at| at >= LAST_LEASE_ENDS).collect();
    assert_eq!(late, [&Nanos::ZERO; 0], "a stale answer");
}

#[test]
fn an_endless_lease_is_caught() {
    let (asking, _cluster) = run(cut(CUT, Nanos::from_millis(50)), CrashSabotage::LeaseEndless);
    let served = asking.served();
    assert!(served.iter().any(|&at| at >= LAST_LEASE_ENDS));
}

#[test]
fn a_short_cut_costs_nobody_its_place() {
    let (asking, cluster) = run(cut(CUT, CUT + LEASE / 2), CrashSabotage::None);
    assert_eq!(asking.seen(), None, "no view but the first");
    let last = asking.served().last().copied();
    assert!(last > Some(Nanos::from_millis(59)));
    assert!(cluster.engines().iter().all(|engine| engine.stats().unleased == 0));
}

#[test]
fn a_crashed_node_is_given_up_and_comes_back_as_a_new_incarnation() {
    let at = Nanos::from_millis(5);
    let crash = |restart_after| {
        let crash = Crash { scope: CrashScope::Node, node: 1, at, restart_after };
        FaultPlan { crashes: vec![crash], ..FaultPlan::none() }
    };
    let (asking, cluster) = run(crash(None), CrashSabotage::None);
    let (epoch, seen) = asking.seen().expect("a view without the node");
    assert_eq!(epoch, Epoch::FIRST.next(), "both sides in one view");
    let latest = at + LEASE + RENEWAL + SERVICE_LATENCY * 3 + Nanos::from_micros(1);
    assert!(seen > at && seen <= latest, "{seen:?}");
    assert!(asking.unreachable() > 0, "calls to the dead end");
    let other = cluster.engine(EngineId::host(NodeId(0), 0)).unwrap();
    assert!(other.is_fenced(NodeId(1), Side::Nic) && other.is_fenced(NodeId(1), Side::Host));

    let (asking, cluster) = run(crash(Some(Nanos::from_millis(20))), CrashSabotage::None);
    let (epoch, seen) = asking.seen().expect("two views");
    assert_eq!(epoch, Epoch::FIRST.next().next());
    assert!(seen > at + Nanos::from_millis(20));
    let other = cluster.engine(EngineId::host(NodeId(0), 0)).unwrap();
    assert!(!other.is_fenced(NodeId(1), Side::Nic));
    let served = asking.served();
    assert!(served.last().copied() > Some(Nanos::from_millis(59)), "it serves again");
}

/// The service notices neither the second life nor its end; the others have heard of it.
#[test]
fn a_life_that_comes_and_goes_unnoticed_does_not_outlive_its_node_s_lease() {
    let at = |micros| Nanos::from_micros(micros);
    let crash = |at, restart_after| Crash { scope: CrashScope::Node, node: 1, at, restart_after };
    let crashes = vec![crash(at(4_500), Some(at(300))), crash(at(5_500), None)];
    let (asking, _cluster) = run(FaultPlan { crashes, ..FaultPlan::none() }, CrashSabotage::None);
    assert!(asking.seen().is_some(), "the node is given up");
    let unreachable = asking.unreachable();
    assert!(unreachable > 100, "nothing waits for a node that is left out: {unreachable}");
}
