//! Schedulers in front of engines: judged in both worlds, under message faults and overload.

use std::collections::BTreeSet;
use std::ops::Range;

use nicol_bench::bench::{self, BenchConfig, BenchRun, Length};
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::faults::{FaultFamilies, FaultPlan, Stall};
use nicol_core::history::End;
use nicol_core::units::Nanos;
use nicol_schedule::QUEUE_MAX;
use nicol_workload::tpcc::DeliveryMode;

use crate::support::{held, held_run};

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
        assert!(alnico["vectors_published"] > 1, "{alnico:?}");
        assert!(alnico["aborts"] < netsto["aborts"], "{alnico:?} against {netsto:?}");
    }
}

/// Many clients of four cores, the first of which stands still for a while, without feedback.
fn stalled(scheduler: &str, settings: &[&str]) -> BenchConfig {
    let stalls = vec![Stall { engine: 0, from: STALL.start, span: STALL.end.since(STALL.start) }];
    let mut config = BenchConfig {
        clients: Some(CLIENTS_OF_STALLED / 2),
        host_engines: Some(4),
        length: Some(Length::Transactions(OPERATIONS_OF_STALLED)),
        fault_plan: Some(FaultPlan { stalls, ..FaultPlan::none() }),
        ..config("silo", scheduler, "ycsb-t", 5)
    };
    // Reads: nobody waits for locks that the first core holds.
    let workload = &mut config.workload;
    (workload.records, workload.keys, workload.read_percent) = (Some(50_000), Some(4), Some(100));
    let never = ["feedback_us=10000000"].into_iter().filter(|_| scheduler.starts_with("alnico"));
    config.settings.extend(never.chain(settings.iter().copied()).map(str::to_owned));
    config
}

/// More clients than the queues of four workers have places.
const CLIENTS_OF_STALLED: usize = 4 * QUEUE_MAX + 32;
const OPERATIONS_OF_STALLED: u64 = 12 * CLIENTS_OF_STALLED as u64;
/// When the core stands still.
const STALL: Range<Nanos> = Nanos::from_micros(200)..Nanos::from_micros(1_700);

