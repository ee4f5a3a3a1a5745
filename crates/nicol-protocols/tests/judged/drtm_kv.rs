//! DrTM-KV's alternatives in both worlds: what they promise, and how they are broken.

use nicol_core::faults::{Crash, CrashScope, FaultPlan};
use nicol_core::units::Nanos;
use nicol_lab::bench::{BenchConfig, Length, run};
use nicol_lab::systems;
use nicol_lab::workloads::WorkloadSpec;

use crate::support::{held, is_noticed};

const SYSTEMS: [&str; 7] = [
    "drtm-kv:rnic",
    "drtm-kv:a1",
    "drtm-kv:a2",
    "drtm-kv:a3",
    "drtm-kv:a4",
    "drtm-kv:a5",
    "drtm-kv:a4+a5",
];
/// Long chains, extents that are soon used again, and a cache that holds a part.
const TIGHT: [&str; 3] = ["buckets=2", "extents=15", "cached=6"];

/// A run of half reads and half writes of 12 records.
fn config(system: &str, on: &str, seed: u64, settings: &[&str]) -> BenchConfig {
    let spec = WorkloadSpec { records: Some(12), ..WorkloadSpec::named("ycsb") };
    BenchConfig {
        settings: settings.iter().map(ToString::to_string).collect(),
        nodes: 1,
        client_nodes: 3,
        replicas: 1,
        host_engines: Some(2),
        nic_engines: Some(2),
        clients: Some(6),
        length: Some(Length::Transactions(900)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system, spec, on, seed)
    }
}

/// The card that a system runs on.
fn card(system: &str) -> &'static str {
    if system == SYSTEMS[0] { "connectx6" } else { "bluefield2" }
}

#[test]
fn every_alternative_is_linearizable_under_message_faults() {
    let (mut stale, mut chained, mut hits, mut misses) = (0, 0, 0, 0);
    for seed in 0..8 {
        for system in SYSTEMS {
            let mut config = config(system, card(system), seed, &TIGHT);
            config.faults.messages = seed % 2 == 1;
            let report = held(&config);
            assert!(report.committed > 700, "{system}: {}", report.committed);
            let counted = &report.counters["drtm-kv"];
            stale += counted["stale"];
            chained += counted["chained"];
            if system == "drtm-kv:a4+a5" {
                hits += counted["hits"];
                misses += counted["misses"];
            }
        }
    }
    assert!(stale > 0 && chained > 1_000, "{stale} stale, {chained} chained");
    assert!(hits > 100 && misses > 100, "{hits} hits, {misses} misses");
}

/// Of a value that is longer than a line a READ sees half of one version and half of the next
/// where its extent is used again meanwhile: few extents, and long values. With `trusts_extents` such a
/// value is returned, and the checkers see it.
#[test]
fn torn_values_occur_are_read_again_and_are_caught_if_they_are_trusted() {
    for system in ["drtm-kv:a1", "drtm-kv:a4"] {
        let torn = |seed, settings: &[&str]| {
            let mut config = config(system, card(system), seed, settings);
            config.workload.value_bytes = Some(1_024);
            config.workload.records = Some(2);
            run(&config).unwrap().report
        };
        let (mut seen, mut caught) = (0, 0);
        for seed in 0..12 {
            let report = torn(seed, &["buckets=2", "extents=4", "cached=1"]);
            assert!(report.check.held(), "{system}, seed {seed}: {:#?}", report.check.violations);
            seen += report.counters["drtm-kv"]["torn"];
            let sabotage = ["buckets=2", "extents=4", "cached=1", "sabotage=trusts_extents"];
            caught += u64::from(!torn(seed, &sabotage).check.held());
        }
        assert!(seen > 0 && caught > 0, "{system}: {seen} torn, {caught} caught");
    }
}

#[test]
fn what_a_crash_takes_is_refused() {
    let (mut refused, mut committed) = (0, 0);
    for (seed, system) in (0..).zip(SYSTEMS) {
        let mut config = config(system, card(system), seed, &[]);
        config.nodes = 2;
        let at = Nanos::from_micros(60 + 7 * seed);
        let restart_after = (seed % 2 == 0).then_some(Nanos::from_micros(500));
        let scope = if seed % 3 == 0 { CrashScope::Nic } else { CrashScope::Node };
        let crash = Crash { scope, node: 0, at, restart_after };
        config.fault_plan = Some(FaultPlan { crashes: vec![crash], ..FaultPlan::none() });
        config.length = Some(Length::Transactions(6_000));
        let report = held(&config);
        refused += report.abort_reasons["shard_unavailable"];
        committed += report.committed;
    }
    assert!(refused > 0 && committed > 2_000, "{refused} {committed}");
}

#[test]
fn threads_run_every_alternative_too() {
    for system in SYSTEMS {
        let mut config = config(system, "threads", 1, &TIGHT);
        (config.host_engines, config.nic_engines) = (None, None);
        assert!(held(&config).committed >= 800, "{system}");
    }
}

#[test]
fn what_is_broken_on_purpose_is_caught_within_200_seeds() {
    for system in SYSTEMS {
        let known = systems::find(system).unwrap();
        for name in (known.sabotages)() {
            if known.harmless.iter().any(|(harmless, _)| *harmless == name) {
                continue;
            }
            let sabotage = format!("sabotage={name}");
            let caught = (0..200).find(|&seed| {
                // Frames of several messages let puts follow each other more closely.
                let settings = [TIGHT[0], TIGHT[1], TIGHT[2], "aggregation=on", &sabotage];
                let mut config = config(system, card(system), seed, &settings);
                config.faults.messages = seed % 2 == 1;
                is_noticed(&config)
            });
            assert!(caught.is_some(), "{system}: {name}");
        }
    }
}
