//! Xenic in the simulated world, under every checker.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::BufReader;
use std::path::PathBuf;

use nicol_bench::bench::{BenchConfig, Length, run};
use nicol_bench::families::commit::Lookups;
use nicol_bench::systems;
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::history::{End, Operation};
use nicol_rt::{LogDevice, LogEntry, LogReader};
use nicol_workload::tpcc::Indices;

use crate::support::{held_run, short};

fn config(workload: &str, records: u64, on: &str, seed: u64) -> BenchConfig {
    let spec = WorkloadSpec {
        name: workload.to_owned(),
        records: Some(records),
        ..WorkloadSpec::default()
    };
    BenchConfig {
        clients: Some(8),
        length: Some(Length::Transactions(2_000)),
        ..short("xenic", spec, on, seed)
    }
}

#[test]
fn smallbank_commits_and_conserves_money_on_both_profiles() {
    for on in ["liquidio3", "connectx5"] {
        let ran = held_run(&config("smallbank", 1_000, on, 1));
        assert!(ran.report.committed > 1_000, "{on}: {}", ran.report.committed);
    }
}

/// Does the serializability checker catch what `config` breaks? Then the same run must hold when
/// nothing is broken: a protocol that lacks the step fails here.
fn is_distinguished(mut config: BenchConfig) -> bool {
    let check = run(&config).unwrap().report.check;
    let caught = !check.held() && check.held_promise == Some(false);
    if caught {
        config.settings.pop();
        // A protocol that is broken on purpose takes no shorter way.
        config.settings = ["local_paths=off", "multi_hop=off"].map(str::to_owned).to_vec();
        held_run(&config);
    }
    caught
}

/// Once it knows how far a group of keys reaches, a NIC asks its host only for what has gone.
#[test]
fn a_nic_asks_its_host_for_no_key_above_the_high_water_mark() {
    let asked = |warm: &str| {
        let mut config = config("tpcc", 0, "liquidio3", 3);
        config.workload.records = None;
        config.workload.shrink();
        config.workload.indices = Some(Indices::Records);
        config.length = Some(Length::Transactions(1_000));
        config.settings = vec!["local_paths=off".to_owned(), format!("warm_index={warm}")];
        Lookups::of(&held_run(&config).report)
    };
    let (warm, cold) = (asked("on"), asked("off"));
    assert!(warm.negative_rate > 0.02, "records that are not there yet: {warm:?}");
    assert!(warm.asked_rate < 0.001, "{warm:?}");
    assert!(cold.asked_rate > warm.asked_rate && cold.asked_rate < 0.1, "{cold:?}");
}

#[test]
fn tpcc_finds_the_same_orders_by_records() {
    for indices in [Indices::Records, Indices::Trees] {
        let mut config = config("tpcc", 0, "liquidio3", 5);
        config.workload.records = None;
        config.workload.shrink();
        config.workload.indices = Some(indices);
        config.length = Some(Length::Transactions(1_000));
        let report = held_run(&config).report;
        assert!(report.committed > 900, "{indices:?}: {}", report.committed);
    }
}

#[test]
fn records_of_ordered_tables_are_reached_from_other_nodes() {
    for seed in 0..12 {
        let mut config = config("churn-ordered", 40, "liquidio3", seed);
        config.faults.messages = seed % 2 > 0;
        let report = held_run(&config).report;
        assert!(report.committed > 500, "seed {seed}: {}", report.committed);
    }
}

#[test]
fn a_scan_without_range_versions_is_caught_within_200_seeds() {
    let caught = (0..200).any(|seed| {
        let mut config = config("tpcc", 0, "liquidio3", seed);
        config.workload.records = None;
        config.workload.shrink();
        // Load makes the host's trees lag behind its NIC.
        config.clients = Some(24);
        config.length = Some(Length::Transactions(2_000));
        config.settings.push("sabotage=ignores_range_versions".to_owned());
        is_distinguished(config)
    });
    assert!(caught, "an old scan was never caught by the serializability checker");
}

#[test]
fn message_faults_leave_no_lock_and_no_anomaly() {
    let mut seen = [0; nicol_core::txn::Abort::WITHOUT_CRASHES];
    let mut unknown = 0;
    for seed in 0..24 {
        for (workload, on) in [("smallbank", "liquidio3"), ("churn", "connectx5")] {
            let mut config = config(workload, 40, on, seed);
            config.faults.messages = true;
            config.settings = vec!["timeout_us=500".to_owned()];
            let xenic = systems::find("xenic").unwrap();
            config.settings.extend((xenic.variation)(xenic, &config.workload, seed));
            let report = held_run(&config).report;
            unknown += report.unknown;
            for (count, reason) in seen.iter_mut().zip(nicol_core::txn::Abort::NAMES) {
                *count += report.abort_reasons[reason];
            }
        }
    }
    assert!(unknown > 0, "no outcome was ever unknown");
    for (count, reason) in seen.iter().zip(nicol_core::txn::Abort::NAMES) {
        assert!(*count > 0, "no abort by {reason}");
    }
}

