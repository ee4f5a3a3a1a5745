//! The view service on threads: who is given up, who learns of it, and that nobody serves without a
//! lease.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nicol_conformance::AskingNode1;
use nicol_core::engine::{Loss, Start};
use nicol_core::fabric::Fabric;
use nicol_core::faults::{Crash, CrashScope, FaultPlan, Partition};
use nicol_core::ids::{EngineId, Epoch, NodeId, Side};
use nicol_core::units::Nanos;
use nicol_core::view::{Halves, NodeSet, View};
use nicol_rt::{CrashSabotage, LEASE, LiveCluster, LiveConfig, LiveReport, Views};

/// What a thread may lose its core for between a look at the lease and the answer.
const LOST_CORE: Nanos = Nanos::from_millis(100);
const RUN: Nanos = Nanos(LEASE.0 * 4);

/// Runs for [`RUN`] with a service of views.
fn run(faults: FaultPlan, sabotage: CrashSabotage) -> (AskingNode1, LiveReport) {
    run_of(Halves::Apart, faults, sabotage)
}

/// The same, with nodes of such halves.
fn run_of(halves: Halves, faults: FaultPlan, sabotage: CrashSabotage) -> (AskingNode1, LiveReport) {
    let view = View::new(3, 2, 1, 1).unwrap().with_halves(halves);
    let (faults, views) = (Some(faults), Views::Service);
    let config = LiveConfig::new(view);
    let config = LiveConfig { threads: Some(2), spin: false, faults, views, sabotage, ..config };
    let asking = AskingNode1::new(Nanos::from_millis(1));
    let cluster = LiveCluster::launch(&config, Arc::new(asking.clone())).unwrap();
    let until = std::time::Instant::now() + Duration::from_nanos(RUN.0);
    let over = || std::time::Instant::now() > until;
    cluster.run_until(over, Duration::from_millis(5)).unwrap();
    (asking, cluster.stop().unwrap())
}

/// The service, and node 2, cannot be reached from nodes 0 and 1 between these instants: node 0,
/// who asks, is on node 1's side of the cut.
fn cut(from: Nanos, until: Nanos) -> FaultPlan {
    let side = [NodeId(0), NodeId(1)].into_iter().collect::<NodeSet>();
    let partitions = vec![Partition { from, until, side, one_way: false }];
    FaultPlan { partitions, ..FaultPlan::none() }
}

const CUT: Nanos = Nanos::from_millis(200);
/// Node 1 has its last lease by then.
const LAST_LEASE_ENDS: Nanos = Nanos(CUT.0 + LEASE.0);

/// When node 1 answered although its lease was over for long, and before the cut had healed.
fn stale(asking: &AskingNode1, healed: Nanos) -> usize {
    let late = LAST_LEASE_ENDS + LOST_CORE..healed;
    asking.served().iter().filter(|at| late.contains(at)).count()
}

#[test]
fn a_node_that_is_cut_off_from_the_service_serves_nobody_after_its_lease() {
    let (asking, report) = run(cut(CUT, RUN), CrashSabotage::None);
    assert!(asking.served().iter().any(|&at| at > CUT + LEASE / 4), "it goes on with its lease");
    assert_eq!(stale(&asking, RUN), 0, "stale answers");
    assert!(report.stats.unleased > 0);
}

#[test]
fn an_endless_lease_is_caught() {
    let (asking, _) = run(cut(CUT, RUN), CrashSabotage::LeaseEndless);
    assert!(stale(&asking, RUN) > 0);
}

#[test]
fn a_short_cut_costs_nobody_its_place() {
    let (asking, report) = run(cut(CUT, CUT + LEASE / 5), CrashSabotage::None);
    assert_eq!(asking.seen(), None, "no view but the first");
    assert!(asking.served().last() > Some(&Nanos(RUN.0 / 10 * 9)));
    assert_eq!(report.stats.unleased, 0);
}

#[test]
fn a_crashed_node_is_given_up_and_comes_back_as_a_new_incarnation() {
    let crash = |restart_after| {
        let crash = Crash { scope: CrashScope::Node, node: 1, at: CUT, restart_after };
        FaultPlan { crashes: vec![crash], ..FaultPlan::none() }
    };
    let (asking, _) = run(crash(None), CrashSabotage::None);
    let (epoch, seen) = asking.seen().expect("a view without the node");
    // Its sides asked one after the other, so that their leases may end in two views.
    assert!((Epoch::FIRST.next()..=Epoch::FIRST.next().next()).contains(&epoch), "{epoch:?}");
    assert!(seen > CUT + LEASE / 2 && seen < CUT + LEASE * 2, "{seen:?}");
    assert!(asking.unreachable() > 0, "calls to the dead end");
    assert!(asking.served().iter().all(|&at| at < CUT + LOST_CORE));

    let (asking, _) = run(crash(Some(LEASE * 2)), CrashSabotage::None);
    let (epoch, seen) = asking.seen().expect("a view without the node, and one with it");
    assert!(epoch >= Epoch::FIRST.next().next() && seen > CUT + LEASE * 2, "{epoch:?} {seen:?}");
    assert!(asking.served().last() > Some(&Nanos(RUN.0 / 10 * 9)), "it serves again");
}

