//! Pilaf in both worlds: what it promises, how it is broken, and why its READs verify themselves.

use std::panic;

use nicol_bench::bench::{BenchConfig, Length, run};
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::faults::{CrashScope, FaultPlan};

use crate::support::{crash, held, short};

const SYSTEMS: [&str; 2] = ["pilaf", "pilaf-software"];
const PROFILES: [&str; 2] = ["connectx5-40g", "liquidio3"];
/// A table so full that searches meet other keys, and extents that are soon used again.
const FULL: [&str; 2] = ["entries=20", "extents=30"];

fn config(system: &str, workload: &str, on: &str, seed: u64, settings: &[&str]) -> BenchConfig {
    let spec = WorkloadSpec { records: Some(16), ..WorkloadSpec::named(workload) };
    BenchConfig {
        settings: settings.iter().map(ToString::to_string).collect(),
        nodes: 2,
        client_nodes: 2,
        replicas: 1,
        ..short(system, spec, on, seed)
    }
}

#[test]
fn every_choice_is_linearizable_under_message_faults() {
    let (mut torn, mut collisions, mut seed) = (0, 0, 0);
    for system in SYSTEMS.repeat(8) {
        for index in ["index=probing", "index=cuckoo"] {
            for on in PROFILES {
                for faults in [false, true] {
                    seed += 1;
                    let settings = [FULL[1], index, "entries=28"];
                    let mut config = config(system, "churn", on, seed, &settings);
                    config.faults.messages = faults;
                    let report = held(&config);
                    assert!(report.committed > 500, "{config:?}: {}", report.committed);
                    torn += report.counters["pilaf"]["torn"];
                    collisions += report.counters["pilaf"]["collisions"];
                }
            }
        }
    }
    assert!(torn > 0 && collisions > 100, "{torn} torn, {collisions} collisions");
}

/// The READ of an extent that a PUT is writing brings parts of two values.
#[test]
fn without_its_crc_it_is_caught_and_with_it_it_passes() {
    for system in SYSTEMS {
        let with = |crc: &str, seed| {
            let settings = ["extents=7", "entries=64", crc];
            let mut config = config(system, "ycsb", "connectx5-40g", seed, &settings);
            config.nodes = 1;
            config.workload.records = Some(4);
            config.workload.value_bytes = Some(512);
            config
        };
        let caught = (0..50).find(|&seed| {
            let report = run(&with("crc=off", seed)).unwrap().report;
            assert_eq!(report.warnings.len(), 1, "a setting that breaks it warns");
            !report.check.held()
        });
        let seed = caught.unwrap_or_else(|| panic!("{system} without a CRC must be caught"));
        let report = held(&with("crc=on", seed));
        assert!(report.counters["pilaf"]["torn"] > 0, "the same run meets torn extents");
    }
}

#[test]
fn what_a_crash_takes_is_refused() {
    let (mut refused, mut committed) = (0, 0);
    for seed in 0..4 {
        let on = PROFILES[seed as usize % 2];
        let mut config = config(SYSTEMS[seed as usize / 2], "churn", on, seed, &[]);
        let restart_after_us = (seed % 2 == 0).then_some(500);
        let crash = crash(CrashScope::Node, 0, 60 + 7 * seed, restart_after_us);
        config.fault_plan = Some(FaultPlan { crashes: vec![crash], ..FaultPlan::none() });
        config.length = Some(Length::Transactions(6_000));
        let report = held(&config);
        refused += report.abort_reasons["shard_unavailable"];
        committed += report.committed;
    }
    assert!(refused > 0 && committed > 1_000, "{refused} {committed}");
}

#[test]
fn threads_run_it_too() {
    for index in ["index=probing", "index=cuckoo"] {
        let mut config = config("pilaf", "churn", "threads", 1, &["entries=28", index]);
        (config.host_engines, config.nic_engines) = (None, None);
        assert!(held(&config).committed >= 600);
    }
}

/// A record that a client was told of, and that nobody has asked for since: its survivor is.
#[test]
fn a_survivor_that_lacks_what_was_acknowledged_is_caught() {
    let caught = (0..200).find(|&seed| {
        let mut config = config("pilaf", "churn", "connectx5-40g", seed, &["sabotage=loses_puts"]);
        config.length = Some(Length::Transactions(200));
        config.faults.crashes = true;
        let check = run(&config).unwrap().report.check;
        check.violations.iter().any(|line| line.contains("on node"))
    });
    assert!(caught.is_some(), "a lost record must be missed where it was");
}
