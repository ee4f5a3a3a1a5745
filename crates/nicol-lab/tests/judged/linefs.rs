//! LineFS's alternatives in both worlds: what they promise, and how they are broken.

use nicol_bench::bench::{BenchConfig, Length};
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::faults::{Crash, CrashScope, FaultFamilies, FaultPlan};
use nicol_core::units::Nanos;

use crate::support::{crash, held, short};

const SYSTEMS: [&str; 4] = ["linefs:a1", "linefs:a2", "linefs:a3", "linefs:a2+a3"];
/// Small chunks, few of them on their way, and as many by either side.
const TIGHT: [&str; 2] = ["chunk_bytes=2048", "slots=2"];

/// A run of half reads and half writes, of three nodes that back each other up.
fn config(system: &str, on: &str, seed: u64, settings: &[&str]) -> BenchConfig {
    // Flat, as YCSB draws: chunks of every file are on their way.
    let zipf_over = Some(10_000_000_000);
    let spec = WorkloadSpec { records: Some(6), zipf_over, ..WorkloadSpec::named("ycsb") };
    let half = (system == "linefs:a2+a3").then_some("a3_permille=500");
    BenchConfig {
        settings: settings.iter().copied().chain(half).map(str::to_owned).collect(),
        nodes: 3,
        replicas: 3,
        length: Some(Length::Transactions(200)),
        ..short(system, spec, on, seed)
    }
}

#[test]
fn every_alternative_is_linearizable_and_replicas_are_equal_under_message_faults() {
    let (mut soc, mut host) = (0, 0);
    for seed in 0..6 {
        for system in SYSTEMS {
            let mut config = config(system, "bluefield2", seed, &TIGHT);
            config.faults.messages = seed % 2 == 1;
            if seed % 3 == 0 {
                config.workload = WorkloadSpec { records: Some(8), ..WorkloadSpec::named("churn") };
            }
            let report = held(&config);
            assert_eq!(report.check.replicas_converge, Some(true), "{system}");
            let counted = &report.counters["linefs"];
            soc += counted["chunks_by_soc"];
            host += counted["chunks_by_host"];
            let packs = counted["packed_bytes"] > 0;
            assert_eq!(packs, system != "linefs:a3", "{system}");
        }
    }
    assert!(soc > 500 && host > 500, "{soc} {host}");
}

/// A run of many operations in which one node crashes, and starts again if so asked.
fn crashing(system: &str, seed: u64, restarts: bool) -> BenchConfig {
    let mut config = config(system, "bluefield2", seed, &TIGHT);
    let restart_after_us = restarts.then_some(500);
    let crash = crash(CrashScope::Node, seed as u16, 60 + 17 * seed, restart_after_us);
    config.fault_plan = Some(FaultPlan { crashes: vec![crash], ..FaultPlan::none() });
    config.length = Some(Length::Transactions(3_000));
    config
}

#[test]
fn the_next_of_the_chain_is_promoted_when_a_primary_is_lost() {
    for (seed, system) in (0..8).zip(SYSTEMS.iter().cycle()) {
        let mut config = crashing(system, seed, false);
        // After the lease of the lost node only some clients' last operations are refused or
        // unknown: a third of all operations would be, if its files were out of service.
        config.warmup = Some(Nanos::from_millis(13));
        let report = held(&config);
        let refused = report.abort_reasons["shard_unavailable"];
        assert!(report.committed > 1_000, "{system}, seed {seed}: {}", report.committed);
        assert!(refused < report.committed / 100, "{system}, seed {seed}: {refused} refused");
        assert_eq!(report.check.replicas_converge, Some(true), "{system}, seed {seed}");
    }
}

#[test]
fn who_comes_back_copies_the_files_and_may_be_promoted_itself() {
    let mut repeated = 0;
    for (seed, system) in (0..8).zip(SYSTEMS.iter().cycle()) {
        let mut config = crashing(system, seed, true);
        config.length = Some(Length::Transactions(6_000));
        if let Some(plan) = &mut config.fault_plan {
            // The others follow, so that only copies are left.
            for (node, at) in [(seed + 1, 15), (seed + 2, 30)] {
                let (node, at) = (node as u16, Nanos::from_millis(at));
                plan.crashes.push(Crash { node, at, restart_after: None, ..plan.crashes[0] });
            }
        }
        config.warmup = Some(Nanos::from_millis(43));
        let report = held(&config);
        assert!(report.counters["linefs"]["copied_blocks"] > 0, "{system}, seed {seed}");
        assert!(report.committed > 100, "{system}, seed {seed}: {}", report.committed);
        repeated += report.counters["linefs"]["repeated"];
    }
    assert!(repeated > 0, "no chunk was handed over again");
}

