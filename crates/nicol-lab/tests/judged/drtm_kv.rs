//! DrTM-KV's alternatives in both worlds: what they promise, and how they are broken.

use nicol_bench::bench::{BenchConfig, Length, run};
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::faults::{CrashScope, FaultPlan};
use nicol_core::units::Nanos;
use nicol_workload::ycsb::Mix;

use crate::support::{crash, held, short};

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
const TIGHT: [&str; 2] = ["buckets=2", "extents=15"];

/// A run of half reads and half writes of 12 records.
fn config(system: &str, on: &str, seed: u64, settings: &[&str]) -> BenchConfig {
    let spec = WorkloadSpec { records: Some(12), ..WorkloadSpec::named("ycsb") };
    let part = system.contains("a5").then_some("cached=6");
    BenchConfig {
        settings: part.into_iter().chain(settings.iter().copied()).map(str::to_owned).collect(),
        nodes: 1,
        client_nodes: 3,
        replicas: 1,
        length: Some(Length::Transactions(900)),
        ..short(system, spec, on, seed)
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

#[test]
fn a_share_of_gets_asks_the_soc() {
    let asked = |share: &str| {
        let mut config = config("drtm-kv:a4+a5", "bluefield2", 1, &[TIGHT[0], share]);
        config.workload.mix = Some(Mix::C);
        let report = held(&config);
        let counted = &report.counters["drtm-kv"];
        (counted["hits"] + counted["misses"]) as f64 / report.committed as f64
    };
    assert_eq!((asked("asks_permille=0"), asked("asks_permille=1000")), (0.0, 1.0));
    let quarter = asked("asks_permille=250");
    assert!((0.2..0.3).contains(&quarter), "{quarter}");
}

/// Of a value that is longer than a line a READ sees half of one version and half of the next where
/// its extent is used again meanwhile: few extents, and long values. With `trusts_extents` such a
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
            let report = torn(seed, &["buckets=2", "extents=4"]);
            assert!(report.check.held(), "{system}, seed {seed}: {:#?}", report.check.violations);
            seen += report.counters["drtm-kv"]["torn"];
            let sabotage = ["buckets=2", "extents=4", "sabotage=trusts_extents"];
            caught += u64::from(!torn(seed, &sabotage).check.held());
        }
        assert!(seen > 0 && caught > 0, "{system}: {seen} torn, {caught} caught");
    }
}

/// Other ways of the same: copies of the index, and values that clients READ of the SoC.
const WAYS: [(&str, &[&str]); 4] = [
    ("drtm-kv:a4", &["copies=4"]),
    ("drtm-kv:a4+a5", &["copies=3"]),
    ("drtm-kv:a5", &["kept_by=read"]),
    ("drtm-kv:a5", &["kept_by=read", "copies=4"]),
];

#[test]
fn copies_and_values_read_of_the_soc_are_linearizable_too() {
    let mut hits = 0;
    for seed in 0..8 {
        for (system, settings) in WAYS {
            let mut config = config(system, card(system), seed, &TIGHT);
            config.settings.extend(settings.iter().map(ToString::to_string));
            config.faults.messages = seed % 2 == 1;
            let report = held(&config);
            assert!(report.committed > 700, "{system} {settings:?}: {}", report.committed);
            if system == "drtm-kv:a5" {
                hits += report.counters["drtm-kv"]["hits"];
            }
        }
    }
    assert!(hits > 1_000, "{hits} hits");
}

#[test]
fn threads_run_copies_and_values_read_of_the_soc() {
    for (system, settings) in WAYS {
        let mut config = config(system, "threads", 1, &TIGHT);
        config.settings.extend(settings.iter().map(ToString::to_string));
        (config.host_engines, config.nic_engines) = (None, None);
        assert!(held(&config).committed >= 800, "{system} {settings:?}");
    }
}

/// Gets of a few records by eight machines, a million a second.
fn rate_of_hot_gets(system: &str, settings: &[&str]) -> f64 {
    let mut config = config(system, "server=bluefield2,client=connectx4", 1, settings);
    config.client_nodes = 11;
    config.host_engines = Some(24);
    config.nic_engines = Some(8);
    config.clients = Some(72);
    config.workload.records = Some(4);
    config.workload.value_bytes = Some(64);
    config.workload.mix = Some(Mix::C);
    config.length = Some(Length::Time(Nanos::from_micros(150)));
    config.warmup = Some(Nanos::from_micros(100));
    held(&config).throughput_per_s / 1e6
}

/// What is asked for most stands in one row of the SoC's memory, and one bank serves it. [OffPath23
/// advice 1] READs of a bucket and of a value in rows of other copies go on side by side.
#[test]
fn copies_of_hot_records_make_reads_of_the_soc_faster() {
    let settings = ["kept_by=read", "copies=1"];
    let alone = rate_of_hot_gets("drtm-kv:a5", &settings);
    let copied = rate_of_hot_gets("drtm-kv:a5", &[settings[0], "copies=8"]);
    assert!(copied > alone * 1.2, "{alone:.1} M/s, with copies {copied:.1} M/s");
}

/// Mean latency, us, of chunks of 1,000 B that a SoC posts by path 3 in pieces.
fn latency_of_pieces(piece_bytes: u64, doorbell_batch: &str) -> f64 {
    let batch = format!("doorbell_batch={doorbell_batch}");
    let pieces = format!("segment_bytes={piece_bytes}");
    let mut config = config("linefs:a1", "bluefield2", 1, &[&batch, &pieces, "compress_ps=0"]);
    (config.nodes, config.client_nodes, config.replicas) = (3, 0, 3);
    (config.clients, config.workload.value_bytes) = (Some(16), Some(1_000));
    held(&config).latency_us.mean
}

/// Sixteen pieces leave sooner with one doorbell, two with a doorbell each; what adapts is near the
/// better one of both. [OffPath23 advice 4]
#[test]
fn adaptive_doorbells_suit_few_pieces_and_many() {
    let of =
        |piece_bytes| ["64", "adaptive", "1"].map(|batch| latency_of_pieces(piece_bytes, batch));
    let [shared, adaptive, each] = of(64);
    assert!(adaptive < each * 0.8 && adaptive < shared * 1.03, "{shared} {adaptive} {each}");
    let [shared, adaptive, each] = of(512);
    assert!(adaptive < shared * 0.95 && adaptive < each * 1.03, "{shared} {adaptive} {each}");
}

#[test]
fn what_a_crash_takes_is_refused() {
    let (mut refused, mut committed) = (0, 0);
    for (seed, system) in (0..).zip(SYSTEMS) {
        let mut config = config(system, card(system), seed, &[]);
        config.nodes = 2;
        let scope = if seed % 3 == 0 { CrashScope::Nic } else { CrashScope::Node };
        let restart_after_us = (seed % 2 == 0).then_some(500);
        let crash = crash(scope, 0, 60 + 7 * seed, restart_after_us);
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
