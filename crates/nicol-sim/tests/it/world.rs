//! The simulated world: repeatable runs, emerging batches, faults that heal.

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::engine::Start;
use nicol_core::fabric::{Delivery, Fabric, HasDoorbell, Message, OneSided, Service, Timeout};
use nicol_core::faults::{Crash, CrashScope, FaultPlan, Partition, Stall};
use nicol_core::ids::{EngineId, NodeId, RKey, Side};
use nicol_core::memory::{Access, Region};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::{NodeSet, View};
use nicol_core::wire::{Malformed, Reader, Writer};
use nicol_sim::{Profile, RunEnd, SimCluster, SimConfig, SimReport};

struct Number(u64);

impl Message for Number {
    const KIND: u16 = 1;

    fn emit(&self, to: &mut Writer<'_>) {
        to.u64(self.0);
    }
}

/// Adds what arrives to a sum and answers.
struct Adder<F: Fabric> {
    fabric: F,
    sum: Arc<AtomicU64>,
}

impl<F: Fabric> Service for Adder<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let number = Reader::new(delivery.body).u64()?;
        self.sum.fetch_add(number, Ordering::Relaxed);
        if let Some(to) = delivery.reply_to {
            self.fabric.reply(to, &Number(number));
        }
        Ok(())
    }
}

/// Tasks of every host engine of node 0 call the NIC engines of the other nodes.
#[derive(Clone)]
struct Calls {
    tasks: u64,
    calls: u64,
    timeout: Timeout,
    sum: Arc<AtomicU64>,
    answered: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
}

impl Calls {
    fn new(tasks: u64, calls: u64) -> Self {
        let (sum, answered, failed) = Default::default();
        Self { tasks, calls, timeout: Timeout::Never, sum, answered, failed }
    }
}

