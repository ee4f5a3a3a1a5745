//! PRISM-RS: linearizable under faults and crashes in both worlds, replicas that come back count
//! again, and no buffer is lost but as the paper prints it.

use nicol_core::faults::{Crash, CrashScope, FaultFamilies, FaultPlan};
use nicol_core::units::Nanos;
use nicol_lab::bench::{BenchConfig, Length, run};
use nicol_lab::workloads::WorkloadSpec;
use nicol_workload::ycsb::Popularity;

use crate::support::held;

const WORLDS: [&str; 3] = ["liquidio3", "connectx5", "connectx5-40g"];

/// Few blocks, so that operations meet.
fn config(on: &str, seed: u64) -> BenchConfig {
    let spec = WorkloadSpec {
        records: Some(4),
        value_bytes: Some(40),
        popularity: Some(Popularity::Uniform),
        ..WorkloadSpec::named("ycsb")
    };
    BenchConfig {
        settings: vec!["timeout_us=500".to_owned()],
        client_nodes: 2,
        host_engines: Some(2),
        nic_engines: Some(2),
        clients: Some(6),
        length: Some(Length::Transactions(600)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new("prism-rs", spec, on, seed)
    }
}

/// What a GET writes back has the tag that it has read, and often takes the buffer that had it before.
#[test]
fn what_is_written_back_under_an_old_tag_leaves_no_buffer_behind() {
    for seed in 4..6 {
        let spec = WorkloadSpec { records: Some(40), ..WorkloadSpec::named("login-media") };
        let mut config = BenchConfig {
            settings: vec!["timeout_us=500".to_owned()],
            nodes: 3,
            replicas: 3,
            host_engines: Some(2),
            nic_engines: Some(2),
            clients: Some(8),
            length: Some(Length::Transactions(2_000)),
            warmup: Some(Nanos::ZERO),
            ..BenchConfig::new("prism-rs", spec, "liquidio3", seed)
        };
        config.faults.messages = true;
        held(&config);
    }
}

#[test]
fn blocks_are_linearizable_under_lost_messages_and_crashes() {
    let (mut unknown, mut failed, mut committed) = (0, 0, 0);
    for seed in 0..24 {
        let families = if seed % 3 == 0 { "messages" } else { "messages,crashes" };
        let mut config = config(WORLDS[seed as usize % 3], seed);
        config.faults = families.parse().unwrap();
        config.client_nodes = if seed % 4 == 0 { 0 } else { 2 };
        let sizes = if seed % 2 == 0 { "fixed" } else { "variable" };
        let writes = if seed % 5 == 0 { "needed" } else { "always" };
        config.settings.push(format!("blocks={sizes}"));
        config.settings.push(format!("write_back={writes}"));
        let report = held(&config);
        unknown += report.unknown;
        failed += report.abort_reasons["fabric"];
        committed += report.committed;
    }
    assert!(unknown > 20 && failed > 5 && committed > 8_000, "{unknown} {failed} {committed}");
}

#[test]
fn blocks_are_linearizable_on_threads_whose_engines_crash() {
    let mut committed = 0;
    for seed in 0..6 {
        let families = ["crashes", "messages,crashes"][seed as usize % 2];
        let mut config = config("threads", seed);
        config.faults = families.parse().unwrap();
        config.threads = Some(1 + seed as usize % 3);
        committed += held(&config).committed;
    }
    assert!(committed > 50, "{committed}");
}

/// Each replica in turn, one at a time: without what the first copied, the last could not serve.
#[test]
fn replicas_that_come_back_count_in_quorums_again() {
    let crash = |node, at| Crash {
        scope: CrashScope::Node,
        node,
        at: Nanos::from_millis(at),
        restart_after: Some(Nanos::from_micros(100)),
    };
    let crashes = vec![crash(0, 1), crash(1, 41), crash(2, 81)];
    for on in WORLDS {
        let mut config = config(on, 5);
        config.settings = Vec::new();
        config.length = Some(Length::Time(Nanos::from_millis(120)));
        config.clients = Some(1);
        config.fault_plan = Some(FaultPlan { crashes: crashes.clone(), ..FaultPlan::none() });
        let report = held(&config);
        assert_eq!(report.failed, 0, "{on}: {:?}", report.abort_reasons);
        assert!(report.committed > 1_000, "{on}: {}", report.committed);
        let mut gone = config.clone();
        let last = gone.fault_plan.iter_mut().flat_map(|plan| &mut plan.crashes);
        last.for_each(|crash| crash.restart_after = None);
        let report = held(&gone);
        assert!(report.failed > 0, "{on}: two of three replicas are gone for good");
    }
}

/// AMB-12: as printed, nobody learns which buffer a chain has allocated whose CAS then fails.
#[test]
fn a_chain_as_printed_leaks_the_buffer_that_it_allocated_in_vain() {
    let mut caught = 0;
    for seed in 0..4 {
        let mut config = config("connectx5", seed);
        let leaked = held(&config).check.leaked["buffers"];
        assert_eq!(leaked, 0);
        config.settings.push("faithful=paper".to_owned());
        let check = run(&config).unwrap().report.check;
        assert_eq!(check.held_promise, Some(true), "it is linearizable as printed");
        caught += u64::from(check.leaked["buffers"] > 0 && !check.held());
    }
    assert!(caught > 0, "no buffer was allocated in vain");
}

/// Without spare buffers chains are refused, and tried again once others have been reported.
#[test]
fn a_replica_without_buffers_only_costs_time() {
    let mut config = config("connectx5", 3);
    config.faults = FaultFamilies::NONE;
    config.settings = vec!["spare_buffers=2".to_owned()];
    let report = held(&config);
    assert_eq!((report.failed, report.unknown), (0, 0));
}
