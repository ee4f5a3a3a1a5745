//! Crashes and restarts on threads: the suite that every world passes, and that the suite finds what
//! is broken on purpose.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nicol_core::engine::{Loss, Revival, Start};
use nicol_core::fabric::Fabric;
use nicol_core::fabric::conformance::{Act, AskingNode1, CrashSuite};
use nicol_core::faults::{FaultFamilies, FaultPlan};
use nicol_core::ids::{NodeId, Side};
use nicol_core::medium::MediumCounts;
use nicol_core::units::Nanos;
use nicol_core::view::View;
use nicol_rt::{CrashSabotage, LiveCluster, LiveConfig, LiveError, LogDevice, Views};

/// The test that is broken must not wait for what never comes.
const LIMIT: Duration = Duration::from_secs(120);

fn config(threads: usize, seed: u64) -> LiveConfig {
    let view = View::new(3, 2, 2, 2).unwrap();
    let (threads, views) = (Some(threads), Views::Detector);
    LiveConfig { threads, seed, views, spin: false, ..LiveConfig::new(view) }
}

/// With a file for each node, in a folder of the test's and the process' own.
fn on_files(test: &str, config: LiveConfig) -> LiveConfig {
    let dir = format!("{test}-{}", std::process::id());
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(dir);
    let _gone = fs::remove_dir_all(&dir);
    LiveConfig { log: LogDevice::File { dir }, ..config }
}

fn remove_files(config: &LiveConfig) {
    if let LogDevice::File { dir } = &config.log {
        fs::remove_dir_all(dir).unwrap();
    }
}

/// What of a run matters here.
struct Ran {
    failures: Vec<String>,
    medium: MediumCounts,
    fenced_frames: u64,
    dead_frames: u64,
}

fn run(config: &LiveConfig) -> Ran {
    let honest = config.sabotage == CrashSabotage::None;
    let suite = CrashSuite::new(config.view.nodes());
    let cluster = LiveCluster::launch(config, &Arc::new(suite.clone())).unwrap();
    let deadline = Instant::now() + LIMIT;
    // What is broken on purpose may keep the suite from its end.
    let broken = || !honest && !suite.failures().is_empty();
    while !suite.finished() && !broken() {
        let ended = || suite.wants_attention() || broken() || Instant::now() > deadline;
        cluster.run_until(ended, Duration::from_micros(200)).unwrap();
        assert!(Instant::now() < deadline, "{:?}", suite.failures());
        let (mut losses, mut sides) = (Vec::new(), Vec::new());
        for act in std::iter::from_fn(|| suite.next_act()) {
            match act {
                Act::Crash(loss) => losses.push(loss),
                Act::Restart(node, side) => sides.push((node, side)),
            }
        }
        cluster.crash(&losses).unwrap();
        cluster.restart(&sides).unwrap();
    }
    let medium = cluster.medium_counts();
    let report = cluster.stop().unwrap();
    remove_files(config);
    Ran {
        failures: suite.failures(),
        medium,
        fenced_frames: report.stats.fenced_frames,
        dead_frames: report.faults.dead,
    }
}

/// Frames that arrive late or twice, so that some outlive their senders and receivers.
fn late_frames() -> FaultPlan {
    FaultPlan {
        loss: 20_000,
        duplicate: 200_000,
        reorder: 300_000,
        reorder_span: Nanos::from_millis(20),
        ..FaultPlan::none()
    }
}

#[test]
fn crashes_conform_however_engines_share_threads() {
    for threads in [1, 2, 3, 5, 12] {
        let ran = run(&config(threads, 1));
        assert_eq!(ran.failures, [""; 0], "{threads} threads, battery-backed memory");
        let ran = run(&on_files("crashes-conform", config(threads, 1)));
        assert_eq!(ran.failures, [""; 0], "{threads} threads, log files");
    }
}

#[test]
fn crashes_conform_where_frames_outlive_them_and_are_fenced() {
    let (mut fenced, mut dead) = (0, 0);
    for seed in 0..6 {
        let config = on_files("crashes-late", config(1 + seed as usize, seed));
        let ran = run(&LiveConfig { faults: Some(late_frames()), ..config });
        assert_eq!(ran.failures, [""; 0], "seed {seed}");
        fenced += ran.fenced_frames;
        dead += ran.dead_frames;
    }
    assert!(fenced > 20 && dead > 20, "{fenced} frames were fenced, {dead} came for the dead");
}

