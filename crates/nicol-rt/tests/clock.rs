//! A clock of turns: runs on one thread repeat step by step, and never wait.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use nicol_core::engine::Start;
use nicol_core::fabric::Fabric;
use nicol_core::faults::FaultPlan;
use nicol_core::units::Nanos;
use nicol_core::view::View;
use nicol_rt::{Clock, LiveCluster, LiveConfig, LiveError, Views};

const SLEEPS: u64 = 5;
const HOUR: Nanos = Nanos::from_secs(3_600);
const STEP: Nanos = Nanos::from_micros(20);

/// On every engine a task that sleeps for an hour and some, again and again.
#[derive(Default)]
struct Sleepers {
    /// Whose task was woken when, by its engine.
    woken: Arc<Mutex<Vec<(u16, Nanos)>>>,
}

impl Start for Sleepers {
    fn start<F: Fabric>(&self, fabric: &F) {
        let (engine, woken) = (fabric.clone(), self.woken.clone());
        let node = fabric.here().node.0;
        fabric.spawn(async move {
            for _ in 0..SLEEPS {
                let deadline = engine.now() + HOUR + Nanos(engine.random() % 1_000);
                engine.sleep_until(deadline).await;
                assert!(engine.now() >= deadline, "no sleep is shorter than asked for");
                woken.lock().unwrap().push((node, engine.now()));
            }
        });
    }
}

fn config() -> LiveConfig {
    let view = View::new(3, 2, 1, 1).unwrap();
    LiveConfig { threads: Some(1), clock: Clock::Turns(STEP), ..LiveConfig::new(view) }
}

fn run() -> Vec<(u16, Nanos)> {
    let sleepers = Arc::new(Sleepers::default());
    let cluster = LiveCluster::launch(&config(), sleepers.clone()).unwrap();
    let limit = Instant::now() + Duration::from_secs(60);
    // Two engines on each of three nodes.
    let all = 6 * SLEEPS as usize;
    let done = || sleepers.woken.lock().unwrap().len() == all || Instant::now() > limit;
    cluster.run_until(done, Duration::from_millis(1)).unwrap();
    cluster.stop().unwrap();
    let woken = sleepers.woken.lock().unwrap().clone();
    assert_eq!(woken.len(), all, "five hours pass at once");
    woken
}

#[test]
fn a_run_by_turns_repeats_and_does_not_wait() {
    let first = run();
    assert_eq!(first, run());
    let last = first.last().unwrap().1;
    assert!(last >= HOUR * SLEEPS && last < HOUR * SLEEPS + Nanos::from_millis(10), "{last:?}");
}

#[test]
fn turns_tell_the_time_of_one_thread_alone() {
    let start = Arc::new(Sleepers::default());
    let refused = [
        LiveConfig { threads: Some(2), ..config() },
        LiveConfig { faults: Some(FaultPlan::none()), ..config() },
        LiveConfig { views: Views::Service, ..config() },
    ];
    for config in refused {
        let launched = LiveCluster::launch(&config, start.clone());
        assert!(matches!(launched, Err(LiveError::ClockOfTurns)), "{config:?}");
    }
}
