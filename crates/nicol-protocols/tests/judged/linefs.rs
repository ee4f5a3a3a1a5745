//! LineFS's alternatives in both worlds: what they promise, and how they are broken.

use nicol_core::faults::{Crash, CrashScope, FaultPlan};
use nicol_core::units::Nanos;
use nicol_lab::bench::{BenchConfig, Length, run};
use nicol_lab::systems;
use nicol_lab::workloads::WorkloadSpec;

use crate::support::held;

const SYSTEMS: [&str; 4] = ["linefs:a1", "linefs:a2", "linefs:a3", "linefs:a2+a3"];
/// Small chunks, few of them on their way, and as many by either side.
const TIGHT: [&str; 3] = ["chunk_bytes=2048", "slots=2", "a3_permille=500"];

/// A run of half reads and half writes, of three nodes that back each other up.
fn config(system: &str, on: &str, seed: u64, settings: &[&str]) -> BenchConfig {
    let spec = WorkloadSpec { records: Some(6), ..WorkloadSpec::named("ycsb") };
    BenchConfig {
        settings: settings.iter().map(ToString::to_string).collect(),
        nodes: 3,
        replicas: 3,
        host_engines: Some(2),
        nic_engines: Some(2),
        clients: Some(6),
        length: Some(Length::Transactions(200)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system, spec, on, seed)
    }
}

#[test]
fn every_alternative_is_linearizable_and_replicas_are_equal_under_message_faults() {
    let (mut soc, mut host, mut repeated) = (0, 0, 0);
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
            repeated += counted["repeated"];
            let packs = counted["packed_bytes"] > 0;
            assert_eq!(packs, system != "linefs:a3", "{system}");
        }
    }
    assert!(soc > 500 && host > 500 && repeated > 0, "{soc} {host} {repeated}");
}

#[test]
fn a_lost_backup_is_left_out_and_a_lost_primary_s_files_are_refused() {
    let (mut refused, mut committed) = (0, 0);
    for (seed, system) in (0..8).zip(SYSTEMS.iter().cycle()) {
        let mut config = config(system, "bluefield2", seed, &TIGHT);
        let at = Nanos::from_micros(60 + 17 * seed);
        let restart_after = (seed % 2 == 0).then_some(Nanos::from_micros(500));
        let scope = if seed % 3 == 0 { CrashScope::Nic } else { CrashScope::Node };
        let crash = Crash { scope, node: seed as u16, at, restart_after };
        config.fault_plan = Some(FaultPlan { crashes: vec![crash], ..FaultPlan::none() });
        config.length = Some(Length::Transactions(1_000));
        let report = held(&config);
        refused += report.abort_reasons["shard_unavailable"];
        committed += report.committed;
    }
    assert!(refused > 0 && committed > 3_000, "{refused} {committed}");
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

#[test]
fn large_chunks_may_travel_in_pieces() {
    for system in SYSTEMS {
        let mut config =
            config(system, "bluefield2", 1, &["chunk_bytes=65536", "segment_bytes=64"]);
        config.workload.value_bytes = Some(1_000);
        assert!(held(&config).committed > 150, "{system}");
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

#[test]
fn what_is_broken_on_purpose_is_caught_within_200_seeds() {
    for system in SYSTEMS {
        let known = systems::find(system).unwrap();
        for name in (known.sabotages)() {
            if known.harmless.iter().any(|(harmless, _)| *harmless == name) {
                continue;
            }
            let caught = (0..200).find(|&seed| {
                (known.trials)(known, seed).into_iter().any(|mut config| {
                    config.settings.push(format!("sabotage={name}"));
                    let report = run(&config).unwrap().report;
                    assert_eq!(report.warnings.len(), 1, "a broken protocol warns");
                    !report.check.held()
                })
            });
            assert!(caught.is_some(), "{system}: {name}");
        }
    }
}
