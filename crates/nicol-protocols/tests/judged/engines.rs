//! Engines in both worlds: judged on every workload, with cores that interleave at every access, and
//! broken on purpose.

use std::sync::atomic::AtomicBool;

use nicol_core::units::Nanos;
use nicol_lab::bench::{self, BenchConfig, Length};
use nicol_lab::museum;
use nicol_lab::systems;
use nicol_lab::workloads::WorkloadSpec;

const ENGINES: [(&str, &str); 5] = [
    ("silo", "spins=64"),
    ("2pl", "waiting=no-wait"),
    ("2pl", "waiting=wait-die"),
    ("tictoc", "spins=64"),
    ("cicada", "spins=64"),
];

fn config(system: &str, workload: &str, on: &str, seed: u64, settings: &[&str]) -> BenchConfig {
    let mut spec = WorkloadSpec::named(workload);
    spec.shrink();
    if workload.starts_with("churn") {
        spec.records = Some(12);
    }
    if workload == "ycsb-t" {
        spec.keys = Some(16);
        spec.records = Some(200);
    }
    BenchConfig {
        nodes: 1,
        replicas: 1,
        host_engines: Some(if on == "threads" { 2 } else { 6 }),
        nic_engines: Some(1),
        clients: Some(8),
        length: Some(Length::Transactions(400)),
        warmup: Some(Nanos::ZERO),
        settings: settings.iter().map(ToString::to_string).collect(),
        ..BenchConfig::new(system, spec, on, seed)
    }
}

/// Runs it, and expects every check to hold; returns committed and aborted.
fn held(config: &BenchConfig) -> (u64, u64) {
    let report = bench::run(config).unwrap().report;
    assert!(report.check.held(), "{config:?}: {:?}", report.check);
    (report.committed, report.aborted)
}

#[test]
fn every_engine_is_serializable_on_every_workload_whatever_interleaves() {
    const WORKLOADS: [&str; 7] =
        ["smallbank", "churn", "churn-ordered", "ycsb-t", "retwis", "tatp", "tpcc"];
    for (system, setting) in ENGINES {
        let mut aborted = 0;
        for (seed, workload) in (0..18).zip(WORKLOADS.iter().cycle()) {
            let stalls = if seed < 6 { "stall_us=0" } else { "stall_us=3" };
            let config =
                config(system, workload, "innova2", seed, &[setting, "epoch_us=2", stalls]);
            let (committed, conflicts) = held(&config);
            assert!(committed > 300, "{config:?}: {committed} committed");
            aborted += conflicts;
        }
        assert!(aborted > 100, "{system}: transactions meet: {aborted} aborts");
    }
}

#[test]
fn every_engine_is_serializable_on_threads() {
    for (system, setting) in ENGINES {
        for (seed, workload) in ["smallbank", "churn-ordered", "tpcc"].iter().enumerate() {
            held(&config(system, workload, "threads", seed as u64, &[setting, "epoch_us=100"]));
        }
    }
}

#[test]
fn a_table_stays_small_although_its_records_come_and_go() {
    let records = |system: &str| {
        let mut config = config(system, "churn-ordered", "innova2", 1, &["epoch_us=5"]);
        config.length = Some(Length::Transactions(20_000));
        let report = bench::run(&config).unwrap().report;
        assert!(report.check.held(), "{:?}", report.check);
        report.counters["records"]["places_used"]
    };
    // Every transaction looks for absent keys, so that without reclamation there would be thousands.
    for system in ["silo", "2pl", "tictoc", "cicada"] {
        let used = records(system);
        assert!(used < 2_000, "{system}: {used} places for 48 keys");
    }
}

#[test]
fn engines_run_on_one_server_and_say_so() {
    let three = BenchConfig { nodes: 3, ..config("silo", "smallbank", "innova2", 1, &[]) };
    let error = bench::run(&three).err().unwrap().to_string();
    assert!(error.contains("--nodes 3") && error.contains("one server"), "{error}");
}

#[test]
fn every_broken_engine_is_caught_within_200_seeds() {
    let engines: Vec<_> = systems::all().filter(|system| system.family == "engine").collect();
    let stop = AtomicBool::new(false);
    let seen = museum::visit(&engines, &(0..200), 2, &stop, &|| ()).unwrap();
    assert_eq!(seen.len(), museum::count(&engines));
    for exhibit in &seen {
        assert!(exhibit.held(), "{exhibit:?}");
    }
}