#[test]
fn tpcc_keeps_its_conditions_under_message_faults() {
    let (mut unknown, mut scarce) = (0, 0);
    for seed in 0..16 {
        for (workload, on) in [("tpcc", "liquidio3"), ("tpcc-no", "connectx5")] {
            let mut config = config(workload, 0, on, seed);
            config.workload.records = None;
            config.workload.shrink();
            config.length = Some(Length::Transactions(400));
            config.faults.messages = true;
            config.settings = vec!["timeout_us=500".to_owned()];
            let xenic = systems::find("xenic").unwrap();
            let varied = (xenic.variation)(xenic, &config.workload, seed);
            scarce += varied.len();
            config.settings.extend(varied);
            let report = held_run(&config).report;
            assert!(report.committed > 100, "seed {seed}: {workload}: {}", report.committed);
            unknown += report.unknown;
        }
    }
    assert!(unknown > 0, "no outcome was ever unknown");
    assert!(scarce > 0, "no log was ever small");
}

#[test]
fn a_report_says_what_the_records_took() {
    let report = held_run(&config("smallbank", 20_000, "liquidio3", 1)).report;
    let Some(memory) = report.memory else { return };
    // Two accounts each, three nodes, three copies; the bound on a shard is a little above.
    assert!((360_000..400_000).contains(&memory.records), "{memory:?}");
    assert!(memory.loading_peak_bytes <= memory.peak_bytes, "{memory:?}");
}

#[test]
fn execution_on_the_host_takes_the_same_decisions() {
    for place in ["host", "nic"] {
        let mut config = config("ycsb-t", 50, "liquidio3", 3);
        config.settings = vec![format!("execute_at={place}")];
        assert!(held_run(&config).report.committed > 500, "{place}");
    }
}

#[test]
fn a_small_index_and_a_small_log_only_cost_time() {
    let mut config = config("smallbank", 200, "liquidio3", 4);
    config.settings = vec!["index_objects=8".to_owned(), "log_bytes=4096".to_owned()];
    let small = held_run(&config).report.dma_per_txn;
    config.settings.clear();
    let large = held_run(&config).report.dma_per_txn;
    assert!(small > large, "nothing missed the index: {small} against {large}");
}

#[test]
fn an_object_is_found_in_every_way_and_each_is_counted() {
    // A crowded table with D_m = 4, read without slack, behind an index that holds few objects.
    let mut config = config("churn", 4_000, "liquidio3", 6);
    let settings = ["displacement_max=4", "slack=0", "slots_percent=100", "index_objects=64"];
    config.settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
    let found = Lookups::of(&held_run(&config).report);
    let shares = [
        ("the index", found.hit_rate),
        ("a negative entry", found.negative_rate),
        ("the first read", found.first_reads_per_miss),
        ("a second read", found.second_reads_per_miss),
        ("an overflow page", found.overflow_reads_per_miss),
    ];
    for (way, share) in shares {
        assert!(share > 0.0 && share < 1.0, "{way}: {found:?}");
    }
    assert!(found.negative_rate <= found.hit_rate && found.reads_per_miss >= 1.0, "{found:?}");
    // With every object cached, what is read is read once.
    config.settings = vec!["index_objects=100000".to_owned()];
    let cached = Lookups::of(&held_run(&config).report);
    assert!(cached.hit_rate > found.hit_rate, "{cached:?} {found:?}");
}

/// AMB-03: the host's workers move records in slots that NICs are reading.
#[test]
fn torn_reads_are_made_again_and_no_foreign_value_is_seen() {
    for seed in 1..4 {
        let mut config = config("churn", 200, "liquidio3", seed);
        config.host_engines = Some(4);
        config.nic_engines = None;
        config.clients = Some(64);
        config.length = Some(Length::Transactions(40_000));
        config.settings = vec!["index_objects=8".to_owned()];
        let report = held_run(&config).report;
        assert!(Lookups::of(&report).torn_reads > 0, "seed {seed}: {:?}", report.fields);
        // Churn's logic refuses a value that names another record.
        assert_eq!(report.refused, 0, "seed {seed}");
    }
}

#[test]
fn a_warm_index_reads_nothing_by_dma_and_a_cold_one_learns() {
    let lookups = |setting: &str| {
        let mut config = config("retwis", 2_000, "liquidio3", 6);
        config.settings = vec![setting.to_owned()];
        Lookups::of(&held_run(&config).report)
    };
    let (warm, cold) = (lookups("warm_index=on"), lookups("warm_index=off"));
    assert_eq!(warm.hit_rate, 1.0, "{warm:?}");
    assert!(cold.hit_rate > 0.0 && cold.hit_rate < 1.0, "{cold:?}");
}

