//! Crashes and restarts on threads: the suite that every world passes, and that the suite finds
//! what is broken on purpose.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nicol_conformance::{Act, AskingNode1, CrashSuite, Unsynced};
use nicol_core::engine::{Loss, Revival, Start};
use nicol_core::fabric::Fabric;
use nicol_core::faults::{Crash, CrashScope, FaultFamilies, FaultPlan};
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
    unsynced: Unsynced,
    fenced_frames: u64,
    dead_frames: u64,
}

fn run(config: &LiveConfig) -> Ran {
    run_until(config, |_| false)
}

/// Runs the suite to its end, or until its failures show what is broken on purpose: that may keep
/// it from its end.
fn run_until(config: &LiveConfig, caught: impl Fn(&[String]) -> bool) -> Ran {
    let suite = CrashSuite::new(config.view.nodes());
    let cluster = LiveCluster::launch(config, Arc::new(suite.clone())).unwrap();
    let deadline = Instant::now() + LIMIT;
    let caught = || caught(&suite.failures());
    while !suite.finished() && !caught() {
        let ended = || suite.wants_attention() || caught() || Instant::now() > deadline;
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
        unsynced: suite.unsynced(),
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

/// What crashes did to writes that were not synced, over so many seeds, or until there is `enough`:
/// by the dice of the devices, and by what the next life of a host finds.
fn unsynced(
    test: &str,
    sabotage: CrashSabotage,
    seeds: u64,
    enough: impl Fn(&MediumCounts, Unsynced) -> bool,
) -> (MediumCounts, Unsynced) {
    let (mut decided, mut found) = (MediumCounts::default(), Unsynced::default());
    for seed in 0..seeds {
        let config = on_files(test, config(2, seed));
        let ran = run(&LiveConfig { sabotage, ..config });
        assert_eq!(ran.failures, [""; 0], "seed {seed}");
        decided.add(&ran.medium);
        found.add(&ran.unsynced);
        if enough(&decided, found) {
            break;
        }
    }
    (decided, found)
}

/// Does a medium lose what it has not synced?
fn forgets(found: Unsynced) -> bool {
    found.missing > 2
}

#[test]
fn writes_that_are_not_synced_are_kept_lost_torn_and_reordered() {
    let every_kind = |decided: &MediumCounts| {
        let MediumCounts { whole, lost, torn, reordered } = *decided;
        [whole, lost, torn, reordered].iter().all(|&count| count > 2)
    };
    let enough = |decided: &MediumCounts, found| every_kind(decided) && forgets(found);
    let (decided, found) = unsynced("crashes-medium", CrashSabotage::None, 16, enough);
    assert!(enough(&decided, found), "{decided:?} {found:?}");
    // The file had later records behind lost ones, and torn ones: reading ends before them.
    assert_eq!((found.torn, found.overtaken), (0, 0));
}

#[test]
fn a_medium_that_keeps_everything_is_caught() {
    let (_, found) = unsynced("crashes-kept", CrashSabotage::MediumKeepsAll, 4, |_, _| false);
    assert!(found.kept > 2 && !forgets(found), "{found:?}");
}

#[test]
fn an_ignored_fence_is_caught() {
    let shown =
        ["nothing of an old life comes after a new one", "a request takes effect in one life"];
    let is_shown = |failure: &String| shown.contains(&failure.as_str());
    let caught = |failures: &[String]| failures.iter().any(is_shown);
    assert!((0..8).any(|seed| {
        let config = config(1 + seed as usize % 3, seed);
        let (faults, sabotage) = (Some(late_frames()), CrashSabotage::FenceIgnored);
        let ran = run_until(&LiveConfig { faults, sabotage, ..config }, caught);
        caught(&ran.failures)
    }));
}

#[test]
fn timers_of_a_dead_engine_are_caught() {
    // Which of the two looks at timers finds it depends on who gets a core.
    let shown = ["the tasks of a side that has crashed are gone", "no timer of "];
    let found = |failures: &[String], what: &str| failures.iter().any(|it| it.starts_with(what));
    let caught = |failures: &[String]| shown.iter().all(|what| found(failures, what));
    let sabotage = CrashSabotage::TimersFire;
    for threads in [1, 3] {
        let config = LiveConfig { sabotage, ..config(threads, 1) };
        let ran = run_until(&config, caught);
        assert!(caught(&ran.failures), "{:?}", ran.failures);
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
        let cluster = LiveCluster::launch(&config, asking.clone()).unwrap();
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

#[test]
fn what_a_log_device_holds_is_read_while_hosts_crash_and_start() {
    let (scope, restart_after) = (CrashScope::Host, Some(Nanos::from_micros(500)));
    let crash =
        |number| Crash { scope, node: 1, at: Nanos::from_millis(1 + number), restart_after };
    let plan = FaultPlan { crashes: (0..200_u64).map(crash).collect(), ..FaultPlan::none() };
    let config = on_files("crashes-read", config(2, 1));
    let config = LiveConfig { faults: Some(plan), ..config };
    let asking = Arc::new(AskingNode1::new(Nanos::from_micros(100)));
    let cluster = LiveCluster::launch(&config, asking).unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(300) {
        let _whatever_stands_there = cluster.medium_writes(NodeId(1));
    }
    cluster.stop().unwrap();
    remove_files(&config);
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
    let cluster = LiveCluster::launch(&config(3, 1), Arc::new(Unrestartable)).unwrap();
    let node = NodeId(1);
    cluster.crash(&[Loss { node, host: true, nic: true }]).unwrap();
    let restarted = cluster.restart(&[(node, Side::Nic)]);
    assert!(matches!(&restarted, Err(LiveError::Panicked(text)) if text == "on purpose"));
    let again = cluster.crash(&[Loss { node: NodeId(0), host: true, nic: true }]);
    assert!(matches!(again, Err(LiveError::Panicked(_))), "nothing more happens, nor waits");
    assert!(cluster.stop().is_err());
}