#[test]
fn files_end_with_the_last_member_that_has_them_all() {
    let mut config = crashing("linefs:a2", 1, true);
    let all = Crash { scope: CrashScope::All, ..config.fault_plan.as_ref().unwrap().crashes[0] };
    config.fault_plan = Some(FaultPlan { crashes: vec![all], ..FaultPlan::none() });
    let report = held(&config);
    assert!(report.committed > 0 && report.committed < 3_000, "{}", report.committed);
}

/// As in a plan that a sweep drew: every member crashes within 37 us and comes back without files.
/// Their
/// questions for them, each a while after the last, left no instant at which none was under way.
#[test]
fn nobody_asks_for_ever_for_files_that_nobody_has() {
    let mut config = config("linefs:a2+a3", "bluefield2", 375, &["timeout_us=500"]);
    config.workload.records = Some(40);
    (config.clients, config.length) = (Some(8), Some(Length::Transactions(2_000)));
    let crash = |(node, at)| Crash {
        scope: CrashScope::Node,
        node,
        at: Nanos::from_micros(at),
        restart_after: Some(Nanos::from_micros(50)),
    };
    let crashes = [(0, 20), (1, 40), (2, 57)].map(crash).to_vec();
    config.fault_plan = Some(FaultPlan { crashes, ..FaultFamilies::MESSAGES.draw(375) });
    assert!(held(&config).committed < 100, "the crashes come early");
}

#[test]
fn a_busy_host_slows_the_host_down_and_changes_nothing_else() {
    let time = |system: &str, host: &str| {
        let load = format!("host={host}");
        let report = held(&config(system, "bluefield2", 3, &[TIGHT[0], TIGHT[1], &load]));
        (report.latency_us.mean, report.counters["linefs"]["elsewhere_ns"])
    };
    let ((idle, none), (busy, elsewhere)) = (time("linefs:a3", "idle"), time("linefs:a3", "busy"));
    assert!(none == 0 && elsewhere > 0 && busy > idle * 1.3, "{idle} {busy} {elsewhere}");
}

/// More clients than two chunks of a log have space for: writes wait for it.
#[test]
fn writes_wait_while_every_chunk_is_full() {
    for system in SYSTEMS {
        let mut config = config(system, "bluefield2", 2, &TIGHT);
        config.workload.value_bytes = Some(1_000);
        config.clients = Some(24);
        assert!(held(&config).committed > 190, "{system}");
    }
}

#[test]
fn large_chunks_may_travel_in_pieces() {
    for system in SYSTEMS {
        let mut config =
            config(system, "bluefield2", 1, &["chunk_bytes=65536", "segment_bytes=64"]);
        config.workload.value_bytes = Some(1_000);
        assert!(held(&config).committed > 150, "{system}");
    }
}

/// A3 with a host that compresses: chunks arrive packed, and its cores take as long as that costs.
#[test]
fn a_host_may_compress_what_it_replicates() {
    for on in ["bluefield2", "threads"] {
        let report = |compresses: &str| {
            let mut config = config("linefs:a3", on, 1, &[TIGHT[0], TIGHT[1], compresses]);
            config.workload.value_bytes = Some(1_000);
            held(&config)
        };
        let (plain, packed) = (report("host_compresses=off"), report("host_compresses=on"));
        assert_eq!(plain.counters["linefs"]["packed_chunks"], 0, "{on}");
        assert!(packed.counters["linefs"]["packed_chunks"] > 20, "{on}");
        let packing = packed.counters["linefs_times"]["pack_ns"];
        assert!(on == "threads" || packing > 0, "{on}: it costs time");
    }
}

#[test]
fn threads_run_every_alternative_too() {
    for system in SYSTEMS {
        let mut config = config(system, "threads", 1, &TIGHT);
        (config.host_engines, config.nic_engines) = (None, None);
        assert!(held(&config).committed >= 150, "{system}");
    }
}
