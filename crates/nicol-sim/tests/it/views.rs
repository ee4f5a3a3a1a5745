//! Views and leases: who is given up, who learns of it, and that nobody serves without a lease.

use std::sync::{Arc, Mutex};

use nicol_conformance::AskingNode1;
use nicol_core::engine::Start;
use nicol_core::fabric::{Fabric, Local, OneSided};
use nicol_core::faults::{Crash, CrashScope, FaultPlan, Partition};
use nicol_core::ids::{EngineId, Epoch, Incarnation, NodeId, RKey, Side};
use nicol_core::memory::{Access, Region};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::{Halves, NodeSet, SideState, View};
use nicol_sim::view_service::{LEASE, RENEWAL, SERVICE_LATENCY};
use nicol_sim::{CrashSabotage, PCIE_DETECTION, Profile, RunEnd, SimCluster, SimConfig};

/// Runs for 60 ms with a service of views.
fn run(faults: FaultPlan, sabotage: CrashSabotage) -> (AskingNode1, SimCluster) {
    run_of(Halves::Apart, faults, sabotage)
}

/// The same, with nodes of such halves.
fn run_of(halves: Halves, faults: FaultPlan, sabotage: CrashSabotage) -> (AskingNode1, SimCluster) {
    let view = View::new(3, 2, 1, 1).unwrap().with_halves(halves);
    let profile = Arc::new(Profile::load("liquidio3").unwrap());
    let config = SimConfig::new(view, profile, 1);
    let config = SimConfig { faults, sabotage, view_service: true, ..config };
    let cluster = SimCluster::new(config);
    let asking = AskingNode1::new(Nanos::from_micros(50));
    cluster.start(Arc::new(asking.clone()));
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

const HEALED: Nanos = Nanos::from_millis(50);

/// When node 1 answered although its lease was over, and its next life had not begun.
fn stale(asking: &AskingNode1) -> Vec<Nanos> {
    let served = asking.served().into_iter();
    served.filter(|at| (LAST_LEASE_ENDS..HEALED).contains(at)).collect()
}

#[test]
fn a_node_that_is_cut_off_from_the_service_serves_nobody_after_its_lease() {
    for halves in [Halves::Apart, Halves::Together] {
        let (asking, _cluster) = run_of(halves, cut(CUT, HEALED), CrashSabotage::None);
        let served = asking.served();
        assert!(served.iter().any(|&at| at > CUT + RENEWAL), "it goes on while it has a lease");
        assert_eq!(stale(&asking), [Nanos::ZERO; 0], "a stale answer");
        // It learns that it was given up, and begins a new life.
        assert!(served.last() > Some(&Nanos::from_millis(59)), "it serves again");
        let crashes = asking.crashes();
        let of = |node, side| {
            crashes.iter().filter(|loss| loss.node == NodeId(node) && loss.of(side)).count()
        };
        assert_eq!([of(1, Side::Host), of(1, Side::Nic), of(2, Side::Host)], [1, 1, 0]);
    }
}

#[test]
fn an_endless_lease_is_caught() {
    let (asking, _cluster) = run(cut(CUT, HEALED), CrashSabotage::LeaseEndless);
    assert!(!stale(&asking).is_empty());
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

/// The host of node 1 crashes while its NIC serves.
fn without_host(restart_after: Option<Nanos>) -> FaultPlan {
    let crash = Crash { scope: CrashScope::Host, node: 1, at: CUT, restart_after };
    FaultPlan { crashes: vec![crash], ..FaultPlan::none() }
}

/// What a NIC answers after it has noticed that its host is gone, and before that is back.
fn halved(asking: &AskingNode1, until: Nanos) -> usize {
    let noticed = CUT + PCIE_DETECTION + Nanos::from_micros(1);
    asking.served().iter().filter(|&&at| (noticed..until).contains(&at)).count()
}

const AGAIN: [Nanos; 3] = [Nanos::from_micros(20), Nanos::from_millis(1), Nanos::from_millis(20)];

#[test]
fn a_half_serves_nobody_without_the_other_and_its_node_is_given_up_as_a_whole() {
    let (asking, cluster) = run_of(Halves::Together, without_host(None), CrashSabotage::None);
    assert!(asking.served().iter().any(|&at| at < CUT));
    assert_eq!(halved(&asking, Nanos::MAX), 0, "a NIC serves without its host");
    let (epoch, _) = asking.seen().expect("a view without the node");
    assert_eq!(epoch, Epoch::FIRST.next(), "both sides in one view");
    let other = cluster.engine(EngineId::host(NodeId(0), 0)).unwrap();
    assert!(other.is_fenced(NodeId(1), Side::Nic) && other.is_fenced(NodeId(1), Side::Host));
    // The NIC's life ends when it learns that it was given up, and no earlier.
    let losses: Vec<_> = asking.crashes().iter().map(|loss| (loss.host, loss.nic)).collect();
    assert_eq!(losses, [(true, false), (false, true)]);
    assert_eq!(cluster.settle(Nanos::from_millis(80)), RunEnd::Done, "it never comes back");
}

#[test]
fn halves_that_need_one_another_come_back_together() {
    for after in AGAIN {
        let plan = without_host(Some(after));
        let (asking, cluster) = run_of(Halves::Together, plan, CrashSabotage::None);
        assert_eq!(halved(&asking, CUT + after), 0, "a NIC serves without its host");
        assert!(asking.served().last() > Some(&Nanos::from_millis(59)), "{after:?}");
        let view = Local::view(&cluster.engine(EngineId::host(NodeId(0), 0)).unwrap()).clone();
        let lives = [Side::Host, Side::Nic].map(|side| view.side(NodeId(1), side));
        assert_eq!(lives, [SideState { up: true, incarnation: Incarnation::FIRST.next() }; 2]);
        let of = |side| asking.crashes().iter().filter(|loss| loss.of(side)).count();
        assert_eq!([of(Side::Host), of(Side::Nic)], [1, 1], "{after:?}");
        assert_eq!(cluster.settle(Nanos::from_millis(80)), RunEnd::Done, "{after:?}");
    }
}

#[test]
fn a_half_that_goes_on_without_the_other_is_caught() {
    let sabotage = CrashSabotage::HalfServes;
    let (asking, _) = run_of(Halves::Together, without_host(Some(AGAIN[2])), sabotage);
    assert!(halved(&asking, CUT + AGAIN[2]) > 0);
}

#[test]
fn a_host_that_goes_on_alone_is_not_given_up_with_its_nic() {
    let crash =
        Crash { scope: CrashScope::Nic, restart_after: None, ..without_host(None).crashes[0] };
    let faults = FaultPlan { crashes: vec![crash], ..FaultPlan::none() };
    let (asking, cluster) = run_of(Halves::HostAlone, faults, CrashSabotage::None);
    let view = Local::view(&cluster.engine(EngineId::host(NodeId(0), 0)).unwrap()).clone();
    assert_eq!(view.side(NodeId(1), Side::Host), SideState::FIRST);
    assert!(!view.side(NodeId(1), Side::Nic).up && asking.crashes().len() == 1);
}

/// Node 1 writes its life into a word of node 0 by WRITEs, one after the other.
struct Writer {
    region: Arc<Region>,
    rkey: Mutex<Option<RKey>>,
}

impl Start for Writer {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        if here == EngineId::host(NodeId(0), 0) {
            *self.rkey.lock().unwrap() = Some(fabric.register(&self.region, Access::ReadWrite));
        } else if here == EngineId::host(NodeId(1), 0) {
            let rkey = self.rkey.lock().unwrap().unwrap();
            let fabric = fabric.clone();
            fabric.clone().spawn(async move {
                let life = u64::from(fabric.incarnation().0).to_le_bytes();
                loop {
                    let write = OneSided::Write { rkey, offset: 0, bytes: &life };
                    let _lost_in_the_cut = fabric.one_sided(NodeId(0), write).await;
                }
            });
        }
    }
}

/// What life of node 1 has written to node 0 last between the end of a cut and when node 1 can have
/// learnt that it was given up; 0 if nobody has.
fn written_after_a_cut(sabotage: CrashSabotage) -> u64 {
    let view = View::new(3, 2, 1, 1).unwrap().with_halves(Halves::HostAlone);
    let config = SimConfig::new(view, Arc::new(Profile::load("connectx5").unwrap()), 1);
    let healed = Nanos(HEALED.0 + RENEWAL.0 / 4);
    let side = [NodeId(1)].into_iter().collect::<NodeSet>();
    let cut = Partition { from: CUT, until: healed, side, one_way: false };
    let faults = FaultPlan { partitions: vec![cut], ..FaultPlan::none() };
    let cluster = SimCluster::new(SimConfig { faults, sabotage, view_service: true, ..config });
    let region = Arc::new(Region::new(Bytes(64)));
    cluster.start(Arc::new(Writer { region: region.clone(), rkey: Mutex::default() }));
    cluster.run_until(&mut |_| false, CUT);
    assert_eq!(region.load(0), Ok(1), "it writes");
    cluster.run_until(&mut |_| false, healed);
    region.store(0, 0).unwrap();
    cluster.run_until(&mut |_| false, HEALED + RENEWAL - Nanos(1));
    let written = region.load(0).unwrap();
    cluster.run_until(&mut |_| false, HEALED + RENEWAL * 2);
    assert_eq!(region.load(0), Ok(2), "its next life writes");
    written
}

#[test]
fn verbs_of_a_node_that_was_given_up_are_not_executed() {
    assert_eq!(written_after_a_cut(CrashSabotage::None), 0);
}

#[test]
fn verbs_of_a_node_that_is_not_fenced_are_caught() {
    assert_eq!(written_after_a_cut(CrashSabotage::FenceIgnored), 1);
}
