//! Views and leases: who is given up, who learns of it, and that nobody serves without a lease.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use nicol_core::engine::Start;
use nicol_core::fabric::{Delivery, Fabric, FabricError, Message, Service, Timeout};
use nicol_core::faults::{Crash, CrashScope, FaultPlan, Partition};
use nicol_core::ids::{EngineId, Epoch, NodeId, Side};
use nicol_core::units::Nanos;
use nicol_core::view::{NodeSet, View};
use nicol_core::wire::{Malformed, Writer};
use nicol_sim::view_service::{LEASE, RENEWAL, SERVICE_LATENCY};
use nicol_sim::{CrashSabotage, Profile, SimCluster, SimConfig};

struct Ask;

impl Message for Ask {
    const KIND: u16 = 1;

    fn emit(&self, _: &mut Writer<'_>) {}
}

/// Every engine answers; NIC engine 0 of node 0 asks NIC engine 0 of node 1 every 50 us.
#[derive(Default)]
struct Asking {
    /// When node 1 answered, by its own clock.
    served: Mutex<Vec<Nanos>>,
    unreachable: AtomicU64,
    /// The newest epoch that node 2 has been woken with, and when.
    seen: Mutex<Option<(Epoch, Nanos)>>,
}

struct Answering<F> {
    fabric: F,
    asking: Arc<Asking>,
}

impl<F: Fabric> Service for Answering<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        if self.fabric.here().node == NodeId(1) {
            self.asking.served.lock().unwrap().push(self.fabric.now());
        }
        delivery.reply_to.into_iter().for_each(|to| self.fabric.reply(to, &Ask));
        Ok(())
    }
}

#[derive(Clone)]
struct System(Arc<Asking>);

impl Start for System {
    fn start<F: Fabric>(&self, fabric: &F) {
        let answering = Answering { fabric: fabric.clone(), asking: self.0.clone() };
        assert!(fabric.serve(Rc::new(answering)));
        let (fabric, asking) = (fabric.clone(), self.0.clone());
        let here = fabric.here();
        if here == EngineId::nic(NodeId(0), 0) {
            fabric.clone().spawn(async move {
                loop {
                    fabric.sleep_until(fabric.now() + Nanos::from_micros(50)).await;
                    let timeout = Timeout::After(Nanos::from_micros(200));
                    let asked = fabric.call(EngineId::nic(NodeId(1), 0), &Ask, timeout).await;
                    if matches!(asked, Err(FabricError::Unreachable)) {
                        asking.unreachable.fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        } else if here == EngineId::host(NodeId(2), 0) {
            fabric.clone().spawn(async move {
                loop {
                    fabric.view_changes().wait().await;
                    let seen = (fabric.view().epoch(), fabric.now());
                    asking.seen.lock().unwrap().replace(seen);
                }
            });
        }
    }
}

/// Runs for 60 ms with a service of views.
fn run(faults: FaultPlan, sabotage: CrashSabotage) -> (Arc<Asking>, SimCluster) {
    let view = View::new(3, 2, 1, 1).unwrap();
    let profile = Arc::new(Profile::load("liquidio3").unwrap());
    let config = SimConfig::new(view, profile, 1);
    let config = SimConfig { faults, sabotage, view_service: true, ..config };
    let cluster = SimCluster::new(config);
    let asking = Arc::new(Asking::default());
    cluster.start(&Arc::new(System(asking.clone())));
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
    let served = asking.served.lock().unwrap();
    assert!(served.iter().any(|&at| at > CUT + RENEWAL), "it goes on while it has a lease");
    let late: Vec<_> = served.iter().filter(|&&at| at >= LAST_LEASE_ENDS).collect();
    assert_eq!(late, [&Nanos::ZERO; 0], "a stale answer");
}

#[test]
fn an_endless_lease_is_caught() {
    let (asking, _cluster) = run(cut(CUT, Nanos::from_millis(50)), CrashSabotage::LeaseEndless);
    let served = asking.served.lock().unwrap();
    assert!(served.iter().any(|&at| at >= LAST_LEASE_ENDS));
}

#[test]
fn a_short_cut_costs_nobody_its_place() {
    let (asking, cluster) = run(cut(CUT, CUT + LEASE / 2), CrashSabotage::None);
    assert_eq!(*asking.seen.lock().unwrap(), None, "no view but the first");
    let last = asking.served.lock().unwrap().last().copied();
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
    let (epoch, seen) = asking.seen.lock().unwrap().expect("a view without the node");
    assert_eq!(epoch, Epoch::FIRST.next(), "both sides in one view");
    let latest = at + LEASE + RENEWAL + SERVICE_LATENCY * 3 + Nanos::from_micros(1);
    assert!(seen > at && seen <= latest, "{seen:?}");
    assert!(asking.unreachable.load(Ordering::Relaxed) > 0, "calls to the dead end");
    let other = cluster.engine(EngineId::host(NodeId(0), 0)).unwrap();
    assert!(other.is_fenced(NodeId(1), Side::Nic) && other.is_fenced(NodeId(1), Side::Host));

    let (asking, cluster) = run(crash(Some(Nanos::from_millis(20))), CrashSabotage::None);
    let (epoch, seen) = asking.seen.lock().unwrap().expect("two views");
    assert_eq!(epoch, Epoch::FIRST.next().next());
    assert!(seen > at + Nanos::from_millis(20));
    let other = cluster.engine(EngineId::host(NodeId(0), 0)).unwrap();
    assert!(!other.is_fenced(NodeId(1), Side::Nic));
    let served = asking.served.lock().unwrap();
    assert!(served.last().copied() > Some(Nanos::from_millis(59)), "it serves again");
}
