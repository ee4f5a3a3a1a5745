//! PRISM-KV in both worlds: what it promises, how it is broken, what the paper's errata do.

use nicol_bench::bench::{BenchConfig, Length, run};
use nicol_bench::report::BenchReport;
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::faults::{CrashScope, FaultPlan};
use nicol_core::units::Nanos;

use crate::support::{crash, held, short};

/// Profiles on which software on host cores, a card, and cores of a NIC execute chains.
const PROFILES: [&str; 3] = ["connectx5-40g", "connectx5-40g:verbs.chains=true", "liquidio3"];
/// An index so full that searches meet other keys: 16 rows of churn on each of two servers.
const FULL: &str = "entries=20";

fn config(workload: &str, on: &str, seed: u64, settings: &[&str]) -> BenchConfig {
    let mut spec = WorkloadSpec::named(workload);
    spec.shrink();
    spec.records = Some(16);
    BenchConfig {
        settings: settings.iter().map(ToString::to_string).collect(),
        nodes: 2,
        client_nodes: 2,
        replicas: 1,
        ..short("prism-kv", spec, on, seed)
    }
}

fn counted(report: &BenchReport, name: &str) -> u64 {
    report.counters["prism_kv"][name]
}

#[test]
fn every_choice_is_linearizable_under_message_faults_and_loses_no_buffer() {
    let (mut collisions, mut failed_swaps, mut scans, mut posted) = (0, 0, 0, 0);
    let mut seed = 0;
    for slots in ["slots=bounded", "slots=pointer"] {
        for reuse in ["reuse=pointer", "reuse=generation"] {
            for reclaim in ["reclaim=reports", "reclaim=scan"] {
                for on in PROFILES {
                    seed += 1;
                    let mut config = config("churn", on, seed, &[slots, reuse, reclaim, FULL]);
                    config.faults.messages = seed % 2 == 0;
                    let report = held(&config);
                    assert!(report.committed > 500, "{config:?}: {}", report.committed);
                    collisions += counted(&report, "collisions");
                    failed_swaps += counted(&report, "failed_swaps");
                    scans += counted(&report, "scans");
                    posted += counted(&report, "posted");
                }
            }
        }
    }
    let seen = [collisions, failed_swaps, scans, posted];
    assert!(seen.iter().all(|&seen| seen > 50), "{seen:?}");
}

#[test]
fn clients_wait_for_buffers_and_lose_none() {
    let mut waits = 0;
    for (seed, on) in (0..).zip(PROFILES) {
        let scarce = ["spare_buffers=4", "watermark=2", "refill_us=20"];
        let mut config = config("churn", on, seed, &scarce);
        // Of 8 rows each is loaded, or has been deleted: hardly a buffer is left.
        config.workload.records = Some(4);
        let report = held(&config);
        waits += counted(&report, "receiver_not_ready");
        assert!(report.committed > 300, "{}", report.committed);
    }
    assert!(waits > 20, "{waits}");
}

#[test]
fn a_search_without_collisions_reads_one_slot() {
    let report = held(&config("ycsb", "connectx5-40g", 1, &["hash=collision-free", "entries=32"]));
    assert_eq!(counted(&report, "collisions"), 0);
    let report = held(&config("ycsb", "connectx5-40g", 1, &["hash=probing", "entries=32"]));
    assert!(counted(&report, "collisions") > 0);
}

#[test]
fn what_a_crash_leaves_is_served_and_what_it_takes_is_refused() {
    let (mut refused, mut unknown, mut committed) = (0, 0, 0);
    for seed in 0..12 {
        let mut config = config("churn", PROFILES[seed as usize % 3], seed, &[]);
        config.faults.crashes = true;
        config.faults.messages = seed % 2 == 0;
        let report = held(&config);
        refused += report.abort_reasons["shard_unavailable"];
        unknown += report.unknown;
        committed += report.committed;
    }
    assert!(refused > 0 && unknown > 0 && committed > 1_000, "{refused} {unknown} {committed}");
}

/// What survivors hold at the end is judged by its values: it has no versions.
#[test]
fn records_that_nobody_wrote_for_certain_are_judged_after_a_crash() {
    for system in ["prism-kv", "pilaf", "pilaf-software"] {
        for seed in 0..40 {
            let mut spec = WorkloadSpec::named("ycsb");
            spec.shrink();
            let mut config = short(system, spec, "connectx5-40g", seed);
            (config.nodes, config.replicas, config.clients) = (3, 3, Some(8));
            config.length = Some(Length::Transactions(200));
            config.faults = "messages,crashes".parse().unwrap();
            held(&config);
        }
    }
}

