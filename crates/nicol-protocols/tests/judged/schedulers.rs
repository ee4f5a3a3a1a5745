//! Schedulers in front of engines: judged in both worlds, under message faults and overload.

use nicol_core::faults::FaultFamilies;
use nicol_core::units::Nanos;
use nicol_lab::bench::{self, BenchConfig, Length};
use nicol_lab::workloads::WorkloadSpec;

use crate::support::held;

const SCHEDULERS: [&str; 6] =
    ["round-robin", "alnico", "alnico-cpu-2", "alnico-cpu-n", "static-partition", "strife"];

fn config(system: &str, scheduler: &str, workload: &str, seed: u64) -> BenchConfig {
    let mut spec = WorkloadSpec::named(workload);
    spec.shrink();
    if workload == "ycsb-t" {
        spec.keys = Some(8);
        spec.records = Some(300);
    }
    let mut settings = vec![format!("scheduler={scheduler}"), "epoch_us=20".to_owned()];
    if scheduler.starts_with("alnico") {
        settings.push("feedback_us=50".to_owned());
    }
    if scheduler == "strife" {
        settings.push("batch_us=100".to_owned());
    }
    BenchConfig {
        nodes: 1,
        replicas: 1,
        client_nodes: 2,
        host_engines: Some(6),
        nic_engines: Some(1),
        clients: Some(12),
        length: Some(Length::Transactions(600)),
        warmup: Some(Nanos::ZERO),
        settings,
        ..BenchConfig::new(system, spec, "innova2", seed)
    }
}

#[test]
fn every_engine_is_serializable_behind_every_scheduler() {
    for (seed, scheduler) in (0..).zip(SCHEDULERS) {
        for system in ["silo", "2pl", "tictoc", "cicada"] {
            for workload in ["smallbank", "tpcc", "ycsb-t", "churn-ordered"] {
                let report = held(&config(system, scheduler, workload, seed));
                assert!(report.committed > 400, "{system} {scheduler} {workload}");
                assert_eq!(report.counters["schedule"]["refused"], 0);
            }
        }
    }
}

#[test]
fn a_scheduler_learns_what_is_hot_and_contention_falls() {
    let run = |scheduler: &str, settings: &[&str]| {
        let mut config = config("silo", scheduler, "ycsb-t", 3);
        config.workload.records = Some(5_000);
        config.workload.zipf_percent = Some(120);
        config.length = Some(Length::Transactions(8_000));
        config.settings.extend(settings.iter().map(ToString::to_string));
        held(&config).counters["schedule"].clone()
    };
    let netsto = run("round-robin", &[]);
    for settings in [&["planes=2"][..], &["ranking=artifact", "planes=1", "completion=slot"]] {
        let alnico = run("alnico", settings);
        assert!(alnico["vectors_published"] > 2, "{alnico:?}");
        assert!(alnico["aborts"] < netsto["aborts"], "{alnico:?} against {netsto:?}");
    }
}

#[test]
fn feedback_that_never_comes_and_a_stalled_worker_cost_no_request() {
    let silent = BenchConfig {
        settings: ["scheduler=alnico", "feedback_us=10000000", "epoch_us=20", "stall_us=40"]
            .map(str::to_owned)
            .to_vec(),
        ..config("silo", "alnico", "smallbank", 5)
    };
    let report = held(&silent);
    assert_eq!(report.committed + report.refused, 600);
    assert_eq!(report.counters["schedule"]["vectors_published"], 0);
}

#[test]
fn under_overload_requests_are_refused_in_words_and_goodput_stays() {
    let goodput = |clients| {
        let overload = BenchConfig {
            clients: Some(clients),
            host_engines: Some(3),
            length: Some(Length::Time(Nanos::from_millis(2))),
            ..config("silo", "alnico", "smallbank", 7)
        };
        held(&overload)
    };
    let (usual, most) = (goodput(60), goodput(600));
    assert!(most.counters["schedule"]["refused"] > 0, "{:?}", most.counters);
    assert!(most.throughput_per_s > 0.7 * usual.throughput_per_s, "{}", most.throughput_per_s);
}

#[test]
fn a_lost_frame_leaves_an_outcome_unknown_and_no_history_wrong() {
    for seed in 0..12 {
        let scheduler = SCHEDULERS[seed as usize % SCHEDULERS.len()];
        let faulty = BenchConfig {
            faults: FaultFamilies::MESSAGES,
            ..config("silo", scheduler, "smallbank", seed)
        };
        held(&faulty);
    }
}

#[test]
fn schedulers_work_on_threads() {
    for scheduler in SCHEDULERS {
        let live =
            BenchConfig { on: "threads".to_owned(), ..config("silo", scheduler, "smallbank", 1) };
        held(&live);
    }
}

#[test]
fn what_does_not_fit_is_refused_with_the_remedy() {
    let without = BenchConfig { client_nodes: 0, ..config("silo", "alnico", "smallbank", 1) };
    let few =
        BenchConfig { host_engines: Some(2), ..config("silo", "alnico-cpu-2", "smallbank", 1) };
    let mut alone = config("silo", "alnico", "smallbank", 1);
    alone.settings = vec!["planes=2".to_owned()];
    let mut timeless = config("silo", "alnico", "smallbank", 1);
    timeless.settings = vec!["timeout_us=500".to_owned()];
    let mut unknown = config("silo", "alnico", "smallbank", 1);
    unknown.settings = vec!["scheduler=fifo".to_owned()];
    for (config, words) in [
        (without, "--client-nodes 1"),
        (few, "--host-engines 2"),
        (alone, "nobody schedules: set scheduler=NAME before planes"),
        (timeless, "wait for no answer that may not come: set scheduler=NAME before timeout_us"),
        (unknown, "choose none or one of alnico"),
    ] {
        let error = format!("{:#}", bench::run(&config).err().unwrap());
        assert!(error.contains(words), "{error}");
    }
}
