//! PRISM-RS: linearizable under faults and crashes in both worlds, replicas that come back count
//! again, and no buffer is lost but as the paper prints it.

use nicol_bench::bench::{BenchConfig, Length, run};
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::faults::{CrashScope, FaultFamilies, FaultPlan};
use nicol_core::units::Nanos;

use crate::support::{crash, few_records, held, refilled, short};

const WORLDS: [&str; 3] = ["liquidio3", "connectx5", "connectx5-40g"];

/// Few blocks, so that operations meet.
fn config(on: &str, seed: u64) -> BenchConfig {
    let spec = few_records(4);
    BenchConfig {
        settings: vec!["timeout_us=500".to_owned()],
        client_nodes: 2,
        ..short("prism-rs", spec, on, seed)
    }
}

/// What a GET writes back has the tag that it has read, and often takes the buffer that had it
/// before.
#[test]
fn what_is_written_back_under_an_old_tag_leaves_no_buffer_behind() {
    for seed in 4..6 {
        let spec = WorkloadSpec { records: Some(40), ..WorkloadSpec::named("login-media") };
        let mut config = BenchConfig {
            settings: vec!["timeout_us=500".to_owned()],
            nodes: 3,
            replicas: 3,
            clients: Some(8),
            length: Some(Length::Transactions(2_000)),
            ..short("prism-rs", spec, "liquidio3", seed)
        };
        config.faults.messages = true;
        held(&config);
    }
}

/// With hardly a buffer to spare, one that is posted is popped at once, and a report of it that
/// comes late finds it between two uses: it must not be posted again.
#[test]
fn a_late_report_posts_no_buffer_that_a_scan_has_posted() {
    for seed in [13, 57] {
        let spec = WorkloadSpec { records: Some(2), ..WorkloadSpec::named("ycsb") };
        let mut config = BenchConfig {
            settings: ["timeout_us=500", "spare_buffers=4"].map(str::to_owned).to_vec(),
            clients: Some(8),
            length: Some(Length::Transactions(2_000)),
            ..short("prism-rs", spec, "connectx5-40g:verbs.chains=true", seed)
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
    let crash = |node, at_ms: u64| crash(CrashScope::Node, node, at_ms * 1_000, Some(100));
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

/// Servers scan, or clients report; buffers are posted at once, or as free lists run low.
#[test]
fn buffers_are_recycled_in_every_way() {
    let (mut posted, mut found, mut waits) = (0, 0, 0);
    let mut seed = 0;
    for reclaim in ["reclaim=reports", "reclaim=scan"] {
        for watermark in ["watermark=off", "watermark=4"] {
            for families in ["none", "messages", "messages,crashes"] {
                seed += 1;
                let mut config = config(WORLDS[seed as usize % 3], seed);
                let settings = [reclaim, watermark, "spare_buffers=30"];
                let settings = settings.iter().chain(refilled(reclaim, watermark));
                config.settings.extend(settings.map(|&setting| setting.to_owned()));
                config.faults = families.parse().unwrap();
                let report = held(&config);
                // Of a cluster that has died as a whole nobody tells.
                let counters = report.counters.get("prism_rs");
                let counted = |name: &str| counters.map_or(0, |counters| counters[name]);
                if reclaim == "reclaim=scan" {
                    assert_eq!(counted("posted"), 0, "nobody reports");
                }
                posted += counted("posted");
                found += counted("found");
                waits += counted("receiver_not_ready");
            }
        }
    }
    assert!(posted > 1_000 && found > 1_000 && waits > 0, "{posted} {found} {waits}");
}
