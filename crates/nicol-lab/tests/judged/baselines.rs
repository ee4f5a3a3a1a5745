//! Xenic's baselines in both worlds, under every checker.

use nicol_bench::bench::{BenchConfig, Length, run};
use nicol_bench::systems;
use nicol_bench::workloads::WorkloadSpec;
use nicol_commit::rdma_occ::SYSTEMS;
use nicol_core::txn::Abort;
use nicol_core::units::Nanos;
use nicol_workload::tpcc::Indices;

use crate::support::held_run;

const WORKLOADS: [&str; 6] = ["smallbank", "ycsb-t", "churn", "retwis", "tpcc", "tpcc-no"];

fn config(system: &str, workload: &str, on: &str, seed: u64) -> BenchConfig {
    let mut spec = WorkloadSpec { name: workload.to_owned(), ..WorkloadSpec::default() };
    spec.shrink();
    BenchConfig {
        host_engines: Some(2),
        nic_engines: Some(1),
        clients: Some(8),
        length: Some(Length::Transactions(1_000)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system, spec, on, seed)
    }
}

fn set(config: &mut BenchConfig, settings: &[&str]) {
    config.settings.extend(settings.iter().map(|&setting| setting.to_owned()));
}

/// That most transactions commit, some of them after aborts.
fn most_commit(config: &BenchConfig) {
    let report = held_run(config).report;
    let (system, workload) = (&config.system, &config.workload.name);
    assert!(report.committed > 700, "{system} under {workload}: {}", report.committed);
}

#[test]
fn every_baseline_commits_every_workload_on_both_profiles() {
    for system in SYSTEMS {
        for workload in WORKLOADS {
            most_commit(&config(system, workload, "connectx5", 1));
        }
        most_commit(&config(system, "smallbank", "liquidio3", 1));
    }
}

#[test]
fn message_faults_leave_no_lock_and_no_anomaly() {
    for system in SYSTEMS {
        let mut seen = [0; Abort::WITHOUT_CRASHES];
        let mut unknown = 0;
        for seed in 0..8 {
            for workload in WORKLOADS {
                let mut config = config(system, workload, "connectx5", seed);
                config.faults.messages = true;
                set(&mut config, &["timeout_us=500"]);
                let known = systems::find(system).unwrap();
                config.settings.extend((known.variation)(known, &config.workload, seed));
                let report = held_run(&config).report;
                unknown += report.unknown;
                for (count, reason) in seen.iter_mut().zip(Abort::NAMES) {
                    *count += report.abort_reasons[reason];
                }
            }
        }
        assert!(unknown > 0, "{system}: no outcome was ever unknown");
        for (count, reason) in seen.iter().zip(Abort::NAMES) {
            let never = reason == "validate_locked" && system == "drtm-r-original";
            assert!((*count == 0) == never, "{system}: {count} aborts by {reason}");
        }
    }
}

#[test]
fn tpcc_finds_the_same_orders_by_records() {
    for system in SYSTEMS {
        for indices in [Indices::Records, Indices::Trees] {
            let mut config = config(system, "tpcc", "connectx5", 7);
            config.workload.indices = Some(indices);
            most_commit(&config);
        }
    }
}

#[test]
fn records_of_ordered_tables_are_reached_from_other_nodes() {
    for system in SYSTEMS {
        for seed in 0..12 {
            let mut config = config(system, "churn-ordered", "connectx5", seed);
            config.faults.messages = seed % 3 > 0;
            if seed % 3 == 2 {
                set(&mut config, &["timeout_us=500"]);
            }
            most_commit(&config);
        }
    }
}

#[test]
fn unlocked_records_of_ordered_tables_are_caught_within_200_seeds() {
    for system in SYSTEMS {
        for sabotage in ["no_locks", "unlock_first"] {
            let caught = (0..200).any(|seed| {
                let mut config = config(system, "churn-ordered", "connectx5", seed);
                config.workload.records = Some(10);
                config.settings.push(format!("sabotage={sabotage}"));
                config.length = Some(Length::Transactions(400));
                run(&config).unwrap().report.check.held_promise == Some(false)
            });
            assert!(caught, "{system}: {sabotage} was never caught");
        }
    }
}

#[test]
fn every_combination_of_primitives_keeps_every_promise() {
    let executions: [&[&str]; 5] = [
        &["execution=rpc"],
        &["execution=read", "lock_by=rpc", "lock_keys=written"],
        &["execution=read", "lock_by=rpc", "lock_keys=every"],
        &["execution=read", "lock_by=one-sided", "lock_keys=written"],
        &["execution=read", "lock_by=one-sided", "lock_keys=every"],
    ];
    let mut seed = 0;
    for execution in executions {
        for validation in ["validation=read", "validation=2", "validation=rpc"] {
            for log in ["log_by=one-sided", "log_by=rpc"] {
                for commit in ["commit_by=one-sided", "commit_by=rpc"] {
                    seed += 1;
                    let rpc = if seed % 5 < 2 { "rpc_by=send" } else { "rpc_by=write" };
                    let system = if seed % 2 == 0 { "farm" } else { "drtm-h" };
                    let workload = if seed % 3 == 0 { "churn" } else { "smallbank" };
                    let mut config = config(system, workload, "connectx5", seed);
                    config.faults.messages = seed % 4 != 0;
                    set(&mut config, execution);
                    set(&mut config, &[validation, log, commit, rpc]);
                    most_commit(&config);
                    if workload == "churn" {
                        config.workload.name = "churn-ordered".to_owned();
                        most_commit(&config);
                    }
                }
            }
        }
    }
}

