//! The live world passes the suite that every world passes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nicol_conformance::Suite;
use nicol_core::engine::Start;
use nicol_core::fabric::Fabric;
use nicol_core::faults::{FaultCounts, FaultPlan};
use nicol_core::ids::Side;
use nicol_core::units::Nanos;
use nicol_core::view::View;
use nicol_rt::{LiveCluster, LiveConfig, LiveError, LiveReport, LogDevice, LogEntry, LogReader};

fn config(view: &View, threads: usize) -> LiveConfig {
    LiveConfig { threads: Some(threads), seed: 1, ..LiveConfig::new(view.clone()) }
}

fn passes(config: &LiveConfig) -> LiveReport {
    let suite = Suite::new(&config.view);
    let cluster = LiveCluster::launch(config, Arc::new(suite.clone())).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let done = || suite.finished() || Instant::now() > deadline;
    cluster.run_until(done, Duration::from_millis(1)).unwrap();
    assert!(suite.finished(), "the suite did not end");
    assert_eq!(suite.failures(), [""; 0]);
    assert_eq!(suite.given_up(), 0);
    cluster.stop().unwrap()
}

#[test]
fn it_conforms_on_one_thread_and_on_several() {
    for threads in [1, 2, 5] {
        let view = View::new(3, 2, 2, 2).unwrap();
        let report = passes(&config(&view, threads));
        assert!(report.stats.messages_sent > 1_000);
        assert_eq!(report.faults, FaultCounts::default());
    }
}

#[test]
fn it_conforms_over_log_files_and_they_hold_what_was_persisted() {
    let view = View::new(3, 2, 2, 2).unwrap().with_hash_seed(77);
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("conformance-log");
    let _gone = fs::remove_dir_all(&dir);
    for run in ["run-1", "run-2"] {
        let log = LogDevice::File { dir: dir.clone() };
        passes(&LiveConfig { log, ..config(&view, 2) });
        for node in view.node_ids() {
            let file = File::open(dir.join(run).join(format!("node-{}.log", node.0))).unwrap();
            let mut reader = LogReader::open(file).unwrap();
            assert_eq!((reader.header().node, &reader.header().view), (node, &view));
            let mut of_engine = BTreeMap::<_, Vec<_>>::new();
            while let Some(entry) = reader.next().unwrap() {
                let LogEntry::Record(record) = entry else { panic!("{entry:?}") };
                of_engine
                    .entry(record.engine)
                    .or_default()
                    .push((record.offset, record.bytes.len()));
            }
            // What the suite makes durable on every engine of a node: a write, one in parts, then a
            // range.
            assert_eq!(of_engine.len(), 4);
            let expected = [(16, 16), (0, 28), (0, 64)];
            assert!(of_engine.values().all(|records| records[..] == expected));
        }
    }
}

#[test]
fn a_log_that_cannot_be_made_is_reported() {
    let view = View::new(2, 1, 1, 1).unwrap();
    let log = LogDevice::File { dir: PathBuf::from("/dev/null/log") };
    let refused = LiveCluster::launch(&LiveConfig { log, ..config(&view, 1) }, Arc::new(Faulty));
    assert!(matches!(refused, Err(LiveError::LogDevice(text)) if text.contains("/dev/null/log")));
}

#[test]
fn it_conforms_under_message_faults() {
    let mut struck = FaultCounts::default();
    for seed in 0..12 {
        let view = View::new(3, 2, 2, 2).unwrap();
        let faults = Some(FaultPlan::messages(seed));
        let threads = 1 + seed as usize % 3;
        let report = passes(&LiveConfig { seed, faults, ..config(&view, threads) });
        struck.add(&report.faults);
    }
    let families = [struck.lost, struck.duplicated, struck.reordered, struck.corrupted];
    assert!(families.iter().all(|&count| count > 0), "{struck:?}");
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
fn a_panic_on_an_engine_stops_the_cluster_and_is_reported() {
    let view = View::new(2, 1, 1, 1).unwrap();
    let cluster = LiveCluster::launch(&config(&view, 2), Arc::new(Faulty)).unwrap();
    let ended = cluster.run_until(|| false, Duration::from_millis(1));
    assert!(matches!(ended, Err(LiveError::Panicked(text)) if text == "on purpose"));
}

#[test]
fn impossible_thread_counts_are_refused() {
    let view = View::new(2, 1, 1, 1).unwrap();
    let refused = LiveCluster::launch(&config(&view, 0), Arc::new(Faulty));
    assert!(matches!(refused, Err(LiveError::NoThreads)));
}
