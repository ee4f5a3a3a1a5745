//! The live world passes the suite that every world passes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use nicol_core::cluster::Layout;
use nicol_core::engine::Start;
use nicol_core::fabric::Fabric;
use nicol_core::fabric::conformance::Suite;
use nicol_core::ids::Side;
use nicol_core::units::Nanos;
use nicol_rt::{LiveCluster, LiveConfig, LiveError};

fn config(layout: &Layout, threads: usize) -> LiveConfig {
    LiveConfig { layout: layout.clone(), threads: Some(threads), pin: false, seed: 1 }
}

#[test]
fn it_conforms_on_one_thread_and_on_several() {
    for threads in [1, 2, 5] {
        let layout = Layout::new(3, 2, 2, 2).unwrap();
        let suite = Suite::new(&layout);
        let cluster = LiveCluster::launch(&config(&layout, threads), &Arc::new(suite.clone()));
        let cluster = cluster.unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let done = || suite.finished() || Instant::now() > deadline;
        cluster.run_until(done, Duration::from_millis(1)).unwrap();
        assert!(suite.finished(), "the suite did not end");
        assert_eq!(suite.failures(), [""; 0]);
        assert_eq!(suite.given_up(), 0);
        assert!(cluster.stop().unwrap().stats.messages_sent > 1_000);
    }
}

struct Faulty;

impl Start for Faulty {
    fn start<F: Fabric>(&self, fabric: &F) {
        let engine = fabric.clone();
        if fabric.here().side == Side::Nic {
            fabric.spawn(async move {
                engine.sleep_until(engine.now() + Nanos::from_millis(5)).await;
                panic!("on purpose");
            });
        }
    }
}

#[test]
fn a_panic_on_an_engine_stops_the_cluster_and_is_told() {
    let layout = Layout::new(2, 1, 1, 1).unwrap();
    let cluster = LiveCluster::launch(&config(&layout, 2), &Arc::new(Faulty)).unwrap();
    let ended = cluster.run_until(|| false, Duration::from_millis(1));
    assert!(matches!(ended, Err(LiveError::Panicked(text)) if text == "on purpose"));
}

#[test]
fn impossible_thread_counts_are_refused() {
    let layout = Layout::new(2, 1, 1, 1).unwrap();
    let refused = LiveCluster::launch(&config(&layout, 0), &Arc::new(Faulty));
    assert!(matches!(refused, Err(LiveError::NoThreads)));
}
