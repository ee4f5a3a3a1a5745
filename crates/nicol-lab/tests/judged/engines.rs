//! Engines in both worlds: judged on every workload, with cores that interleave at every access,
//! and broken on purpose.

use std::collections::HashMap;

use nicol_bench::bench::{self, BenchConfig, Length};
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::faults::{Crash, CrashScope, FaultPlan};
use nicol_core::units::Nanos;
use nicol_rt::LogDevice;
use nicol_workload::tpcc::{Mix, Terminals};

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
fn new_order_and_payment_alone_are_serializable_and_keep_tpcc_s_conditions() {
    for (system, setting) in ENGINES {
        for (seed, mix) in (0..6).zip([Mix::NewOrderAndPayment, Mix::PaymentOnly].iter().cycle()) {
            for on in ["innova2", "threads"] {
                let mut config = config(system, "tpcc", on, seed, &[setting]);
                config.workload.tpcc_mix = Some(*mix);
                config.workload.warehouses = Some(2);
                config.workload.terminals = (seed >= 2).then_some(Terminals::Own);
                config.clients = Some(20);
                let (committed, _) = held(&config);
                assert!(committed > 300, "{config:?}: {committed} committed");
            }
        }
    }
}

#[test]
fn a_read_that_a_writer_tears_is_seen_where_it_does_not_look_again() {
    // State and value of two instants are what no transaction has written. Few writers: what is
    // installed twice because nothing is validated would be told first.
    let torn = |system: &str, sabotage: &str| {
        (0..20).any(|seed| {
            let sabotage = format!("sabotage={sabotage}");
            let mut config = config(system, "ycsb-t", "innova2", seed, &[&sabotage]);
            config.workload.records = Some(4);
            config.workload.keys = Some(1);
            config.workload.read_percent = Some(95);
            let check = bench::run(&config).unwrap().report.check;
            check.violations.iter().any(|violation| violation.contains("with another value than"))
        })
    };
    for system in ["silo", "tictoc"] {
        assert!(torn(system, "tears_reads"), "{system}: writers come between state and value");
        assert!(!torn(system, "skips_validation"), "{system}: the second look at the word tells");
    }
}

/// The same with group commit, on a device that takes a while, until everything crashes.
fn logged(system: &str, workload: &str, seed: u64, setting: &str) -> BenchConfig {
    let at = Nanos::from_micros(120 + seed % 16 * 37);
    let crash = Crash { scope: CrashScope::All, node: 0, at, restart_after: None };
    BenchConfig {
        on: format!("innova2:persist.latency={}us", 1 + seed % 5 * 4),
        fault_plan: Some(FaultPlan { crashes: vec![crash], ..FaultPlan::none() }),
        clients: Some(24),
        length: Some(Length::Transactions(1_000_000)),
        ..config(
            system,
            workload,
            "innova2",
            seed,
            &[setting, "log=on", "epoch_us=12", "stall_us=3"],
        )
    }
}

#[test]
fn what_an_engine_has_acknowledged_is_read_back_after_a_crash_of_everything() {
    for (system, setting) in ENGINES {
        let (mut committed, mut unknown) = (0, 0);
        for (seed, workload) in (0..16).zip(["smallbank", "churn", "ycsb-t", "tpcc"].iter().cycle())
        {
            let config = logged(system, workload, seed, setting);
            let report = bench::run(&config).unwrap().report;
            assert!(report.check.held(), "{config:?}: {:?}", report.check);
            assert!(report.check.read_back.is_some_and(|records| records > 0), "{config:?}");
            (committed, unknown) = (committed + report.committed, unknown + report.unknown);
        }
        assert!(committed > 1_000 && unknown > 100, "{system}: {committed} and {unknown}");
    }
}

#[test]
fn behind_a_scheduler_answers_wait_for_their_epoch_and_workers_do_not() {
    let scheduled = |seed| {
        let mut config = logged("silo", "smallbank", seed, "spins=64");
        config.settings.push("scheduler=alnico".to_owned());
        let at = Nanos::from_micros(700 + 31 * seed);
        let crash = Crash { scope: CrashScope::All, node: 0, at, restart_after: None };
        let plan = FaultPlan { crashes: vec![crash], ..FaultPlan::none() };
        BenchConfig { client_nodes: 2, clients: Some(100), fault_plan: Some(plan), ..config }
    };
    for seed in 0..6 {
        let config = scheduled(seed);
        let report = bench::run(&config).unwrap().report;
        assert!(report.check.held(), "{config:?}: {:?}", report.check);
        assert!(report.check.read_back.is_some(), "{config:?}");
        // At most 74 epochs: one at a time, 6 workers would commit 444.
        assert!(report.committed > 600, "{}", report.committed);
    }
}