impl Start for Calls {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        fabric.serve(Rc::new(Adder { fabric: fabric.clone(), sum: self.sum.clone() }));
        if here.node != NodeId(0) || here.side != Side::Host {
            return;
        }
        for task in 0..self.tasks {
            let (fabric, start) = (fabric.clone(), self.clone());
            fabric.clone().spawn(async move {
                let others = fabric.view().nodes() as u64 - 1;
                for call in 0..start.calls {
                    let node = NodeId((1 + (task + call) % others) as u16);
                    let to = fabric.view().nic_of(node, here.core);
                    match fabric.call(to, &Number(1 + call), start.timeout).await {
                        Ok(body) => {
                            let back = Reader::new(body.as_ref()).u64().unwrap();
                            assert_eq!(back, 1 + call, "a call gets its own answer");
                            start.answered.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(_) => {
                            start.failed.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    }
}

fn config(profile: &str, seed: u64) -> SimConfig {
    let profile = Arc::new(Profile::load(profile).unwrap());
    let view = View::new(3, 1, 2, profile.engines(Side::Nic).min(2)).unwrap();
    SimConfig::new(view, profile, seed)
}

fn run(config: SimConfig, start: impl Start) -> (RunEnd, SimReport) {
    let cluster = SimCluster::new(config);
    cluster.start(Arc::new(start));
    let end = cluster.settle(Nanos::from_secs(1));
    (end, cluster.report())
}

#[test]
fn the_same_seed_gives_the_same_run_and_another_seed_another() {
    let run = |seed| {
        let mut config = config("liquidio3", seed);
        config.faults = FaultPlan { loss: 50_000, duplicate: 50_000, ..FaultPlan::none() };
        run(config, Calls::new(4, 20)).1
    };
    assert_eq!(run(7), run(7));
    assert_ne!(run(7).digest, run(8).digest);
}

#[test]
fn batches_emerge_under_load_and_not_without() {
    for profile in Profile::list() {
        let messages_per_frame = |tasks| {
            let (end, report) = run(config(profile, 1), Calls::new(tasks, 50));
            assert_eq!(end, RunEnd::Done);
            report.stats.messages_sent as f64 / report.stats.frames_sent as f64
        };
        assert_eq!(messages_per_frame(1), 1.0, "{profile}: nothing waits to be batched");
        assert!(messages_per_frame(64) > 2.0, "{profile}");
    }
}

#[test]
fn aggregation_can_be_switched_off() {
    let mut config = config("liquidio3", 1);
    config.tuning.aggregation = false;
    let (_, report) = run(config, Calls::new(64, 50));
    assert_eq!(report.stats.messages_sent, report.stats.frames_sent);
}

#[test]
fn a_call_takes_effect_once_whatever_happens_to_frames() {
    let mut seen = nicol_core::faults::FaultCounts::default();
    let mut retransmitted = 0;
    for seed in 0..40 {
        let mut config = config("liquidio3", seed);
        config.faults = FaultPlan::messages(seed);
        let calls = Calls::new(3, 60);
        let (end, report) = run(config, calls.clone());
        assert_eq!(end, RunEnd::Done, "seed {seed}: {report:?}");
        let expected = 2 * 3 * (1..=60).sum::<u64>();
        assert_eq!(calls.sum.load(Ordering::Relaxed), expected, "seed {seed}");
        assert_eq!(calls.answered.load(Ordering::Relaxed), 2 * 3 * 60, "seed {seed}");
        retransmitted += report.stats.retransmissions;
        let faults = report.faults;
        assert!(faults.corrupted == 0 || report.stats.malformed > 0, "seed {seed}");
        seen.lost += faults.lost;
        seen.duplicated += faults.duplicated;
        seen.reordered += faults.reordered;
        seen.delayed += faults.delayed;
        seen.corrupted += faults.corrupted;
        seen.cut += faults.cut;
        seen.stalled += faults.stalled;
    }
    for count in [seen.lost, seen.duplicated, seen.reordered, seen.delayed, seen.corrupted] {
        assert!(count > 0, "{seen:?}");
    }
    assert!(seen.cut > 0 && seen.stalled > 0 && retransmitted > 0, "{seen:?}");
}

#[test]
fn a_partition_stops_calls_until_it_heals() {
    let heals = Nanos::from_millis(3);
    let cut = Partition {
        from: Nanos::ZERO,
        until: heals,
        side: NodeSet::from_iter([NodeId(0)]),
        one_way: false,
    };
    let mut config = config("liquidio3", 1);
    config.faults = FaultPlan { partitions: vec![cut], ..FaultPlan::none() };
    let calls = Calls::new(1, 1);
    let cluster = SimCluster::new(config);
    cluster.start(Arc::new(calls.clone()));
    assert_eq!(cluster.run_until(&mut |_| false, heals), RunEnd::Limit);
    assert_eq!(calls.answered.load(Ordering::Relaxed), 0);
    assert!(cluster.report().faults.cut > 0);
    assert_eq!(cluster.settle(Nanos::from_secs(1)), RunEnd::Done);
    assert_eq!(calls.answered.load(Ordering::Relaxed), 2);
}

#[test]
fn calls_to_a_crashed_node_time_out() {
    let mut config = config("liquidio3", 1);
    let scope = CrashScope::Node;
    let crash = |node| Crash { scope, node, at: Nanos(1), restart_after: None };
    config.faults = FaultPlan { crashes: vec![crash(1), crash(2)], ..FaultPlan::none() };
    let mut calls = Calls::new(2, 3);
    calls.timeout = Timeout::After(Nanos::from_millis(2));
    let (end, report) = run(config, calls.clone());
    assert_eq!(end, RunEnd::Done);
    assert_eq!(calls.failed.load(Ordering::Relaxed), 2 * 2 * 3);
    assert!(report.faults.dead > 0 && report.stats.timeouts > 0);
}

/// Also before its request would have been sent again for the first time, after 100 us.
#[test]
fn a_call_that_nobody_answers_times_out_when_it_says() {
    let scope = CrashScope::Node;
    let crash = |node| Crash { scope, node, at: Nanos(1), restart_after: None };
    for span in [20, 99, 100, 250, 900].map(Nanos::from_micros) {
        let mut config = config("liquidio3", 1);
        config.faults = FaultPlan { crashes: vec![crash(1), crash(2)], ..FaultPlan::none() };
        let mut calls = Calls::new(1, 1);
        calls.timeout = Timeout::After(span);
        let cluster = SimCluster::new(config);
        cluster.start(Arc::new(calls.clone()));
        let failed = &mut |_| calls.failed.load(Ordering::Relaxed) == 2;
        assert_eq!(cluster.run_until(failed, Nanos::from_millis(10)), RunEnd::Done);
        let late = cluster.now().since(span);
        assert!(cluster.now() >= span && late < Nanos::from_micros(5), "{span}: {late} late");
    }
}

/// Every host engine of node 0 adds to one counter in node 1's memory.
struct Counting {
    owner: EngineId,
    region: Arc<Region>,
    rkey: Arc<AtomicU64>,
}

impl Start for Counting {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        if here == self.owner {
            let rkey = fabric.register(&self.region, Access::ReadWrite);
            self.rkey.store(u64::from(rkey.0), Ordering::Relaxed);
        }
        if here.node != NodeId(0) || here.side != Side::Host {
            return;
        }
        let (fabric, rkey) = (fabric.clone(), self.rkey.clone());
        fabric.clone().spawn(async move {
            let rkey = RKey(rkey.load(Ordering::Relaxed) as u32);
            for round in 0..50 {
                let add = OneSided::FetchAdd { rkey, offset: 0, amount: 1 };
                fabric.one_sided(NodeId(1), add).await.unwrap();
                let offset = 8 + 8 * u64::from(here.core);
                let bytes = u64::to_le_bytes(round);
                let write = OneSided::Write { rkey, offset, bytes: &bytes };
                fabric.one_sided(NodeId(1), write).await.unwrap();
                let read = OneSided::Read { rkey, offset, len: 8 };
                let back = fabric.one_sided(NodeId(1), read).await.unwrap();
                assert_eq!(back.as_ref(), bytes, "a write is there once it resolves");
            }
            let past = OneSided::Read { rkey, offset: 64, len: 8 };
            assert!(fabric.one_sided(NodeId(1), past).await.is_err());
        });
    }
}

#[test]
fn one_sided_operations_take_effect_once_also_under_loss() {
    let profiles = ["liquidio3", "connectx5", "bluefield1"];
    for (profile, loss) in profiles.into_iter().flat_map(|name| [(name, 0), (name, 100_000)]) {
        for owner in [EngineId::host(NodeId(1), 0), EngineId::nic(NodeId(1), 1)] {
            let mut config = config(profile, 3);
            config.faults = FaultPlan { loss, ..FaultPlan::none() };
            let region = Arc::new(Region::new(Bytes(64)));
            let start = Counting { owner, region: region.clone(), rkey: Arc::default() };
            let (end, report) = run(config, start);
            assert_eq!(end, RunEnd::Done, "{profile} {owner}");
            assert_eq!(region.load(0), Ok(100), "{profile} {owner}");
            let repeats = report.stats.retransmissions + report.faults.verb_retries;
            assert_eq!(repeats > 0, loss > 0, "{profile} {owner}");
        }
    }
}

#[test]
fn a_full_queue_pushes_back_and_nothing_is_lost() {
    // On the second, frames are known to leave before they do.
    for name in ["liquidio3", "connectx5"] {
        let mut profile = Profile::load(name).unwrap();
        profile.link.queue_frames.value = 2;
        let view = View::new(3, 1, 2, 2).unwrap();
        let mut config = SimConfig::new(view, Arc::new(profile), 1);
        config.tuning.aggregation = false;
        let calls = Calls::new(100, 10);
        let (end, _) = run(config, calls.clone());
        assert_eq!(end, RunEnd::Done, "{name}");
        assert_eq!(calls.answered.load(Ordering::Relaxed), 2 * 100 * 10, "{name}");
    }
}

/// Host engine 0 of node 0 sends so many messages that nobody answers.
struct OneWay {
    messages: u64,
    sum: Arc<AtomicU64>,
}

impl Start for OneWay {
    fn start<F: Fabric>(&self, fabric: &F) {
        fabric.serve(Rc::new(Adder { fabric: fabric.clone(), sum: self.sum.clone() }));
        if fabric.here() == EngineId::host(NodeId(0), 0) {
            for _ in 0..self.messages {
                fabric.send(EngineId::host(NodeId(1), 0), &Number(1));
            }
        }
    }
}

#[test]
fn a_full_queue_empties_though_nobody_answers() {
    for name in Profile::list() {
        let mut config = config(name, 1);
        let mut profile = Profile::load(name).unwrap();
        profile.link.queue_frames.value = 2;
        config.profiles.fill(Arc::new(profile));
        config.tuning.aggregation = false;
        let start = OneWay { messages: 100, sum: Arc::default() };
        let sum = start.sum.clone();
        let (end, _) = run(config, start);
        assert_eq!((end, sum.load(Ordering::Relaxed)), (RunEnd::Done, 100), "{name}");
    }
}

#[test]
fn a_cluster_frees_what_its_tasks_hold() {
    let calls = Calls::new(3, u64::MAX);
    let cluster = SimCluster::new(config("liquidio3", 1));
    cluster.start(Arc::new(calls.clone()));
    assert_eq!(cluster.run_until(&mut |_| false, Nanos::from_micros(50)), RunEnd::Limit);
    assert!(Arc::strong_count(&calls.sum) > 1);
    drop(cluster);
    assert_eq!(Arc::strong_count(&calls.sum), 1);
}

/// NIC engine 0 writes a record into its host's memory; host engine 0 waits for the doorbell.
struct Ringing {
    region: Arc<Region>,
    seen: Arc<AtomicU64>,
    at_ns: Arc<AtomicU64>,
}

impl Start for Ringing {
    fn start<F: Fabric>(&self, fabric: &F) {
        let here = fabric.here();
        if here.node != NodeId(0) || here.core != 0 {
            return;
        }
        let (task, region) = (fabric.clone(), self.region.clone());
        if here.side == Side::Nic {
            fabric.spawn(async move {
                task.sleep_until(Nanos::from_micros(10)).await;
                task.dma_write(&region, 8, &7u64.to_le_bytes()).await.unwrap();
            });
            return;
        }
        let (seen, at_ns) = (self.seen.clone(), self.at_ns.clone());
        fabric.spawn(async move {
            let rings = region.doorbell().rings();
            let doorbell: Arc<dyn HasDoorbell> = region.clone();
            task.wait_for_doorbell(&doorbell, rings).await;
            seen.store(region.load(8).unwrap(), Ordering::Relaxed);
            at_ns.store(task.now().0, Ordering::Relaxed);
        });
    }
}

#[test]
fn a_dma_write_rings_the_host_also_in_a_second_cluster() {
    let region = Arc::new(Region::new(Bytes(16)));
    for profile in ["liquidio3", "connectx5", "liquidio3"] {
        region.store(8, 0).unwrap();
        let (seen, at_ns) = Default::default();
        let start = Arc::new(Ringing { region: region.clone(), seen, at_ns });
        let cluster = SimCluster::new(config(profile, 1));
        cluster.start(start.clone());
        assert_ne!(cluster.run_until(&mut |_| false, Nanos::from_micros(20)), RunEnd::Done);
        assert_eq!(start.seen.load(Ordering::Relaxed), 7, "{profile}");
        let at = start.at_ns.load(Ordering::Relaxed);
        assert!((10_050..11_500).contains(&at), "{profile}: rung at {at} ns");
    }
}

#[test]
fn host_frames_occupy_nic_cores_only_on_the_path() {
    for (profile, on_path) in [("liquidio3", true), ("connectx5", false), ("bluefield1", false)] {
        let (_, report) = run(config(profile, 1), Calls::new(8, 50));
        let forward = report.spent.iter().filter(|spent| spent.on == "forward");
        let spent: u64 = forward.map(|spent| spent.time.0).sum();
        assert_eq!(spent > 0, on_path, "{profile}");
    }
}

#[test]
fn a_crashed_nic_cuts_its_host_off_and_a_stalled_engine_only_waits() {
    let mut crashed = config("liquidio3", 1);
    let scope = CrashScope::Nic;
    let crash = Crash { scope, node: 0, at: Nanos(1), restart_after: None };
    crashed.faults = FaultPlan { crashes: vec![crash], ..FaultPlan::none() };
    let mut calls = Calls::new(1, 1);
    calls.timeout = Timeout::After(Nanos::from_millis(1));
    assert_eq!(run(crashed, calls.clone()).0, RunEnd::Done);
    assert_eq!(calls.failed.load(Ordering::Relaxed), 2);

    let span = Nanos::from_micros(500);
    let mut stalled = config("liquidio3", 1);
    let stalls = (0..12).map(|engine| Stall { engine, from: Nanos::ZERO, span }).collect();
    stalled.faults = FaultPlan { stalls, ..FaultPlan::none() };
    let calls = Calls::new(1, 1);
    let (end, report) = run(stalled, calls.clone());
    assert_eq!((end, calls.answered.load(Ordering::Relaxed)), (RunEnd::Done, 2));
    assert!(report.simulated > span && report.faults.stalled > 0);
    assert_eq!(report.stats.retransmissions, 0, "a stall alone leaves routes reliable");
}
