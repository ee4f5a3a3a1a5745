//! Copies of one message: all of them arrive, and cost their sender what the hardware leaves it.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::engine::Start;
use nicol_core::fabric::{Delivery, Fabric, Fanout, Message, Service};
use nicol_core::ids::{EngineId, NodeId, Side};
use nicol_core::units::Nanos;
use nicol_core::view::View;
use nicol_core::wire::{Malformed, Writer};
use nicol_sim::{Profile, SimCluster, SimConfig};

const NODES: u16 = 5;
const BYTES: usize = 1_000;

struct Record;

impl Message for Record {
    const KIND: u16 = 1;

    fn emit(&self, to: &mut Writer<'_>) {
        to.bytes(&[7; BYTES]);
    }
}

/// Node 0 sends one record to every other node; each counts what comes.
struct Copies {
    side: Side,
    fanout: Fanout,
    arrived: Arc<[AtomicU64]>,
}

struct Counter(Arc<[AtomicU64]>, usize);

impl Service for Counter {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        assert_eq!(delivery.body, [7; BYTES]);
        self.0[self.1].fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

impl Start for Copies {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        fabric.serve(Rc::new(Counter(self.arrived.clone(), here.node.index())));
        if here == (EngineId { node: NodeId(0), side: self.side, core: 0 }) {
            let to = |node| EngineId { node: NodeId(node), side: self.side, core: 0 };
            let to: Vec<_> = (1..NODES).map(to).collect();
            fabric.send_each(&to, &Record, self.fanout);
        }
    }
}

/// How often each node got the record, and the core time and PCIe time that sending it took.
fn sent(on: &str, side: Side, fanout: Fanout) -> (Vec<u64>, u64, f64) {
    let profile = Arc::new(Profile::load(on).unwrap());
    let view = View::new(usize::from(NODES), 1, 1, 1).unwrap();
    let arrived = (0..NODES).map(|_| AtomicU64::new(0)).collect();
    let copies = Arc::new(Copies { side, fanout, arrived });
    let world = SimCluster::new(SimConfig::new(view, profile, 1));
    world.start(copies.clone());
    world.run_until(&mut |_| false, Nanos::from_micros(20));
    let report = world.report();
    let sending = report.spent.iter().filter(|spent| ["messages", "frames"].contains(&spent.on));
    let lanes = report.resources.iter().find(|used| used.name == "n0.pcie_to_nic");
    let counts = copies.arrived.iter().map(|count| count.load(Ordering::Relaxed)).collect();
    (
        counts,
        sending.map(|spent| spent.time.0).sum(),
        lanes.map_or(0.0, nicol_sim::Utilization::busy),
    )
}

#[test]
fn a_broadcast_reaches_everybody_once_and_costs_its_core_one_deposit() {
    for side in [Side::Nic, Side::Host] {
        let (looped, by_loop, lanes_of_loop) = sent("minos-snic", side, Fanout::Loop);
        let (copied, by_card, lanes_of_card) = sent("minos-snic", side, Fanout::Broadcast);
        assert_eq!(looped, [0, 1, 1, 1, 1]);
        assert_eq!(copied, looped);
        // Three deposits of 98 ns are the card's. Receivers' costs are the same.
        assert_eq!(by_loop - by_card, 3 * 98, "{side:?}");
        if side == Side::Host {
            let ratio = lanes_of_loop / lanes_of_card;
            assert!((3.8..4.2).contains(&ratio), "the record crosses PCIe once: {ratio}");
        }
    }
}

#[test]
fn without_the_module_a_broadcast_is_a_loop() {
    let by = |fanout| sent("minos-b-cluster", Side::Host, fanout);
    assert_eq!(by(Fanout::Broadcast), by(Fanout::Loop));
}
