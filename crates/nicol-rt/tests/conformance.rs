//! The live world passes the suite that every world passes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nicol_core::cluster::Layout;
use nicol_core::engine::Start;
use nicol_core::fabric::Fabric;
use nicol_core::fabric::conformance::Suite;
use nicol_core::ids::Side;
use nicol_core::units::Nanos;
use nicol_rt::{LiveCluster, LiveConfig, LiveError, LogDevice, LogReader};

fn config(layout: &Layout, threads: usize) -> LiveConfig {
    let log = LogDevice::Memory;
    LiveConfig { layout: layout.clone(), threads: Some(threads), pin: false, seed: 1, log }
}

fn conforms(layout: &Layout, config: &LiveConfig) {
    let suite = Suite::new(layout);
    let cluster = LiveCluster::launch(config, &Arc::new(suite.clone())).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let done = || suite.finished() || Instant::now() > deadline;
    cluster.run_until(done, Duration::from_millis(1)).unwrap();
    assert!(suite.finished(), "the suite did not end");
    assert_eq!(suite.failures(), [""; 0]);
    assert_eq!(suite.given_up(), 0);
    assert!(cluster.stop().unwrap().stats.messages_sent > 1_000);
}

#[test]
fn it_conforms_on_one_thread_and_on_several() {
    for threads in [1, 2, 5] {
        let layout = Layout::new(3, 2, 2, 2).unwrap();
        conforms(&layout, &config(&layout, threads));
    }
}

#[test]
fn it_conforms_over_log_files_and_they_hold_what_was_persisted() {
    let layout = Layout::new(3, 2, 2, 2).unwrap().with_hash_seed(77);
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("conformance-log");
    let _gone = fs::remove_dir_all(&dir);
    for run in ["run-1", "run-2"] {
        let log = LogDevice::File { dir: dir.clone() };
        conforms(&layout, &LiveConfig { log, ..config(&layout, 2) });
        for node in layout.node_ids() {
            let file = File::open(dir.join(run).join(format!("node-{}.log", node.0))).unwrap();
            let mut reader = LogReader::open(file).unwrap();
            assert_eq!((reader.header().node, &reader.header().layout), (node, &layout));
            let mut of_engine = BTreeMap::<_, Vec<_>>::new();
            while let Some(record) = reader.next().unwrap() {
                of_engine
                    .entry(record.engine)
                    .or_default()
                    .push((record.offset, record.bytes.len()));
            }
            assert_eq!(reader.end().unwrap().torn, None);
            // What the suite makes durable on every engine of a node: a write, then a range.
            assert_eq!(of_engine.len(), 4);
            assert!(of_engine.values().all(|records| records[..] == [(16, 16), (0, 64)]));
        }
    }
}

#[test]
fn a_log_that_cannot_be_made_is_told() {
    let layout = Layout::new(2, 1, 1, 1).unwrap();
    let log = LogDevice::File { dir: PathBuf::from("/dev/null/log") };
    let refused = LiveCluster::launch(&LiveConfig { log, ..config(&layout, 1) }, &Arc::new(Faulty));
    assert!(matches!(refused, Err(LiveError::LogDevice(text)) if text.contains("/dev/null/log")));
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
