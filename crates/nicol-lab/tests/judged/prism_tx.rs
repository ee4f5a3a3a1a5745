//! PRISM-TX in both worlds: what it promises, how it is broken, what the paper's errata do.

use nicol_bench::bench::{BenchConfig, Length, run};
use nicol_bench::report::BenchReport;
use nicol_bench::workloads::WorkloadSpec;
use nicol_check::serializability;
use nicol_core::faults::{Crash, CrashScope, FaultPlan};
use nicol_core::history::Promise;
use nicol_core::rng::{Purpose, Stream};
use nicol_core::units::Nanos;

use crate::support::{held, refilled, short};

/// Profiles on which software on host cores, a card, and cores of a NIC execute chains.
const PROFILES: [&str; 3] = ["connectx5-40g", "connectx5-40g:verbs.chains=true", "liquidio3"];

fn config(workload: &str, on: &str, seed: u64, settings: &[&str]) -> BenchConfig {
    let records = if workload == "smallbank" { 10 } else { 8 };
    let mut spec = WorkloadSpec { records: Some(records), ..WorkloadSpec::named(workload) };
    if workload == "ycsb-t" {
        (spec.keys, spec.value_bytes, spec.zipf_percent) = (Some(3), Some(16), Some(0));
    }
    BenchConfig {
        settings: settings.iter().map(ToString::to_string).collect(),
        nodes: 2,
        client_nodes: 3,
        replicas: 1,
        clients: Some(4),
        ..short("prism-tx", spec, on, seed)
    }
}

/// Transactions that often write what they have not read.
fn blind(seed: u64, settings: &[&str]) -> BenchConfig {
    let mut config = config("ycsb-t", PROFILES[seed as usize % 3], seed, settings);
    config.workload.blind_percent = Some(70);
    config
}

/// Nodes of clients die, early and late.
fn with_dying_clients(config: BenchConfig) -> BenchConfig {
    let mut random = Stream::new(config.seed, Purpose::Test, 0);
    let mut crash = |node| Crash {
        scope: CrashScope::Node,
        node,
        at: Nanos::from_micros(50) + Nanos(random.below(500_000)),
        restart_after: None,
    };
    let crashes = (2..7).map(&mut crash).collect();
    BenchConfig {
        client_nodes: 6,
        fault_plan: Some(FaultPlan { crashes, ..FaultPlan::none() }),
        // Two leases, and a while after.
        length: Some(Length::Time(Nanos::from_millis(25))),
        ..config
    }
}

fn counted(report: &BenchReport, name: &str) -> u64 {
    report.counters["prism_tx"][name]
}

#[test]
fn transactions_are_serializable_under_message_faults_and_leave_nothing_behind() {
    let mut seen = [0; 6];
    for seed in 0..18 {
        for workload in ["ycsb-t", "churn", "smallbank", "blind"] {
            let mut config = match workload {
                "blind" => blind(seed, &[]),
                _ => config(workload, PROFILES[seed as usize % 3], seed, &[]),
            };
            config.faults.messages = seed % 2 == 0;
            let report = held(&config);
            assert!(report.committed > 400, "{workload} {seed}: {}", report.committed);
            let names = ["not_needed", "bumps", "bump_waits", "posted", "overtaken", "more_rounds"];
            for (seen, name) in seen.iter_mut().zip(names) {
                *seen += counted(&report, name);
            }
        }
    }
    assert!(seen.iter().all(|&seen| seen > 20), "{seen:?}");
}

/// AMB-53: of transactions that write all that they read, on two servers, and with reads alone.
#[test]
fn a_transaction_is_prepared_in_one_round_trip_or_its_reads_are_validated_first() {
    let measure = |settings: &[&str], read_percent| {
        let mut config = config("ycsb-t", "connectx5-40g", 1, settings);
        config.workload.read_percent = Some(read_percent);
        (config.client_nodes, config.clients) = (1, Some(1));
        held(&config)
    };
    for read_percent in [0, 100] {
        let report = measure(&[], read_percent);
        assert_eq!(counted(&report, "more_rounds"), 0, "{read_percent}");
    }
    let (one, first) = (measure(&[], 0), measure(&["prepare=reads-first"], 0));
    let rounds = counted(&first, "more_rounds");
    assert!(rounds.abs_diff(first.committed) <= 4, "{rounds} {}", first.committed);
    let saved = first.latency_us.p50 - one.latency_us.p50;
    assert!(saved > 2.5, "a round trip of a software chain: {saved} us");
    // A key that is only read, at a server without a write.
    let mixed = measure(&[], 50);
    let rounds = counted(&mixed, "more_rounds");
    assert!(rounds > 50 && rounds < mixed.committed, "{rounds} of {}", mixed.committed);
}

