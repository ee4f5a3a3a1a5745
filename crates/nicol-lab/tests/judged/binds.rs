//! What a report says binds, where it is known what must.

use nicol_bench::bench::{BenchConfig, Length};
use nicol_bench::binding::{Binding, CONFLICTS, LATENCY, Resource, SATURATED};
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::units::Nanos;

use crate::support::held;

const US: fn(u64) -> Nanos = Nanos::from_micros;

fn smallbank() -> WorkloadSpec {
    WorkloadSpec { records: Some(2_000), ..WorkloadSpec::named("smallbank") }
}

/// `system` on `on` under so many clients of each of three nodes.
fn load(system: &str, on: &str, clients: usize) -> BenchConfig {
    BenchConfig {
        clients: Some(clients),
        warmup: Some(US(100)),
        length: Some(Length::Time(US(200))),
        ..BenchConfig::new(system, smallbank(), on, 1)
    }
}

fn binding(config: &BenchConfig) -> Binding {
    held(config).binding
}

#[test]
fn a_slow_link_binds() {
    let found = binding(&load("xenic", "liquidio3:link.rate=2Gbps", 64));
    assert!(found.binds.starts_with("link_"), "{found:?}");
    let busiest = found.busiest.unwrap();
    assert!(busiest.resource == found.binds && busiest.share >= SATURATED, "{busiest:?}");
}

#[test]
fn few_nic_cores_bind() {
    let config = BenchConfig { nic_engines: Some(1), ..load("xenic", "liquidio3", 64) };
    assert_eq!(binding(&config).binds, "nic_cores");
}

#[test]
fn one_client_binds_nothing() {
    for system in ["xenic", "drtm-h"] {
        let on = if system == "xenic" { "liquidio3" } else { "connectx5" };
        let found = binding(&load(system, on, 1));
        assert_eq!(found.binds, LATENCY, "{found:?}");
        assert!(found.busiest.is_some_and(|busiest| busiest.share < SATURATED));
    }
}

#[test]
fn hot_keys_bind_by_conflicts() {
    let workload = WorkloadSpec {
        records: Some(10),
        keys: Some(2),
        read_percent: Some(0),
        ..WorkloadSpec::named("ycsb-t")
    };
    let found = binding(&BenchConfig { workload, ..load("drtm-h", "connectx5", 16) });
    assert_eq!(found.binds, CONFLICTS, "{found:?}");
    assert!(found.aborts_per_commit > 0.5, "{found:?}");
}

/// Entries of MINOS' queues are a resource as others are. [MINOS24 V-B4]
#[test]
fn a_queue_of_one_entry_binds() {
    let workload = WorkloadSpec {
        records: Some(1_000),
        value_bytes: Some(1_024),
        read_percent: Some(0),
        ..WorkloadSpec::named("ycsb")
    };
    let found = binding(&BenchConfig {
        workload,
        replicas: 1,
        settings: vec!["queue_entries=1".to_owned()],
        ..load("minos-o:synch", "minos-snic", 5)
    });
    assert!(found.binds.ends_with("fifo_entries"), "{found:?}");
}

/// All clients begin at once on one slow core, and wait for answers of a far node afterwards: what
/// is said to be busy is what was so in the measured time.
#[test]
fn utilization_is_that_of_the_measured_time() {
    let cores = |warmup: Nanos, span: Nanos| {
        let config = BenchConfig {
            host_engines: Some(1),
            warmup: Some(warmup),
            length: Some(Length::Time(span)),
            ..load("drtm-h", "connectx5:link.latency=1ms", 64)
        };
        let report = held(&config);
        let of = |used: &&Resource| used.name == "n0.host_cores";
        report.resources.iter().find(of).unwrap().utilization
    };
    let (first, later) = (cores(US(0), US(20)), cores(US(100), US(20)));
    assert!(first > 0.5, "the drain takes milliseconds and does not count: {first}");
    assert!(later < 0.1, "nor does the burst before the measured time: {later}");
}
