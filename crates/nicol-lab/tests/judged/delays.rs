//! Message delays and crossings of PCIe from a transaction's begin to its answer, counted: where
//! one of them takes a hundred microseconds, next to nothing else does. So are DMA writes and the
//! log device. [Xenic21 2.2, 4.2, 5.1]

use nicol_bench::bench::{BenchConfig, Length, run};
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::units::Nanos;
use nicol_workload::tpcc::Shipped;

/// What a link takes, or a queue over PCIe, each way, in microseconds.
const DELAY_US: f64 = 100.0;
/// Beyond these, what a transaction takes at most.
const REST_US: f64 = 60.0;

fn config(system: &str, settings: &[&str], workload: WorkloadSpec, on: &str) -> BenchConfig {
    BenchConfig {
        settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
        host_engines: Some(1),
        nic_engines: Some(1),
        clients: Some(1),
        length: Some(Length::Transactions(300)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system, workload, on, 1)
    }
}

fn ycsb_t(keys: u16, read_percent: u8) -> WorkloadSpec {
    WorkloadSpec {
        name: "ycsb-t".to_owned(),
        records: Some(4_000),
        keys: Some(keys),
        read_percent: Some(read_percent),
        zipf_percent: Some(0),
        ..WorkloadSpec::default()
    }
}

/// Delays that nine of ten transactions do not exceed.
fn counted(config: &BenchConfig) -> u32 {
    let report = run(config).unwrap().report;
    assert!(report.check.held(), "{config:?}: {:#?}", report.check.violations);
    let (p90, rest) = (report.latency_us.p90, report.latency_us.p90 % DELAY_US);
    assert!(rest < REST_US, "{config:?}: {p90} us");
    (p90 / DELAY_US) as u32
}

/// The message delays of a transaction of `keys` keys, of which so many percent are only read;
/// those whose keys are all at home take fewer.
fn delays(system: &str, settings: &[&str], keys: u16, read_percent: u8) -> u32 {
    let profile = if system == "xenic" { "liquidio3" } else { "connectx5" };
    let on = format!("{profile}:link.latency={DELAY_US}us");
    counted(&config(system, settings, ycsb_t(keys, read_percent), &on))
}

/// The times that a transaction on the only node waits for a message to cross PCIe.
fn crossings(settings: &[&str], workload: WorkloadSpec) -> u32 {
    let to_nic = format!("pcie.to_nic_latency={DELAY_US}us");
    let on = format!("liquidio3:{to_nic}:pcie.to_host_latency={DELAY_US}us");
    let config = config("xenic", settings, workload, &on);
    counted(&BenchConfig { nodes: 1, replicas: 1, ..config })
}

const ONE_BY_ONE: [&str; 2] = ["local_paths=off", "multi_hop=off"];

#[test]
fn xenic_waits_for_what_each_step_must_know() {
    let found = |keys, read_percent| delays("xenic", &ONE_BY_ONE, keys, read_percent);
    // EXECUTE and its answer: one key read in one request is validated by nobody (AMB-34).
    assert_eq!(found(1, 100), 2);
    // EXECUTE, VALIDATE.
    assert_eq!(found(6, 100), 4);
    // EXECUTE, LOG; the answer does not wait for COMMIT.
    assert_eq!(found(1, 0), 4);
    assert_eq!(found(6, 0), 4);
    // EXECUTE, VALIDATE, LOG.
    assert_eq!(found(6, 50), 6);
}

/// [Xenic21 figure 7]
#[test]
fn a_multi_hop_transaction_waits_for_one_message_less() {
    assert_eq!(delays("xenic", &["local_paths=off"], 1, 0), 3, "SHIP, LOG, its ack");
    assert_eq!(delays("xenic", &["local_paths=off"], 1, 100), 2, "SHIP and its answer");
}

/// [Xenic21 5.7]
#[test]
fn without_combined_operations_locks_are_a_round_of_their_own() {
    let settings = [&ONE_BY_ONE[..], &["combined_ops=off"]].concat();
    assert_eq!(delays("xenic", &settings, 6, 0), 6, "READ, LOCK, LOG");
    assert_eq!(delays("xenic", &settings, 6, 50), 8, "READ, LOCK, VALIDATE, LOG");
}