#[test]
fn reads_are_validated_first_under_faults_too() {
    for seed in 0..6 {
        let mut config = blind(seed, &["prepare=reads-first"]);
        config.faults.messages = true;
        held(&config);
        held(&with_dying_clients(blind(seed, &["prepare=reads-first"])));
    }
}

/// Answers that are lost make servers scan, while other chains have popped buffers and not written
/// yet.
#[test]
fn inserts_under_message_faults_leave_no_slot_that_points_to_a_freed_item() {
    for seed in [0, 11] {
        let mut config = config("tpcc", "liquidio3", seed, &[]);
        (config.workload.records, config.workload.items, config.workload.customers) =
            (None, Some(100), Some(30));
        (config.nodes, config.client_nodes, config.replicas) = (3, 0, 3);
        (config.clients, config.length) = (Some(8), Some(Length::Transactions(1_000)));
        config.faults.messages = true;
        let report = held(&config);
        assert!(report.committed >= 1_000 && counted(&report, "posted") > 1_000);
    }
}

/// New orders insert rows of a few bytes: a free list that runs dry makes those that have prepared
/// wait, and everybody else abort.
#[test]
fn inserted_rows_of_every_length_find_a_buffer() {
    for (seed, faults) in [(4, true), (5, false)] {
        let mut config = config("tpcc-no", "liquidio3", seed, &[]);
        config.workload.records = None;
        config.workload.shrink();
        (config.nodes, config.client_nodes, config.replicas) = (3, 0, 3);
        (config.clients, config.length) = (Some(8), Some(Length::Transactions(600)));
        config.faults.messages = faults;
        let report = held(&config);
        let (committed, aborted) = (report.committed + report.refused, report.aborted);
        assert!(committed >= 600 && aborted < 20 * committed, "{committed} {aborted}");
        assert_eq!(counted(&report, "receiver_not_ready"), 0, "each list has enough");
        // Of more keys than a chain holds the reads are validated first, and the writes at once.
        let (rounds, chains) = (counted(&report, "more_rounds"), counted(&report, "more_chains"));
        assert!(rounds >= committed && chains > committed, "{rounds} {chains}");
    }
}

#[test]
fn servers_end_what_dead_clients_leave() {
    let mut recovered = 0;
    for seed in 0..24 {
        let report = held(&with_dying_clients(blind(seed, &[])));
        assert!(report.committed > 300, "{seed}: {}", report.committed);
        recovered += counted(&report, "recovered");
    }
    assert!(recovered > 50, "{recovered}");
}

#[test]
fn what_a_crash_leaves_is_served_and_what_it_takes_is_refused() {
    let (mut refused, mut unknown, mut committed) = (0, 0, 0);
    for seed in 0..24 {
        let mut config = blind(seed, &[]);
        if seed % 3 == 0 {
            // Clients on the servers' nodes.
            config.client_nodes = 0;
            config.nodes = 3;
        }
        config.faults.crashes = true;
        config.faults.messages = seed % 2 == 0;
        let report = held(&config);
        refused += report.abort_reasons["shard_unavailable"];
        unknown += report.unknown;
        committed += report.committed;
    }
    assert!(refused > 0 && unknown > 0 && committed > 3_000, "{refused} {unknown} {committed}");
}

#[test]
fn clients_wait_for_buffers_and_lose_none() {
    let mut waits = 0;
    for seed in 0..3 {
        let scarce = ["spare_buffers=1"];
        let mut config = config("ycsb-t", PROFILES[seed as usize], seed, &scarce);
        config.workload.value_bytes = Some(64);
        let report = held(&config);
        waits += counted(&report, "receiver_not_ready");
        assert!(report.committed > 300, "{}", report.committed);
    }
    assert!(waits > 5, "{waits}");
}

/// Servers scan, or clients report; buffers are posted at once, or as free lists run low.
#[test]
fn buffers_are_recycled_in_every_way() {
    let (mut posted, mut found) = (0, 0);
    let mut seed = 0;
    for reclaim in ["reclaim=reports", "reclaim=scan"] {
        for watermark in ["watermark=off", "watermark=4"] {
            for workload in ["ycsb-t", "churn", "dying"] {
                seed += 1;
                let settings =
                    [&[reclaim, watermark, "spare_buffers=60"], refilled(reclaim, watermark)]
                        .concat();
                let mut config = match workload {
                    "dying" => with_dying_clients(blind(seed, &settings)),
                    _ => config(workload, PROFILES[seed as usize % 3], seed, &settings),
                };
                config.faults.messages = seed % 2 == 0;
                let report = held(&config);
                assert!(report.committed > 300, "{config:?}: {}", report.committed);
                posted += counted(&report, "posted");
                if reclaim == "reclaim=scan" {
                    found += counted(&report, "found");
                }
            }
        }
    }
    assert!(posted > 1_000 && found > 500, "{posted} {found}");
}