#[test]
fn a_node_that_was_given_up_while_it_lived_begins_a_new_life_when_it_learns_so() {
    // Nothing comes from node 1, which hears the others all the same.
    let side = [NodeId(1)].into_iter().collect::<NodeSet>();
    let healed = CUT + LEASE * 2;
    let cut = Partition { from: CUT, until: healed, side, one_way: true };
    let faults = FaultPlan { partitions: vec![cut], ..FaultPlan::none() };
    // On a busy machine nothing may reach it while it has no lease.
    let was_asked_without_lease = (0..5).any(|_| {
        let (asking, report) = run(faults.clone(), CrashSabotage::None);
        assert_eq!(stale(&asking, healed), 0, "stale answers");
        assert!(asking.served().last() > Some(&Nanos(RUN.0 / 10 * 9)), "it serves again");
        let crashes = asking.crashes();
        assert!(crashes.iter().all(|loss| loss.node == NodeId(1)), "{crashes:?}");
        let of = |side| crashes.iter().filter(|loss| loss.of(side)).count();
        assert_eq!([of(Side::Host), of(Side::Nic)], [1, 1], "{crashes:?}");
        report.stats.unleased > 0
    });
    assert!(was_asked_without_lease);
}

/// The host of node 1 crashes while its NIC serves.
fn without_host(restart_after: Nanos) -> FaultPlan {
    let restart_after = Some(restart_after);
    let crash = Crash { scope: CrashScope::Host, node: 1, at: CUT, restart_after };
    FaultPlan { crashes: vec![crash], ..FaultPlan::none() }
}

/// What a NIC has answered between its host's crash and its return.
fn halved(asking: &AskingNode1, until: Nanos) -> usize {
    asking.served().iter().filter(|&&at| (CUT + LOST_CORE..until).contains(&at)).count()
}

#[test]
fn a_half_serves_nobody_without_the_other_and_they_come_back_together() {
    for after in [LEASE / 2, LEASE * 2] {
        let (asking, _) = run_of(Halves::Together, without_host(after), CrashSabotage::None);
        assert!(asking.served().iter().any(|&at| at < CUT));
        assert_eq!(halved(&asking, CUT + after), 0, "a NIC serves without its host");
        assert!(asking.served().last() > Some(&Nanos(RUN.0 / 10 * 9)), "it serves again");
        let of = |side| asking.crashes().iter().filter(|loss| loss.of(side)).count();
        // On a busy machine a lease may end besides.
        assert!(of(Side::Host) > 0 && of(Side::Nic) > 0, "{:?}", asking.crashes());
    }
}

#[test]
fn a_half_that_goes_on_without_the_other_is_caught() {
    let sabotage = CrashSabotage::HalfServes;
    let (asking, _) = run_of(Halves::Together, without_host(LEASE * 2), sabotage);
    assert!(halved(&asking, CUT + LEASE * 2) > 0);
}

/// Engines that say which view they have. One of node 0 may be held up, with its thread.
#[derive(Clone, Default)]
struct Telling {
    epochs: Arc<[AtomicU32; 9]>,
    holds_up: Arc<AtomicBool>,
    is_held_up: Arc<AtomicBool>,
}

impl Start for Telling {
    fn start<F: Fabric>(&self, fabric: &F) {
        let (engine, telling) = (fabric.clone(), self.clone());
        fabric.spawn(async move {
            let here = engine.view().index_of(engine.here()).unwrap();
            loop {
                let epoch = engine.view().epoch().0;
                telling.epochs[here].store(epoch, Ordering::Release);
                engine.view_changes().wait().await;
            }
        });
        if fabric.here() == EngineId::host(NodeId(0), 1) {
            let (engine, telling) = (fabric.clone(), self.clone());
            fabric.spawn(async move {
                loop {
                    while telling.holds_up.load(Ordering::Acquire) {
                        telling.is_held_up.store(true, Ordering::Release);
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    engine.sleep_until(engine.now() + Nanos::from_millis(1)).await;
                }
            });
        }
    }
}

#[test]
fn views_are_current_once_every_engine_of_every_thread_has_the_newest() {
    let view = View::new(3, 2, 2, 1).unwrap();
    let (threads, views) = (Some(view.engine_count()), Views::Service);
    let config = LiveConfig { threads, spin: false, views, ..LiveConfig::new(view) };
    let telling = Telling::default();
    let cluster = LiveCluster::launch(&config, Arc::new(telling.clone())).unwrap();
    let poll = Duration::from_millis(1);
    telling.holds_up.store(true, Ordering::Release);
    cluster.run_until(|| telling.is_held_up.load(Ordering::Acquire), poll).unwrap();
    cluster.crash(&[Loss { node: NodeId(2), host: true, nic: true }]).unwrap();
    let epochs = || -> Vec<u32> {
        // Node 2 comes last.
        telling.epochs[..6].iter().map(|epoch| epoch.load(Ordering::Acquire)).collect()
    };
    let until = Instant::now() + Duration::from_nanos(LEASE.0 * 3);
    let early = || cluster.when_views_are_current(epochs);
    cluster.run_until(|| early().is_some() || Instant::now() > until, poll).unwrap();
    let early = early();
    telling.holds_up.store(false, Ordering::Release);
    assert_eq!(early, None, "an engine does not have it");
    cluster.run_until(|| cluster.when_views_are_current(|| ()).is_some(), poll).unwrap();
    // What was told is installed; its task has yet to be woken.
    let newest = epochs().into_iter().max().unwrap();
    assert!(newest > Epoch::FIRST.0);
    cluster.run_until(|| epochs().iter().all(|&epoch| epoch == newest), poll).unwrap();
    cluster.stop().unwrap();
}