/// A client-only node dies, shortly before all clients have ended: what it has left is no leak.
fn dying(at: u64) -> BenchConfig {
    let mut config = config("churn", "liquidio3", at, &[]);
    let crash = crash(CrashScope::Node, 2, at, None);
    config.fault_plan = Some(FaultPlan { crashes: vec![crash], ..FaultPlan::none() });
    config
}

#[test]
fn what_a_dead_client_leaves_its_servers_find() {
    let mut found = 0;
    for at in (40..240).step_by(8) {
        found += counted(&held(&dying(at)), "found");
    }
    assert!(found > 0, "some client dies with a buffer in its hands");
}

#[test]
fn threads_run_it_too() {
    for (seed, settings) in (0..).zip([&[FULL][..], &["deleted=reused", "reuse=generation", FULL]])
    {
        let mut config = config("churn", "threads", seed, settings);
        (config.host_engines, config.nic_engines) = (None, None);
        let report = held(&config);
        assert!(report.committed >= 600 && counted(&report, "posted") > 0);
    }
}

/// AMB-09.
#[test]
fn with_one_operand_no_put_succeeds_or_records_are_lost() {
    let mut refused = 0;
    for seed in 0..3 {
        let mut config = config("ycsb", "connectx5-40g", seed, &["faithful=paper"]);
        config.length = Some(Length::Time(Nanos::from_micros(500)));
        let report = run(&config).unwrap().report;
        let put = report.kinds.iter().find(|kind| kind.name == "update").unwrap();
        assert_eq!(put.committed, 0, "its CAS compares the new pointer with the old one");
        refused += report.abort_reasons["conflict"];
    }
    assert!(refused > 100, "{refused}");
    let lost = (0..200).find(|&seed| {
        let config = config("churn", "connectx5-40g", seed, &["faithful=paper-unmasked", FULL]);
        !run(&config).unwrap().report.check.held()
    });
    assert!(lost.is_some(), "a record that another one overwrites must be missed");
}

/// Keys come and go in an index with hardly more slots than there are keys at a time.
fn turning(on: &str, seed: u64, settings: &[&str]) -> BenchConfig {
    let few = ["deleted=reused", "reuse=generation", "entries=16", "watermark=off"];
    let mut config = config("churn", on, seed, &[&few, settings].concat());
    config.workload.records = Some(20);
    config.faults.messages = seed % 2 == 1;
    config
}

#[test]
fn slots_of_deleted_keys_are_used_again_without_an_anomaly() {
    let (mut reused, mut committed) = (0, 0);
    for seed in 0..18 {
        let slots = ["slots=bounded", "slots=pointer"][seed as usize / 3 % 2];
        let reclaim = ["reclaim=reports", "reclaim=scan"][seed as usize / 6 % 2];
        let mut config = turning(PROFILES[seed as usize % 3], seed, &[slots, reclaim]);
        config.faults.crashes = seed % 4 == 3;
        let report = held(&config);
        committed += report.committed;
        // Of a cluster that has died as a whole nobody tells.
        reused += report.counters.get("prism_kv").map_or(0, |counters| counters["reused_slots"]);
    }
    assert!(reused > 500 && committed > 6_000, "{reused} {committed}");
}

/// AMB-48: the pointer that a client has read comes back with another key, where chains wait for
/// buffers and there are few.
#[test]
fn a_put_that_compares_pointers_overwrites_another_key_where_slots_are_used_again() {
    let caught = (0..200).find(|&seed| {
        let on = "connectx5-40g:verbs.chains=true";
        let mut fixed = turning(on, seed, &["entries=6", "spare_buffers=0"]);
        fixed.workload.records = Some(4);
        fixed.clients = Some(12);
        fixed.faults.messages = true;
        held(&fixed);
        fixed.settings.push("reuse=pointer".to_owned());
        // What breaks the index may end in an assertion, as in a sweep.
        let held = std::panic::catch_unwind(|| run(&fixed).unwrap().report.check.held());
        !held.unwrap_or(false)
    });
    assert!(caught.is_some(), "a key that another one overwrites must be missed");
}