#[test]
fn threads_run_it_too() {
    let mut config = config("ycsb-t", "threads", 1, &[]);
    (config.host_engines, config.nic_engines) = (None, None);
    let report = held(&config);
    assert!(report.committed >= 600 && counted(&report, "posted") > 0);
}

/// The order is that of timestamps: a client whose clock is behind may run before what has ended.
#[test]
fn it_promises_serializability_since_strictness_does_not_hold() {
    let stale = (0..200).find(|&seed| {
        let mut config = blind(seed, &["clock_skew_us=500"]);
        config.workload.records = Some(4);
        config.workload.keys = Some(2);
        config.faults.messages = true;
        let mut ran = run(&config).unwrap();
        assert!(ran.report.check.held(), "seed {seed}: {:?}", ran.report.check.violations);
        assert_eq!(ran.history.promise, Promise::Serializable);
        ran.history.promise = Promise::StrictSerializable;
        !serializability::check(&ran.history).held()
    });
    assert!(stale.is_some(), "no history but strict ones: promise more");
}

/// AMB-13.
#[test]
fn as_printed_no_read_modify_write_commits() {
    let mut conflicts = 0;
    for seed in 0..3 {
        for settings in [&["own_reads=conflict"], &["faithful=paper"]] {
            let mut config = config("ycsb-t", "connectx5-40g", seed, settings);
            config.length = Some(Length::Time(Nanos::from_micros(1_000)));
            config.workload.read_percent = Some(0);
            let report = run(&config).unwrap().report;
            assert_eq!(report.committed, 0, "TS > PR cannot hold of what it has read");
            conflicts += report.abort_reasons["validate_locked"];
        }
        let mut config = config("ycsb-t", "connectx5-40g", seed, &[]);
        config.length = Some(Length::Time(Nanos::from_micros(1_000)));
        config.workload.read_percent = Some(0);
        assert!(held(&config).committed > 20);
    }
    assert!(conflicts > 50, "{conflicts}");
}

/// A printed reading is caught within 200 seeds, and its correction holds over the first of them.
fn is_distinguished(printed: &[&str], change: impl Fn(BenchConfig) -> BenchConfig) {
    let caught = (0..200).find(|&seed| {
        let mut config = change(blind(seed, printed));
        if config.fault_plan.is_none() {
            // Clients that cannot read a record go on trying.
            config.length = Some(Length::Time(Nanos::from_millis(2)));
        }
        let fixed = BenchConfig { settings: Vec::new(), ..config.clone() };
        held(&fixed);
        !run(&config).unwrap().report.check.held()
    });
    assert!(caught.is_some(), "{printed:?}");
}

/// AMB-14.
#[test]
fn as_printed_an_abort_loses_a_committed_write_or_blocks_a_record() {
    is_distinguished(&["bump=checked"], |config| config);
    // Not only does a record stay blocked: what has committed is not there.
    let lost = (0..1_000).find(|&seed| {
        let mut config = blind(seed, &["bump=checked"]);
        config.workload.keys = Some(2);
        config.length = Some(Length::Time(Nanos::from_millis(1)));
        let ran = run(&config).unwrap();
        !serializability::check(&ran.history).held()
    });
    assert!(lost.is_some(), "a reader must have missed a committed write");
}

/// AMB-14b.
#[test]
fn as_printed_a_record_becomes_unreadable_and_with_c_read_last_a_read_is_old() {
    is_distinguished(&["read_version=buffer"], |config| config);
    is_distinguished(&["read_version=slot-last"], |config| config);
}

/// AMB-14c.
#[test]
fn as_printed_a_client_that_dies_blocks_records_for_ever() {
    is_distinguished(&["staging=commit"], with_dying_clients);
}

/// A transaction of a dead client that is open while the server scans, and is ended afterwards.
#[test]
fn what_ends_after_a_scan_is_found_by_the_next() {
    for seed in [9, 18, 39, 74] {
        let settings = ["reclaim=scan", "watermark=off", "refill_us=20", "spare_buffers=60"];
        held(&with_dying_clients(blind(seed, &settings)));
    }
}
