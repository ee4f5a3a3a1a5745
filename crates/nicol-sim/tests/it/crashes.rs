//! Crashes and restarts in the simulated world: the suite that every world passes, and that the
//! suite finds what is broken on purpose.

use std::sync::Arc;

use nicol_conformance::{Act, CrashSuite, Unsynced};
use nicol_core::faults::FaultPlan;
use nicol_core::ids::Side;
use nicol_core::medium::MediumCounts;
use nicol_core::units::{Nanos, Picos};
use nicol_core::view::View;
use nicol_sim::{CrashSabotage, Profile, RunEnd, SimCluster, SimConfig};

/// How long after a crash others learn of it.
const DETECTED: Nanos = Nanos::from_micros(150);

fn config(profile: Profile, seed: u64) -> SimConfig {
    let view = View::new(3, 2, 2, profile.engines(Side::Nic).min(2)).unwrap();
    let config = SimConfig::new(view, Arc::new(profile), seed);
    SimConfig { detect_after: Some(DETECTED), keeps_content: true, ..config }
}

/// What of a run matters here.
struct Ran {
    failures: Vec<String>,
    medium: MediumCounts,
    unsynced: Unsynced,
    digest: u64,
    fenced_frames: u64,
}

fn run(config: SimConfig) -> Ran {
    let honest = config.sabotage == CrashSabotage::None;
    let suite = CrashSuite::new(config.view.nodes());
    let cluster = SimCluster::new(config);
    cluster.start(Arc::new(suite.clone()));
    // What is broken on purpose may keep the suite from its end: it is seen in the first crashes.
    while !suite.finished() && (honest || suite.failures().len() < 3) {
        let ended = cluster.run_until(
            &mut |_| suite.wants_attention() || !honest && suite.failures().len() >= 3,
            Nanos::from_secs(20),
        );
        assert_eq!(ended, RunEnd::Done, "{:?}", suite.failures());
        while let Some(act) = suite.next_act() {
            match act {
                Act::Crash(loss) => cluster.crash(loss),
                Act::Restart(node, side) => cluster.restart(node, &[side]),
            }
        }
    }
    let report = cluster.report();
    Ran {
        failures: suite.failures(),
        medium: cluster.medium_counts(),
        unsynced: suite.unsynced(),
        digest: report.digest,
        fenced_frames: report.stats.fenced_frames,
    }
}

/// A profile whose log device takes 10 us and 1 us per KiB.
fn slow_device(name: &str) -> Profile {
    let mut profile = Profile::load(name).unwrap();
    profile.persist.latency.value = Picos(10_000_000);
    profile.persist.per_kib.value = Picos(1_000_000);
    profile
}

/// Frames that arrive late or twice, so that some outlive their senders and receivers.
fn late_frames() -> FaultPlan {
    FaultPlan {
        loss: 20_000,
        duplicate: 200_000,
        reorder: 300_000,
        reorder_span: Nanos::from_micros(400),
        tail: 100_000,
        tail_max: Nanos::from_millis(2),
        ..FaultPlan::none()
    }
}

#[test]
fn crashes_conform_on_every_profile() {
    for name in Profile::list() {
        let ran = run(config(Profile::load(name).unwrap(), 1));
        assert_eq!(ran.failures, [""; 0], "{name}, battery-backed memory");
        let ran = run(config(slow_device(name), 1));
        assert_eq!(ran.failures, [""; 0], "{name}, a log device");
    }
}

#[test]
fn crashes_conform_where_frames_outlive_them_and_are_fenced() {
    let mut fenced = 0;
    for seed in 0..8 {
        let config = config(slow_device("liquidio3"), seed);
        let ran = run(SimConfig { faults: late_frames(), ..config });
        assert_eq!(ran.failures, [""; 0], "seed {seed}");
        fenced += ran.fenced_frames;
    }
    assert!(fenced > 20, "{fenced} frames were fenced");
}

/// Over some seeds, what crashes did to writes that were not synced, by the world's own counts and
/// by what the next life of a host finds.
fn unsynced(sabotage: CrashSabotage) -> (MediumCounts, Unsynced) {
    let (mut counted, mut found) = (MediumCounts::default(), Unsynced::default());
    for seed in 0..10 {
        let config = config(slow_device("liquidio3"), seed);
        let ran = run(SimConfig { sabotage, ..config });
        counted.add(&ran.medium);
        found.add(&ran.unsynced);
    }
    (counted, found)
}

/// Does a medium lose, tear and reorder what it has not synced?
fn forgets(found: Unsynced) -> bool {
    found.torn > 2 && found.overtaken > 2
}

#[test]
fn writes_that_are_not_synced_are_kept_lost_torn_and_reordered() {
    let (MediumCounts { whole, lost, torn, reordered }, found) = unsynced(CrashSabotage::None);
    assert!([whole, lost, torn, reordered].iter().all(|&count| count > 2));
    assert!(forgets(found), "{found:?}");
}

#[test]
fn a_medium_that_keeps_everything_is_caught() {
    let (_, found) = unsynced(CrashSabotage::MediumKeepsAll);
    assert!(!forgets(found), "{found:?}");
}

#[test]
fn an_ignored_fence_is_caught() {
    let caught = (0..8).any(|seed| {
        let config = config(slow_device("liquidio3"), seed);
        let sabotage = CrashSabotage::FenceIgnored;
        let ran = run(SimConfig { faults: late_frames(), sabotage, ..config });
        ran.failures.iter().any(|failure| {
            failure.contains("old life") || failure.contains("takes effect in one life")
        })
    });
    assert!(caught);
}

#[test]
fn timers_of_a_dead_engine_are_caught() {
    let config = config(slow_device("liquidio3"), 1);
    let ran = run(SimConfig { sabotage: CrashSabotage::TimersFire, ..config });
    let found = |what: &str| ran.failures.iter().any(|failure| failure.contains(what));
    assert!(found("the tasks of a side that has crashed are gone"), "{:?}", ran.failures);
    assert!(found("no timer of an old life fires"), "{:?}", ran.failures);
}

#[test]
fn the_same_seed_crashes_the_same_way() {
    let digest = |seed| {
        let config = config(slow_device("liquidio3"), seed);
        run(SimConfig { faults: late_frames(), ..config }).digest
    };
    assert_eq!(digest(3), digest(3));
    assert_ne!(digest(3), digest(4));
}
