//! What the simulated hardware records: crashes and restarts of nodes.

use std::sync::Arc;

use nicol_core::engine::{Loss, Start};
use nicol_core::fabric::Fabric;
use nicol_core::ids::{NodeId, Side};
use nicol_core::trace::{Limits, Sink, Track, What};
use nicol_core::units::Nanos;
use nicol_core::view::View;
use nicol_sim::{Profile, SimCluster, SimConfig};

/// Each host engine wakes once a microsecond.
struct Wakes;

impl Start for Wakes {
    fn start<F: Fabric>(&self, fabric: &F) {
        let fabric = fabric.clone();
        fabric.clone().spawn(async move {
            loop {
                fabric.sleep_until(fabric.now() + Nanos::from_micros(1)).await;
            }
        });
    }
}

#[test]
fn crashes_and_restarts_are_recorded_and_tasks_end_with_their_engine() {
    let view = View::new(2, 1, 1, 1).unwrap();
    let profile = Arc::new(Profile::load("liquidio3").unwrap());
    let sink = Sink::new(Limits::events(100_000));
    let mut config = SimConfig::new(view, profile, 1);
    config.trace = Some(sink.clone());
    let cluster = SimCluster::new(config);
    cluster.start(Arc::new(Wakes));
    cluster.run_until(&mut |_| false, Nanos::from_micros(10));
    cluster.crash(Loss { node: NodeId(1), host: true, nic: true });
    cluster.run_until(&mut |_| false, Nanos::from_micros(20));
    cluster.restart(NodeId(1), &[Side::Host]);
    cluster.run_until(&mut |_| false, Nanos::from_micros(30));
    drop(cluster);
    let tracks = sink.take().tracks;
    let faults = |node| -> Vec<(u64, What)> {
        let events = tracks.get(&Track::Hardware(NodeId(node))).into_iter().flatten();
        let faults = events.filter(|event| matches!(event.what, What::Fault(_)));
        faults.map(|event| (event.at.0 / 1_000, event.what)).collect()
    };
    assert_eq!(faults(0), []);
    let expected = [(10, "crash of the node"), (20, "restart of the host")];
    assert_eq!(faults(1), expected.map(|(at, fault)| (at, What::Fault(fault))));
    for events in tracks.values() {
        let count = |is: fn(&What) -> bool| events.iter().filter(|event| is(&event.what)).count();
        let begun = count(|what| matches!(what, What::TaskBegins { .. }));
        assert_eq!(begun, count(|what| matches!(what, What::TaskEnds(_))));
    }
}
