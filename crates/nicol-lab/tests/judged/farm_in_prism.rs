//! FaRM as PRISM compares with it: two READs for a lookup, by the card or in software. [PRISM21
//! 8.1, 8.3]

use nicol_bench::bench::BenchConfig;
use nicol_bench::workloads::WorkloadSpec;

use crate::support::{held, short};

/// What `farm-software` has anyway.
const AS_IN_PRISM: [&str; 6] = [
    "slots_percent=200",
    "inline_bytes=8",
    "validation=read",
    "validate_keys=all",
    "rpc_by=send",
    "await_commit=on",
];

fn config(system: &str, on: &str, seed: u64) -> BenchConfig {
    let settings = if system == "farm" { &AS_IN_PRISM[..] } else { &[] };
    let spec = WorkloadSpec {
        records: Some(16),
        keys: Some(2),
        value_bytes: Some(64),
        zipf_percent: Some(0),
        ..WorkloadSpec::named("ycsb-t")
    };
    BenchConfig {
        settings: settings.iter().map(ToString::to_string).collect(),
        nodes: 2,
        client_nodes: 3,
        replicas: 1,
        clients: Some(4),
        ..short(system, spec, on, seed)
    }
}

#[test]
fn a_lookup_takes_two_reads_whoever_executes_them() {
    // One key, read and written: two READs, RPCs to lock and to commit, and in between a READ of
    // what is locked (AMB-54).
    let measure = |system, settings: &[&str]| {
        let mut config = config(system, "connectx5-40g", 1);
        config.settings.extend(settings.iter().map(ToString::to_string));
        config.clients = Some(1);
        config.workload.keys = Some(1);
        config.workload.records = Some(10_000);
        config.workload.read_percent = Some(0);
        held(&config)
    };
    let unlocked = measure("farm", &["validate_keys=unlocked"]);
    assert!((2.0..2.1).contains(&unlocked.verbs_per_txn), "{}", unlocked.verbs_per_txn);
    let (card, software) = (measure("farm", &[]), measure("farm-software", &[]));
    assert!((3.0..3.1).contains(&card.verbs_per_txn), "{}", card.verbs_per_txn);
    assert!(card.latency_us.p50 > unlocked.latency_us.p50 + 2.0, "a round trip more");
    assert!(software.verbs_per_txn < 0.01, "{}", software.verbs_per_txn);
    let more = software.messages_per_txn - card.messages_per_txn;
    assert!((5.9..6.3).contains(&more), "a READ in software is a message and its answer: {more}");
    assert!(software.latency_us.p50 > card.latency_us.p50 + 3.0 * 2.0, "software takes longer");
}

#[test]
fn it_is_strictly_serializable_under_message_faults_and_crashes_and_on_threads() {
    let mut unknown = 0;
    for seed in 0..8 {
        for system in ["farm", "farm-software"] {
            let on = ["connectx5-40g", "connectx5-40g:verbs.chains=true"][seed as usize % 2];
            let mut config = config(system, on, seed);
            config.faults.messages = seed % 4 > 1;
            config.faults.crashes = seed > 3;
            let report = held(&config);
            assert!(seed > 3 || report.committed == 600, "{}", report.committed);
            unknown += report.unknown;
        }
    }
    assert!(unknown > 0, "some were under way when their client died");
    let mut config = config("farm-software", "threads", 1);
    (config.host_engines, config.nic_engines) = (None, None);
    assert!(held(&config).committed >= 600);
}

/// Values that do not stand in their slots have memory, whatever the workload.
#[test]
fn farm_keeps_short_values_apart_in_tpcc_too() {
    for (system, settings) in [("farm", &["inline_bytes=8"][..]), ("farm-software", &[])] {
        let mut config = config(system, "connectx5-40g", 3);
        config.settings = settings.iter().map(ToString::to_string).collect();
        config.workload = WorkloadSpec {
            items: Some(100),
            customers: Some(30),
            ..WorkloadSpec::named("tpcc-no")
        };
        (config.nodes, config.client_nodes, config.replicas) = (3, 0, 3);
        assert!(held(&config).committed > 500, "{system}");
    }
}
