//! A doorbell wakes every thread with an engine that watches it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nicol_core::engine::Start;
use nicol_core::fabric::{Fabric, HasDoorbell};
use nicol_core::ids::Side;
use nicol_core::memory::Doorbell;
use nicol_core::view::View;
use nicol_rt::{LiveCluster, LiveConfig};

/// Host engines that wait for one doorbell, and count how often they were woken.
struct Watchers {
    bell: Arc<Doorbell>,
    woken: Arc<[AtomicU64; WATCHERS]>,
}

const WATCHERS: usize = 3;
const RINGS: u64 = 21;

impl Start for Watchers {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        if here.side != Side::Host {
            return;
        }
        let (engine, woken) = (fabric.clone(), self.woken.clone());
        let bell: Arc<dyn HasDoorbell> = self.bell.clone();
        fabric.spawn(async move {
            loop {
                let seen = bell.doorbell().rings();
                woken[usize::from(here.core)].store(seen, Ordering::Release);
                engine.wait_for_doorbell(&bell, seen).await;
            }
        });
    }
}

/// Half of the rings are answered by every watcher within a fraction of the longest sleep, which is
/// 100 ms.
#[test]
fn every_thread_that_watches_a_doorbell_is_woken() {
    let watchers = Watchers { bell: Arc::default(), woken: Arc::default() };
    let (bell, woken) = (watchers.bell.clone(), watchers.woken.clone());
    let view = View::new(1, 1, WATCHERS, 1).unwrap();
    let config = LiveConfig { threads: Some(WATCHERS + 1), spin: false, ..LiveConfig::new(view) };
    let cluster = LiveCluster::launch(&config, Arc::new(watchers)).unwrap();
    let mut took = Vec::new();
    for ring in 1..=RINGS {
        // All of them sleep.
        std::thread::sleep(Duration::from_millis(10));
        let rung = Instant::now();
        bell.ring();
        let all = || woken.iter().all(|woken| woken.load(Ordering::Acquire) == ring);
        cluster.run_until(all, Duration::from_micros(50)).unwrap();
        took.push(rung.elapsed());
    }
    cluster.stop().unwrap();
    took.sort_unstable();
    assert!(took[took.len() / 2] < Duration::from_millis(30), "{took:?}");
}
