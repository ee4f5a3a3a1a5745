//! What a LOG of the RDMA systems carries, and the second round that truncates it. AMB-44

use std::sync::Arc;

use nicol_commit::rdma_occ::{LogContent, Node, RdmaOccConfig, SYSTEMS};
use nicol_core::faults::FaultPlan;
use nicol_core::units::{Bytes, Nanos};
use nicol_core::workload::Workload;
use nicol_workload::chooser::{Distribution, PartsPerMillion};
use nicol_workload::churn::{Churn, ChurnConfig};
use nicol_workload::ycsb_t::{YcsbT, YcsbTConfig};

use crate::cluster::{NODES, RUN, Ran, Run, run};

/// One client per node, so that hardly anything waits or aborts.
fn quiet() -> Run {
    Run { on: "connectx5", clients_per_node: 1, transactions: 600, ..RUN }
}

/// Space for a few records.
const SMALL_LOG: Bytes = Bytes(1_024);

/// Increments of so many records anywhere.
fn increments(keys_per_txn: usize) -> Arc<dyn Workload> {
    Arc::new(YcsbT::new(YcsbTConfig {
        nodes: NODES,
        records_per_node: 2_000,
        keys_per_txn,
        value_bytes: 64,
        read_fraction: PartsPerMillion(0),
        blind_fraction: PartsPerMillion(0),
        distribution: Distribution::Uniform,
        ship: false,
    }))
}

fn churn() -> Arc<dyn Workload> {
    let rows = 8 * u64::from(NODES);
    Arc::new(Churn::new(ChurnConfig { ship: false, ..ChurnConfig::new(NODES, rows) }))
}

fn config(system: &str, log_content: LogContent, log_acks: bool) -> RdmaOccConfig {
    let paper = RdmaOccConfig::named(system, 2_400, 64).unwrap();
    RdmaOccConfig { log_content, log_acks, ..paper }
}

fn held(how: &Run, config: &RdmaOccConfig, workload: &Arc<dyn Workload>, seed: u64) -> Ran {
    let ran = run::<Node>(how, config, workload.clone(), seed);
    assert!(ran.held(), "seed {seed}: {config:?}: {:#?} {:#?}", ran.anomalies, ran.wrong);
    ran
}

/// Four records are on 2.4 of 3 nodes, each of which has two backups: 4.8 records of their own
/// shard's writes, or 3 of all writes. The coordinator's own log is one of them.
#[test]
fn a_whole_write_set_goes_once_to_each_node_and_is_longer() {
    let workload = increments(4);
    let measure = |log_content| {
        let ran = held(&quiet(), &config("fasst", log_content, false), &workload, 1);
        let committed = ran.counts.committed as f64;
        (
            ran.stats.messages_sent as f64 / committed,
            ran.stats.message_bytes_sent as f64 / committed,
        )
    };
    let (part, whole) = (measure(LogContent::Shard), measure(LogContent::Whole));
    let fewer = part.0 - whole.0;
    assert!((2.0..3.2).contains(&fewer), "{fewer} messages fewer: LOGs and their answers");
    assert!(whole.1 > part.1 * 1.02, "bytes: {} and {}", part.1, whole.1);
}

/// One record has two backups: both are other nodes, or one is the coordinator itself. On average
/// 1.33 messages and as many answers.
#[test]
fn a_second_round_costs_a_message_and_its_answer_per_backup() {
    let workload = increments(1);
    for system in SYSTEMS {
        let measure = |log_acks| {
            let ran = held(&quiet(), &config(system, LogContent::Shard, log_acks), &workload, 2);
            (ran.stats.messages_sent as f64 / ran.counts.committed as f64, ran.latency)
        };
        let (without, with) = (measure(false), measure(true));
        let more = with.0 - without.0;
        // Where messages are WRITEs, they are not counted as messages.
        let expected = if system == "farm" { 0.0..0.1 } else { 2.5..2.9 };
        assert!(expected.contains(&more), "{system}: {more} messages more");
        assert!(with.1 > without.1, "{system}: the client waits for the second round");
    }
}

/// Every record's space is needed again and again: nobody waits for ever, and backups have the
/// writes of their shards only.
#[test]
fn every_form_of_the_log_survives_faults_and_a_small_log() {
    let churn = churn();
    for system in SYSTEMS {
        for (content, acks) in [
            (LogContent::Shard, false),
            (LogContent::Whole, false),
            (LogContent::Whole, true),
            (LogContent::Shard, true),
        ] {
            for seed in 0..3 {
                let timeout = Nanos::from_micros(500);
                let config =
                    RdmaOccConfig { log: SMALL_LOG, timeout, ..config(system, content, acks) };
                let faults = if seed > 0 { FaultPlan::messages(seed) } else { FaultPlan::none() };
                held(&Run { faults, ..RUN }, &config, &churn, seed);
            }
        }
    }
}

/// Two LOGs by RPC, each of which has space at one backup and waits for the other's space at
/// another.
#[test]
fn a_second_round_keeps_no_two_transactions_waiting_for_each_other() {
    let workload = churn();
    for seed in 0..3 {
        let config = RdmaOccConfig { log: Bytes(192), ..config("fasst", LogContent::Shard, true) };
        held(&RUN, &config, &workload, seed);
    }
}