/// What crashes did to writes that were not synced, over so many seeds, or until there is `enough`.
fn medium_counts(
    test: &str,
    sabotage: CrashSabotage,
    seeds: u64,
    enough: impl Fn(&MediumCounts) -> bool,
) -> MediumCounts {
    let mut sum = MediumCounts::default();
    for seed in 0..seeds {
        let config = on_files(test, config(2, seed));
        sum.add(&run(&LiveConfig { sabotage, ..config }).medium);
        if enough(&sum) {
            break;
        }
    }
    sum
}

#[test]
fn writes_that_are_not_synced_are_kept_lost_and_torn() {
    // On a busy machine a device has often synced before a crash comes.
    let enough = |sum: &MediumCounts| [sum.whole, sum.lost, sum.torn].iter().all(|&n| n > 2);
    let sum = medium_counts("crashes-medium", CrashSabotage::None, 64, enough);
    assert!(enough(&sum), "{sum:?}");
}

#[test]
fn a_medium_that_keeps_everything_is_caught() {
    let kept = medium_counts("crashes-kept", CrashSabotage::MediumKeepsAll, 8, |_| false);
    assert_eq!((kept.lost, kept.torn, kept.reordered), (0, 0, 0), "this is how it is caught");
}

#[test]
fn an_ignored_fence_is_caught() {
    let caught = (0..8).any(|seed| {
        let config = config(1 + seed as usize % 3, seed);
        let (faults, sabotage) = (Some(late_frames()), CrashSabotage::FenceIgnored);
        let ran = run(&LiveConfig { faults, sabotage, ..config });
        ran.failures.iter().any(|failure| {
            failure.contains("old life") || failure.contains("takes effect in one life")
        })
    });
    assert!(caught);
}

#[test]
fn timers_of_a_dead_engine_are_caught() {
    for threads in [1, 3] {
        let sabotage = CrashSabotage::TimersFire;
        let ran = run(&LiveConfig { sabotage, ..config(threads, 1) });
        let found = |what: &str| ran.failures.iter().any(|failure| failure.contains(what));
        assert!(found("the tasks of a side that has crashed are gone"), "{:?}", ran.failures);
    }
}

#[test]
fn a_cluster_stops_whatever_is_down_and_in_the_middle_of_a_crash() {
    let crashes = FaultFamilies { crashes: true, ..FaultFamilies::NONE };
    let mut longest = Duration::ZERO;
    for seed in 0..40 {
        let config = on_files("crashes-stop", config(1 + seed as usize % 5, seed));
        let views = [Views::Frames, Views::Detector, Views::Service][seed as usize % 3];
        let config = LiveConfig { faults: Some(crashes.draw(seed)), views, ..config };
        let asking = Arc::new(AskingNode1::new(Nanos::from_micros(100)));
        let cluster = LiveCluster::launch(&config, &asking).unwrap();
        let runs = Duration::from_micros(200 + seed * 500);
        let begun = Instant::now();
        cluster.run_until(|| begun.elapsed() > runs, Duration::from_micros(100)).unwrap();
        let stopping = Instant::now();
        if seed % 2 == 0 {
            cluster.stop().unwrap();
        } else {
            drop(cluster);
        }
        longest = longest.max(stopping.elapsed());
        remove_files(&config);
    }
    assert!(longest < Duration::from_secs(20), "{longest:?}");
}

/// Does nothing, and cannot start again.
struct Unrestartable;

impl Start for Unrestartable {
    fn start<F: Fabric>(&self, _: &F) {}

    fn restart<F: Fabric>(&self, _: &F, _: &Revival<'_>) {
        panic!("on purpose");
    }
}

#[test]
fn a_panic_in_a_restart_stops_the_cluster_and_is_reported() {
    let cluster = LiveCluster::launch(&config(3, 1), &Arc::new(Unrestartable)).unwrap();
    let node = NodeId(1);
    cluster.crash(&[Loss { node, host: true, nic: true }]).unwrap();
    let restarted = cluster.restart(&[(node, Side::Nic)]);
    assert!(matches!(&restarted, Err(LiveError::Panicked(text)) if text == "on purpose"));
    let again = cluster.crash(&[Loss { node: NodeId(0), host: true, nic: true }]);
    assert!(matches!(again, Err(LiveError::Panicked(_))), "nothing more happens, nor waits");
    assert!(cluster.stop().is_err());
}