#[test]
fn a_log_device_that_syncs_nothing_is_caught() {
    let caught = |seed| {
        let liar =
            BenchConfig { syncs_nothing: true, ..logged("silo", "smallbank", seed, "spins=64") };
        !bench::run(&liar).unwrap().report.check.held()
    };
    assert!((0..16).any(caught));
}

#[test]
fn the_clients_of_a_core_take_turns_on_threads() {
    for (system, setting) in ENGINES {
        let config = BenchConfig {
            host_engines: Some(1),
            clients: Some(4),
            ..config(system, "smallbank", "threads", 1, &[setting])
        };
        let ran = bench::run(&config).unwrap();
        assert!(ran.report.check.held(), "{system}: {:?}", ran.report.check);
        let mut spans = HashMap::new();
        for one in &ran.history.operations {
            let (first, last) = spans.entry(one.client).or_insert((one.invoked, one.invoked));
            (*first, *last) = (one.invoked.min(*first), one.invoked.max(*last));
        }
        assert_eq!(spans.len(), 4, "{system}");
        let begun = spans.values().map(|(first, _)| first).max();
        let ended = spans.values().map(|(_, last)| last).min();
        assert!(begun < ended, "{system}: one client after the other: {spans:?}");
    }
}

#[test]
fn an_engine_on_threads_answers_once_its_log_file_has_it() {
    let dir = std::env::temp_dir().join(format!("nicol-engine-log-{}", std::process::id()));
    for (system, setting) in ENGINES {
        let live = BenchConfig {
            log_device: LogDevice::File { dir: dir.clone() },
            ..config(system, "smallbank", "threads", 3, &[setting, "log=on", "epoch_us=500"])
        };
        let report = bench::run(&live).unwrap().report;
        assert!(report.check.held(), "{system}: {:?}", report.check);
        assert!(report.check.read_back.is_some_and(|records| records > 0), "{system}");
    }
    std::fs::remove_dir_all(&dir).unwrap();
    let forgets = BenchConfig {
        log_device: LogDevice::File { dir },
        ..config("silo", "smallbank", "threads", 3, &[])
    };
    let error = bench::run(&forgets).err().unwrap().to_string();
    assert!(error.contains("give `log=on`"), "{error}");
}

/// A deletion is behind what a transaction has read, and before what it has scanned.
#[test]
fn a_scan_is_ordered_behind_deletions_whose_records_are_gone() {
    for (system, setting) in ENGINES {
        for seed in 40..48 {
            let settings = [setting, "epoch_us=1", "stall_us=20"];
            let mut config = config(system, "churn-ordered", "innova2", seed, &settings);
            config.workload.both_tables = Some(true);
            config.length = Some(Length::Transactions(4_000));
            held(&config);
        }
    }
}

#[test]
fn a_table_stays_small_although_its_records_come_and_go() {
    let records = |system: &str, clients: usize| {
        let mut config = config(system, "churn-ordered", "innova2", 1, &["epoch_us=5"]);
        config.length = Some(Length::Transactions(80_000));
        config.clients = Some(clients);
        config.recorded_run = false;
        let report = bench::run(&config).unwrap().report;
        assert!(report.check.held(), "{:?}", report.check);
        report.counters["records"]["places_used"]
    };
    // Every transaction looks for absent keys, so that without reclamation there would be a hundred
    // thousand. Six cores have room for 256 places each, and hardly ever run no transaction if each
    // has eight clients.
    for system in ["silo", "2pl", "tictoc", "cicada"] {
        for clients in [8, 48] {
            let used = records(system, clients);
            assert!(used < 3_000, "{system}, {clients} clients: {used} places for 48 keys");
        }
    }
}

#[test]
fn engines_run_on_one_server_and_say_so() {
    let three = BenchConfig { nodes: 3, ..config("silo", "smallbank", "innova2", 1, &[]) };
    let error = bench::run(&three).err().unwrap().to_string();
    assert!(error.contains("`nodes` 3") && error.contains("one server"), "{error}");
}