#[test]
fn a_small_log_and_no_cached_addresses_only_cost_time() {
    for system in SYSTEMS {
        for (workload, log) in [("smallbank", "log_bytes=1024"), ("tpcc", "log_bytes=16384")] {
            let mut config = config(system, workload, "connectx5", 2);
            config.faults.messages = true;
            set(&mut config, &[log]);
            if system.starts_with("drtm") && system != "drtm-h-nc" {
                set(&mut config, &["cached_addresses=8"]);
            }
            most_commit(&config);
        }
    }
}

#[test]
fn values_out_of_line_are_read_and_committed() {
    for system in SYSTEMS {
        for seed in 0..8 {
            let mut config = config(system, "ycsb-t", "connectx5", seed);
            config.faults.messages = seed > 0;
            set(&mut config, &["inline_bytes=8"]);
            most_commit(&config);
        }
    }
}

#[test]
fn buckets_of_every_size_and_long_chains_hold_all_records() {
    for system in ["farm", "drtm-h-nc", "drtm-h"] {
        for slots in ["bucket_slots=1", "bucket_slots=4", "bucket_slots=16"] {
            let mut config = config(system, "churn", "connectx5", 3);
            set(&mut config, &[slots, "slots_percent=50"]);
            most_commit(&config);
        }
    }
}

/// [Xenic21 2.2.2] FaRM locks, logs and commits by one-sided WRITEs alone; DrTM+H, which makes the
/// same rounds, by SENDs.
#[test]
fn farm_sends_no_message_once_its_engines_know_each_other() {
    let counted = |system, setting: &str| {
        let mut config = config(system, "smallbank", "connectx5", 1);
        config.length = Some(Length::Transactions(4_000));
        // Few conflicts: SENDs take longer, and retries send again.
        config.workload.records = Some(100_000);
        set(&mut config, &[setting]);
        let report = held_run(&config).report;
        (report.messages_per_txn, report.verbs_per_txn)
    };
    // HELLO and its answer, from 2 engines of each of 3 nodes to both other nodes, asked by at most
    // 4 clients each.
    let most = 6.0 * 2.0 * 2.0 * 4.0 / 3_500.0;
    let (messages, verbs) = counted("farm", "rpc_by=write");
    assert!(messages <= most, "farm: {messages} messages");
    let (sent, fewer) = counted("farm", "rpc_by=send");
    assert!(sent > 1.0, "farm by SENDs: {sent} messages");
    let (written, left) = (verbs - fewer, sent - messages);
    assert!((written - left).abs() < left / 10.0, "{written} WRITEs replace {left} messages");
    let (messages, verbs) = counted("fasst", "rpc_by=write");
    assert!(messages <= most, "fasst: {messages} messages");
    assert!(verbs > 1.0, "fasst: {verbs} verbs");
}

#[test]
fn a_message_log_that_a_few_messages_fill_only_costs_time() {
    for system in ["farm", "fasst"] {
        for (workload, seed) in [("smallbank", 1), ("tpcc", 2), ("churn", 3)] {
            for on in ["connectx5", "threads"] {
                let mut config = config(system, workload, on, seed);
                config.faults.messages = seed != 1;
                // What does not fit half of it travels in parts.
                set(&mut config, &["rpc_by=write", "message_log_bytes=128"]);
                if on == "threads" {
                    (config.host_engines, config.nic_engines) = (None, None);
                    config.length = Some(Length::Transactions(300));
                    // A message takes several turns of its reader and its writer: on a busy machine
                    // more than the timeout, after which everybody begins again and is as late.
                    set(&mut config, &["timeout_us=500000"]);
                    held_run(&config);
                } else {
                    most_commit(&config);
                }
            }
        }
    }
}

#[test]
fn every_baseline_keeps_its_promises_on_threads() {
    for (nth, system) in SYSTEMS.into_iter().enumerate() {
        // Half of the workloads for each system, each workload on half of the systems.
        for workload in WORKLOADS.into_iter().cycle().skip(nth).take(WORKLOADS.len() / 2) {
            let mut config = config(system, workload, "threads", 5);
            (config.host_engines, config.nic_engines) = (None, None);
            most_commit(&config);
        }
        for workload in ["churn", "churn-ordered"] {
            let mut config = config(system, workload, "threads", 6);
            (config.faults.messages, config.length) = (true, Some(Length::Transactions(400)));
            held_run(&config);
        }
    }
}