#[test]
fn each_baseline_makes_the_rounds_of_its_paper() {
    for (system, written, read, mixed) in [
        // READ, LOCK, LOG; READ, VALIDATE; all four.
        ("farm", 6, 4, 8),
        ("drtm-h", 6, 4, 8),
        ("drtm-r", 6, 4, 8),
        // One RPC reads and locks.
        ("fasst", 4, 4, 6),
        // One transaction in three meets a full bucket, and walks on for a round.
        ("drtm-h-nc", 8, 6, 10),
        // Every key is locked, and none validated.
        ("drtm-r-original", 6, 4, 6),
    ] {
        let found = [0, 100, 50].map(|read_percent| delays(system, &[], 6, read_percent));
        assert_eq!(found, [written, read, mixed], "{system}");
    }
}

/// [Xenic21 4.2.2, 4.2.4]
#[test]
fn shipping_leaves_one_exchange_over_pcie() {
    let updates = || ycsb_t(4, 0);
    assert_eq!(crossings(&["local_paths=off", "execute_at=host"], updates()), 4);
    assert_eq!(crossings(&["local_paths=off", "execute_at=nic"], updates()), 2);
    assert_eq!(crossings(&[], updates()), 2, "a local write is told to the NIC, which answers");
    assert_eq!(crossings(&["local_read=strict"], ycsb_t(4, 100)), 2);
    assert_eq!(crossings(&["local_read=paper"], ycsb_t(4, 100)), 0);
}

/// [Xenic21 4.2.2] The NIC knows that the rows of a new order were never there.
#[test]
fn shipping_leaves_a_new_order_one_exchange() {
    let workload = WorkloadSpec {
        name: "tpcc-no".to_owned(),
        items: Some(1_000),
        customers: Some(100),
        shipped: Some(Shipped::NewOrder),
        ..WorkloadSpec::default()
    };
    assert_eq!(crossings(&["local_paths=off"], workload), 2);
}

/// Two nodes, two copies: each transaction has one backup. Where `slow` takes so long and nothing
/// else does, what a transaction waits for.
fn waits_for(slow: &str, read_percent: u8) -> u32 {
    let on = format!("liquidio3:{slow}={DELAY_US}us");
    let config = config("xenic", &["local_paths=off"], ycsb_t(1, read_percent), &on);
    counted(&BenchConfig { nodes: 2, replicas: 2, ..config })
}

/// [Xenic21 4.2 (5)] COMMIT's record, which nobody waits for, lands later.
#[test]
fn a_write_waits_until_its_log_record_has_landed_and_is_durable() {
    for slow in ["dma.write_latency", "persist.latency"] {
        assert_eq!(waits_for(slow, 0), 1, "{slow}");
        assert_eq!(waits_for(slow, 100), 0, "{slow}");
    }
}

/// [Xenic21 4.2 (6)] The only client has its answer at once, and then waits for its own lock.
#[test]
fn a_key_stays_locked_until_the_record_of_its_commit_has_landed() {
    const TRANSACTIONS: u64 = 50;
    let on = format!("liquidio3:dma.write_latency={DELAY_US}us");
    let mut config = config("xenic", &["local_paths=off"], ycsb_t(1, 0), &on);
    (config.nodes, config.replicas) = (1, 1);
    (config.workload.records, config.length) = (Some(1), Some(Length::Transactions(TRANSACTIONS)));
    let report = run(&config).unwrap().report;
    assert!(report.check.held(), "{:#?}", report.check.violations);
    assert_eq!(report.committed, TRANSACTIONS);
    assert!(report.abort_reasons["lock_conflict"] >= TRANSACTIONS - 1);
    let least_us = (TRANSACTIONS - 1) as f64 * DELAY_US;
    assert!(report.simulated_s.unwrap() * 1e6 > least_us, "{:?} s", report.simulated_s);
}
