//! What threads do when there is nothing to do, and what they report.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nicol_core::engine::Start;
use nicol_core::fabric::Fabric;
use nicol_core::view::View;
use nicol_rt::{LiveCluster, LiveConfig, LiveReport};

/// Engines of the first `working` nodes never rest; the others have nothing to do.
struct Load {
    working: u16,
}

impl Start for Load {
    fn start<F: Fabric>(&self, fabric: &F) {
        let engine = fabric.clone();
        if fabric.here().node.0 < self.working {
            fabric.spawn(async move {
                loop {
                    engine.yield_now().await;
                }
            });
        }
    }
}

fn run(working: u16, spin: bool) -> LiveReport {
    let view = View::new(3, 2, 1, 1).unwrap();
    run_with(working, &LiveConfig { threads: Some(3), spin, ..LiveConfig::new(view) })
}

fn run_with(working: u16, config: &LiveConfig) -> LiveReport {
    let cluster = LiveCluster::launch(config, Arc::new(Load { working })).unwrap();
    let until = Instant::now() + Duration::from_millis(500);
    cluster.run_until(|| Instant::now() > until, Duration::from_millis(5)).unwrap();
    cluster.stop().unwrap()
}

#[test]
fn idle_threads_park() {
    let report = run(0, true);
    assert!(report.parks.iter().all(|&parks| parks > 0), "{:?}", report.parks);
    // A thread that kept spinning would take millions of turns; one that parks takes a few
    // thousand before its first sleep and one after each.
    assert!(report.turns.iter().all(|&turns| turns < 20_000), "{:?}", report.turns);
}

#[test]
fn threads_that_share_their_cores_park_at_once() {
    let report = run(0, false);
    // The first turn, and one after each sleep of 100 ms.
    assert!(report.turns.iter().all(|&turns| turns < 40), "{:?}", report.turns);
    assert!(report.parks.iter().all(|&parks| parks > 0), "{:?}", report.parks);
}

#[test]
fn utilisation_is_a_share_of_time() {
    let report = run(1, true);
    // Nodes go round the threads: the first thread has no empty turn at all.
    assert!((0.95..=1.0).contains(&report.busy[0]), "{:?}", report.busy);
    assert_eq!(report.parks[0], 0);
    assert!(report.busy[1] < 0.5, "{:?}", report.busy);
    assert!(report.busy[2] < 0.5, "{:?}", report.busy);
}