#[test]
fn feedback_that_never_comes_and_a_stalled_worker_cost_no_request() {
    for (scheduler, settings) in [
        ("alnico", &["completion=reply"][..]),
        // A core that stands still keeps the data that clients of two writes have sent it.
        // (decision 0042)
        ("alnico", &["completion=slot", "rpc=one-message"]),
        ("alnico", &["ranking=artifact", "rpc=one-message"]),
        ("alnico-cpu-2", &[]),
        ("alnico-cpu-n", &[]),
        ("round-robin", &[]),
        ("static-partition", &[]),
        ("strife", &["batch=16"]),
    ] {
        let BenchRun { report, history, .. } = held_run(&stalled(scheduler, settings));
        let case = format!("{scheduler} {settings:?}");
        // What was refused too often has failed, and its client knows.
        let ended = report.committed + report.refused + report.failed;
        assert_eq!((ended, report.unknown), (OPERATIONS_OF_STALLED, 0), "{case}");
        let counters = &report.counters["schedule"];
        assert_eq!(counters["vectors_published"], 0, "{case}");
        assert!(counters["refused"] > 0, "{case}: no queue was full");
        // Where somebody who goes on schedules by what workers have, the others' queues are full,
        // too, and they go on.
        if ["alnico", "alnico-cpu-2"].contains(&scheduler) {
            let while_stalled = |end: End, from: Nanos| {
                let ended = history.operations.iter().filter(|one| one.end == end);
                let times = ended.filter_map(|one| one.responded);
                times.filter(|at| (from.0..STALL.end.0).contains(at)).count()
            };
            let (all, late) = [STALL.start, STALL.start + STALL.end.since(STALL.start) / 2]
                .map(|from| while_stalled(End::Ok, from))
                .into();
            assert!(all > 1_000 && late > all / 3, "{case}: {late} of {all}");
            assert!(while_stalled(End::Failed, STALL.start) > 0, "{case}: none was refused");
        }
    }
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
fn what_strife_cannot_gather_is_refused() {
    let refused = |clients| {
        let mut overload = BenchConfig {
            clients: Some(clients),
            host_engines: Some(3),
            length: Some(Length::Time(Nanos::from_millis(2))),
            ..config("silo", "strife", "smallbank", 7)
        };
        // Few requests at a time are in the workers' queues, which are never full.
        overload.settings.extend(["batch=16", "batch_us=10"].map(str::to_owned));
        let report = held(&overload);
        assert!(report.committed > 1_000, "{}", report.committed);
        report.counters["schedule"]["refused"]
    };
    // Of each of two nodes, whose requests wait for two workers.
    assert_eq!(refused(QUEUE_MAX), 0);
    assert!(refused(QUEUE_MAX + 100) > 0, "what was gathered has no bound");
}

#[test]
fn a_cluster_of_strife_s_may_be_larger_than_a_worker_s_queue() {
    let mut config = config("silo", "strife", "ycsb-t", 4);
    // All meet at few records, and are one cluster.
    (config.workload.keys, config.workload.records) = (Some(2), Some(4));
    config.workload.zipf_percent = Some(150);
    config.clients = Some(QUEUE_MAX);
    config.length = Some(Length::Transactions(8 * QUEUE_MAX as u64));
    let report = held(&config);
    let counters = &report.counters["schedule"];
    assert_eq!((report.failed, counters["refused"]), (0, 0), "{counters:?}");
    assert_eq!(report.committed, 8 * QUEUE_MAX as u64);
}

/// Many clients of few workers, whose requests count until their slots are used again.
fn slots(scheduler: &str, clients: usize, cores: usize) -> BenchConfig {
    let mut config = BenchConfig {
        clients: Some(clients),
        host_engines: Some(cores),
        length: Some(Length::Transactions(20 * clients as u64)),
        ..config("silo", scheduler, "smallbank", 3)
    };
    config.settings.push("completion=slot".to_owned());
    config
}

#[test]
fn a_slot_counts_once_whichever_core_has_scheduled_its_requests() {
    for scheduler in ["alnico", "alnico-cpu-2", "alnico-cpu-n"] {
        // Each has been at every core that schedules: 300 slots at 6 cores are more than 6 workers
        // take.
        let report = held(&slots(scheduler, 150, 6));
        assert_eq!(report.counters["schedule"]["refused"], 0, "{scheduler}");
    }
}

#[test]
fn slots_that_are_full_of_what_is_done_starve_no_client() {
    for scheduler in ["alnico", "alnico-cpu-n"] {
        // 800 clients, and 3 workers with 255 places each.
        let ran = bench::run(&slots(scheduler, 400, 3)).unwrap();
        assert!(ran.report.check.held(), "{scheduler}: {:?}", ran.report.check);
        let ended = ran.history.operations.iter().filter(|one| one.end == End::Ok);
        let served: BTreeSet<u32> = ended.map(|one| one.client).collect();
        assert_eq!(served.len(), 800, "{scheduler}: others were refused again and again");
    }
}

#[test]
fn a_batch_of_strife_ends_whenever_requests_count_as_done() {
    let mut strife = config("silo", "strife", "smallbank", 2);
    strife.settings.push("completion=slot".to_owned());
    assert!(held(&strife).committed > 400);
}

#[test]
fn who_waits_for_a_batch_or_an_epoch_is_not_stuck() {
    let waits = |scheduler: &str, on: &str, settings: &[&str]| {
        let mut config = config("silo", scheduler, "smallbank", 2);
        config.settings.extend(settings.iter().map(ToString::to_string));
        config.length = Some(Length::Transactions(48));
        config.on = on.to_owned();
        held(&config).simulated_s.unwrap()
    };
    assert!(waits("strife", "innova2", &["batch_us=12000000", "epoch_us=100000"]) > 12.0);
    let logs = "innova2:persist.latency=5us";
    assert!(waits("round-robin", logs, &["log=on", "epoch_us=10000000"]) > 12.0);
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
fn clients_wait_for_a_batch_or_an_epoch_though_messages_may_be_lost() {
    for (scheduler, settings) in [
        ("strife", ["batch_us=500000", "epoch_us=1000"]),
        ("round-robin", ["log=on", "epoch_us=500000"]),
    ] {
        let mut faulty = BenchConfig {
            faults: FaultFamilies::MESSAGES,
            on: "innova2:persist.latency=5us".to_owned(),
            length: Some(Length::Transactions(240)),
            ..config("silo", scheduler, "smallbank", 3)
        };
        faulty.settings.extend(settings.map(str::to_owned));
        let report = held(&faulty);
        // Few replies are lost, which leaves an outcome unknown.
        assert!(report.unknown < 24, "{scheduler}: {} of {}", report.unknown, report.committed);
    }
}

#[test]
fn what_an_executed_transaction_wrote_is_known_though_its_reply_is_lost() {
    let mut known = 0;
    for seed in 0..12 {
        let scheduler = SCHEDULERS[seed as usize % SCHEDULERS.len()];
        let faulty = BenchConfig {
            faults: FaultFamilies::MESSAGES,
            ..config("tictoc", scheduler, "tpcc", seed)
        };
        let ran = held_run(&faulty);
        let unknown = ran.history.operations.iter().filter(|one| one.end == End::Unknown);
        for txn in unknown.filter_map(|one| one.txn()) {
            let executed = txn.writes.iter().any(|write| write.version.is_some());
            assert!(!(executed && txn.writes_more), "{scheduler}, seed {seed}: {txn:?}");
            known += u64::from(executed);
        }
    }
    assert!(known > 0, "no reply was lost");
}

/// Xenic with a scheduler before the coordinators of each node.
fn xenic(scheduler: &str, workload: &str, on: &str, seed: u64) -> BenchConfig {
    let mut settings = vec![format!("scheduler={scheduler}")];
    settings.push(format!("at_a_time={}", 1 + seed % 3));
    if scheduler.starts_with("alnico") {
        settings.push("feedback_us=50".to_owned());
    }
    if scheduler == "strife" {
        settings.push("batch_us=50".to_owned());
    }
    let mut spec = WorkloadSpec::named(workload);
    spec.shrink();
    spec.records = (workload != "tpcc").then_some(40);
    BenchConfig {
        host_engines: Some(4),
        nic_engines: Some(2),
        clients: Some(8),
        length: Some(Length::Transactions(400)),
        warmup: Some(Nanos::ZERO),
        settings,
        ..BenchConfig::new("xenic", spec, on, seed)
    }
}

#[test]
fn xenic_is_serializable_whoever_coordinates_its_transactions() {
    for (number, scheduler) in (0..).zip(SCHEDULERS) {
        for (seed, workload) in
            (6 * number..).zip(["smallbank", "churn", "churn-ordered", "retwis", "tpcc", "tatp"])
        {
            let report = held(&xenic(scheduler, workload, "liquidio3", seed));
            assert!(report.committed > 300, "{scheduler} {workload}: {}", report.committed);
            let given = report.counters["schedule"]["scheduled"];
            assert!(given >= report.committed, "{scheduler} {workload}: {given} were scheduled");
        }
    }
}

#[test]
fn xenic_behind_a_scheduler_survives_lost_messages_and_crashes() {
    for seed in 0..12 {
        let scheduler = SCHEDULERS[seed as usize % SCHEDULERS.len()];
        let families = ["messages", "messages,crashes"][seed as usize / 6];
        let mut faulty = BenchConfig {
            faults: families.parse().unwrap(),
            ..xenic(scheduler, "churn", "liquidio3", seed)
        };
        faulty.settings.push("timeout_us=500".to_owned());
        held(&faulty);
    }
}

#[test]
fn xenic_behind_a_scheduler_works_on_threads() {
    for (seed, scheduler) in (0..).zip(SCHEDULERS) {
        let report = held(&xenic(scheduler, "smallbank", "threads", seed));
        assert!(report.counters["schedule"]["scheduled"] > 0, "{scheduler}");
    }
}

#[test]
fn xenic_s_transactions_meet_less_where_alnico_has_them_coordinated() {
    let aborts = |scheduler: &str| {
        let mut config = xenic(scheduler, "ycsb-t", "liquidio3", 0);
        config.workload.records = Some(2_000);
        config.workload.zipf_percent = Some(120);
        config.workload.keys = Some(4);
        config.nodes = 1;
        config.replicas = 1;
        config.clients = Some(16);
        config.length = Some(Length::Transactions(6_000));
        held(&config).counters["schedule"]["aborts"]
    };
    let (netsto, alnico) = (aborts("round-robin"), aborts("alnico"));
    assert!(alnico < netsto, "{alnico} aborts, and {netsto} by turns");
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
    let mut turns = xenic("alnico-cpu-2", "smallbank", "liquidio3", 1);
    turns.host_engines = Some(2);
    let mut nobody = xenic("none", "smallbank", "liquidio3", 1);
    nobody.settings = vec!["at_a_time=2".to_owned()];
    let mut unknown = config("silo", "alnico", "smallbank", 1);
    unknown.settings = vec!["scheduler=fifo".to_owned()];
    // As many cores as the hardware has, unless others are asked for.
    let mut reserved = config("silo", "alnico", "smallbank", 1);
    reserved.host_engines = None;
    let mut many = BenchConfig { on: "innova2:cores.host=48".to_owned(), ..reserved.clone() };
    reserved.settings.push("reserved=24".to_owned());
    let mut mixed = xenic("alnico", "smallbank", "0-1=liquidio3,2=innova2", 1);
    (mixed.host_engines, mixed.nic_engines) = (None, None);
    mixed.settings.push("reserved=25".to_owned());
    many.settings.push("feedback_us=60".to_owned());
    let foreign = |scheduler, setting: &str| {
        let mut config = config("silo", scheduler, "smallbank", 1);
        config.settings.push(setting.to_owned());
        config
    };
    for (config, words) in [
        (without, "`client_nodes` 1"),
        (few, "`host_engines` 2"),
        (turns, "`host_engines` 2: 2 of a node schedule or are reserved; give 3"),
        (nobody, "nobody schedules; give `scheduler=NAME` as well, or leave at_a_time out"),
        (alone, "nobody schedules; give `scheduler=NAME` as well, or leave planes out"),
        (timeless, "wait for no answer that may not come; give `scheduler=NAME` as well"),
        (unknown, "choose none, alnico, alnico-cpu-2"),
        (reserved, "`host_engines` 24: 24 of a node schedule or are reserved; give 25 to 32"),
        (many, "`host_engines` 48: 0 of a node schedule or are reserved; give 1 to 32"),
        (mixed, "`host_engines` 24: 25 of a node schedule or are reserved; give 26 to 32"),
        (
            foreign("round-robin", "window=9"),
            "that is a setting of alnico, alnico-cpu-2, alnico-cpu-n",
        ),
        (foreign("static-partition", "batch=9"), "that is a setting of strife; leave it out"),
        (foreign("strife", "reserved=1"), "that is a setting of alnico"),
        (foreign("alnico", "batch_us=9"), "that is a setting of strife; leave it out"),
        (foreign("strife", "ranking=artifact"), "that is a setting of alnico"),
    ] {
        let error = format!("{:#}", bench::run(&config).err().unwrap());
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn a_run_that_ends_before_its_first_feedback_epoch_says_so() {
    let warnings = |scheduler: &str, settings: &[&str]| {
        let mut config = config("silo", scheduler, "smallbank", 3);
        config.settings.extend(settings.iter().map(ToString::to_string));
        let report = held(&config);
        let of_feedback = |line: &&String| line.contains("first feedback epoch");
        (report.warnings.iter().filter(of_feedback).count(), report.counters["schedule"].clone())
    };
    assert_eq!(warnings("alnico", &["feedback_us=10000000"]).0, 1);
    let (none, counters) = warnings("alnico", &[]);
    assert!(none == 0 && counters["vectors_published"] > 0, "{counters:?}");
    let (none, counters) = warnings("alnico", &["publish=never"]);
    assert!(counters["feedback_epochs"] > 0, "{counters:?}");
    assert_eq!((none, counters["vectors_published"]), (0, 0), "that was asked for");
    assert_eq!(warnings("round-robin", &[]).0, 0, "it has no feedback");
}

#[test]
fn two_clients_without_contention_are_answered_as_soon_as_one() {
    let median = |client_nodes, seed| {
        let mut config = config("silo", "round-robin", "ycsb-t", seed);
        config.client_nodes = client_nodes;
        (config.clients, config.workload.keys) = (Some(1), Some(1));
        config.workload.read_percent = Some(100);
        held(&config).latency_us.p50
    };
    for seed in 0..4 {
        let (one, two) = (median(1, seed), median(2, seed));
        assert!(two < 1.02 * one, "{two} us of two clients, {one} us of one");
    }
}

/// (TPC-C 2.7.2)
#[test]
fn no_client_waits_for_a_delivery_that_is_deferred() {
    let run = |delivery| {
        let mut config = config("silo", "round-robin", "tpcc", 3);
        config.workload.delivery = Some(delivery);
        let report = held(&config);
        report.kinds.into_iter().find(|kind| kind.name == "delivery").expect("it has Deliveries")
    };
    let deferred = run(DeliveryMode::Deferred);
    let answers = deferred.deferred.expect("they are answered");
    assert!(answers.answered > 5 && answers.answer_us.max < 0.1, "{answers:?}");
    assert_eq!(deferred.committed, answers.answered, "all of them are executed");
    assert!(deferred.latency_us.p50 > 5.0, "{:?}", deferred.latency_us);
    let interactive = run(DeliveryMode::Interactive);
    assert!(interactive.deferred.is_none() && interactive.committed > 5);
}
