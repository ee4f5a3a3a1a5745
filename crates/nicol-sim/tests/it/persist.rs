//! What durability costs in the simulated world, and when.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nicol_conformance::Suite;
use nicol_core::engine::Start;
use nicol_core::fabric::Fabric;
use nicol_core::ids::{EngineId, NodeId};
use nicol_core::memory::Region;
use nicol_core::units::{Bytes, Nanos, Picos};
use nicol_core::view::View;
use nicol_sim::{Completes, Profile, RunEnd, SimCluster, SimConfig};

/// A profile whose log device takes 10 us and 1 us per KiB.
fn slow_device() -> Profile {
    let mut profile = Profile::load("liquidio3").unwrap();
    profile.persist.latency.value = Picos(10_000_000);
    profile.persist.per_kib.value = Picos(1_000_000);
    profile
}

/// One NIC engine writes 2 KiB, plain or durable, and notes how long that took.
struct Writing {
    region: Arc<Region>,
    durable: bool,
    took_ns: Arc<AtomicU64>,
}

impl Start for Writing {
    fn start<F: Fabric>(&self, fabric: &F) {
        if fabric.here() != EngineId::nic(NodeId(0), 0) {
            return;
        }
        let (task, region, durable) = (fabric.clone(), self.region.clone(), self.durable);
        let took_ns = self.took_ns.clone();
        fabric.spawn(async move {
            let begun = task.now();
            let written = match durable {
                true => task.dma_write_durable(&region, 0, &[&[7; 2_048]]),
                false => task.dma_write(&region, 0, &[7; 2_048]),
            };
            written.await.unwrap();
            took_ns.store(task.now().since(begun).0, Ordering::Relaxed);
        });
    }
}

fn written_in(profile: Profile, durable: bool) -> u64 {
    let view = View::new(1, 1, 1, 1).unwrap();
    let cluster = SimCluster::new(SimConfig::new(view, Arc::new(profile), 1));
    let region = Arc::new(Region::new(Bytes(2_048)));
    let took_ns = Arc::new(AtomicU64::new(0));
    let start = Writing { region: region.clone(), durable, took_ns: took_ns.clone() };
    cluster.start(Arc::new(start));
    let ended = cluster.run_until(&mut |_| took_ns.load(Ordering::Relaxed) > 0, Nanos(1 << 30));
    assert_eq!(ended, RunEnd::Done);
    assert_eq!(region.load(2_040).unwrap(), 0x0707_0707_0707_0707);
    took_ns.load(Ordering::Relaxed)
}

#[test]
fn durable_costs_nothing_on_battery_backed_memory() {
    let profile = || Profile::load("liquidio3").unwrap();
    assert_eq!(written_in(profile(), true), written_in(profile(), false));
}

#[test]
fn durable_takes_the_device_s_time_after_the_write_has_landed() {
    let (plain, durable) = (written_in(slow_device(), false), written_in(slow_device(), true));
    // The device's time, and up to a microsecond for the round that goes on to it.
    assert!((12_000..13_000).contains(&(durable - plain)), "{plain} ns, {durable} ns");
}

/// A completion that is held reaches nobody, and its write is not synced, until it is released.
#[test]
fn what_is_held_is_not_durable_before_it_is_released() {
    let view = View::new(1, 1, 1, 1).unwrap();
    let mut config = SimConfig::new(view, Arc::new(slow_device()), 1);
    (config.holds_completions, config.keeps_content) = (true, true);
    let cluster = SimCluster::new(config);
    let region = Arc::new(Region::for_log(Bytes(2_048), 3));
    let took_ns = Arc::new(AtomicU64::new(0));
    cluster.start(Arc::new(Writing { region, durable: true, took_ns: took_ns.clone() }));
    let run = || cluster.run_until(&mut |_| false, cluster.now() + Nanos::from_millis(1));
    run();
    let held = cluster.held_completions();
    assert_eq!(
        held.iter().map(|held| (held.of, held.bytes)).collect::<Vec<_>>(),
        [(Completes::Log, 2_048)]
    );
    assert_eq!((cluster.held_count(), took_ns.load(Ordering::Relaxed)), (1, 0));
    assert_eq!(cluster.medium_writes(NodeId(0)).len(), 1);
    assert!(cluster.synced_writes(NodeId(0)).is_empty());
    cluster.complete(held[0]);
    run();
    assert_eq!(cluster.synced_writes(NodeId(0))[0].bytes, [7; 2_048]);
    assert!(cluster.held_completions().is_empty());
    assert!(took_ns.load(Ordering::Relaxed) > 0);
}

#[test]
fn a_world_with_a_slow_device_conforms() {
    let view = View::new(3, 2, 2, 2).unwrap();
    let suite = Suite::new(&view);
    let cluster = SimCluster::new(SimConfig::new(view, Arc::new(slow_device()), 1));
    cluster.start(Arc::new(suite.clone()));
    let ended = cluster.run_until(&mut |_| suite.finished(), Nanos::from_secs(60));
    assert_eq!(ended, RunEnd::Done);
    assert_eq!(suite.failures(), [""; 0]);
}