/// One client per node, so that hardly anything waits.
#[test]
fn misses_that_must_read_on_do_so_side_by_side() {
    let measure = |value_bytes: u32| {
        let mut config = config("ycsb-t", 20_000, "liquidio3", 7);
        config.workload.keys = Some(18);
        config.workload.read_percent = Some(100);
        config.workload.value_bytes = Some(value_bytes);
        config.clients = Some(1);
        config.settings = vec!["index_objects=1".to_owned(), "local_paths=off".to_owned()];
        let report = held_run(&config).report;
        (Lookups::of(&report).reads_per_miss, report.latency_us.p50)
    };
    // The largest value that stands in a slot, and one that the slot points to.
    let (inline, pointed) = (measure(256), measure(264));
    assert!(pointed.0 > inline.0 + 0.9, "{pointed:?} against {inline:?}");
    // Six keys a shard: one more DMA read, of 1.3 us, follows the first ones, and not six.
    let more_us = pointed.1 - inline.1;
    assert!((1.0..4.0).contains(&more_us), "{more_us} us more: {pointed:?} against {inline:?}");
}

#[test]
fn tables_double_while_they_are_used_and_nothing_is_lost() {
    for (workload, on, seed) in [
        ("smallbank", "liquidio3", 1),
        ("churn", "liquidio3", 2),
        ("churn", "connectx5", 3),
        ("smallbank", "threads", 4),
        ("churn", "threads", 5),
    ] {
        let mut config = config(workload, 6_000, on, seed);
        config.settings = vec!["slots_percent=10".to_owned(), "index_objects=512".to_owned()];
        if on == "threads" {
            (config.host_engines, config.nic_engines) = (None, None);
            config.length = Some(Length::Transactions(20_000));
        }
        let lookups = Lookups::of(&held_run(&config).report);
        assert!(lookups.table_doublings > 3, "{workload} on {on}: {lookups:?}");
        assert!(lookups.retries_per_miss > 0.0, "{workload} on {on}: no search was in the way");
    }
}

#[test]
fn what_never_fits_the_log_is_refused_and_given_up() {
    let mut config = config("smallbank", 200, "connectx5", 4);
    config.settings = vec!["log_bytes=192".to_owned()];
    let report = held_run(&config).report;
    assert!(report.committed > 500, "smaller transactions commit: {}", report.committed);
    assert!(report.failed > 10, "{}", report.failed);
    assert_eq!(report.abort_reasons["no_resources"], 16 * report.failed);
}

/// A LOG that waits for space is asked for again meanwhile: then it may be appended twice, but
/// never after what a later transaction writes.
#[test]
fn a_log_that_waits_for_space_brings_no_deleted_record_back() {
    for seed in 50..58 {
        let mut config = config("churn", 40, "threads", seed);
        config.settings = vec!["log_bytes=192".to_owned(), "timeout_us=500".to_owned()];
        config.faults = "messages".parse().unwrap();
        (config.host_engines, config.nic_engines) = (None, None);
        config.threads = Some(2);
        assert!(held_run(&config).report.committed > 1_000);
    }
}

#[test]
fn threads_keep_every_promise() {
    for workload in ["smallbank", "churn", "retwis"] {
        let mut config = config(workload, 200, "threads", 5);
        config.length = Some(Length::Transactions(20_000));
        (config.host_engines, config.nic_engines) = (None, None);
        assert!(held_run(&config).report.committed > 5_000);
    }
}

#[test]
fn several_engines_of_a_side_share_their_node() {
    let mut config = config("smallbank", 100, "threads", 6);
    config.length = Some(Length::Transactions(20_000));
    config.threads = Some(4);
    held_run(&config);
}

#[test]
fn every_replica_s_log_file_holds_every_write() {
    let dir = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("xenic-log");
    let _gone = fs::remove_dir_all(&dir);
    let mut config = config("smallbank", 200, "threads", 8);
    config.length = Some(Length::Transactions(5_000));
    config.log_device = LogDevice::File { dir: dir.clone() };
    let ran = held_run(&config);
    // The second run of a benchmark is the recorded one; with three replicas of three shards each
    // node logs each write, as primary or as backup, and each record names its transaction.
    let committed = ran.history.operations.iter().filter(|operation| operation.end == End::Ok);
    let writers = committed.filter_map(Operation::txn).filter(|txn| !txn.writes.is_empty()).count();
    for node in 0..3 {
        let path = dir.join("run-2").join(format!("node-{node}.log"));
        let mut reader = LogReader::open(BufReader::new(File::open(path).unwrap())).unwrap();
        let mut transactions = BTreeSet::new();
        while let Some(entry) = reader.next().unwrap() {
            let LogEntry::Record(record) = entry else { panic!("{entry:?}") };
            // Head and kind words, then the body of the LOG or COMMIT, which the id opens.
            transactions.insert(record.bytes[16..24].to_vec());
        }
        assert_eq!(transactions.len(), writers, "node {node}");
    }
}
