//! What these tests have in common.

use nicol_bench::bench::{BenchConfig, BenchRun, Length, run};
use nicol_bench::report::BenchReport;
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::faults::{Crash, CrashScope};
use nicol_core::history::Persistency;
use nicol_core::units::Nanos;
use nicol_workload::ycsb::Popularity;

/// A short run of few engines and clients, without a warm-up.
pub fn short(system: &str, workload: WorkloadSpec, on: &str, seed: u64) -> BenchConfig {
    BenchConfig {
        host_engines: Some(2),
        nic_engines: Some(2),
        clients: Some(6),
        length: Some(Length::Transactions(600)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system, workload, on, seed)
    }
}

/// Each model of MINOS in both places, on so many seeds.
pub fn each_minos(seeds: u64, mut run: impl FnMut(&str, u64)) {
    for place in ["minos-b", "minos-o"] {
        for model in Persistency::ALL {
            (0..seeds).for_each(|seed| run(&format!("{place}:{}", model.name()), seed));
        }
    }
}

/// `ycsb` over `records` records of 40 B, so few that operations meet.
pub fn few_records(records: u64) -> WorkloadSpec {
    WorkloadSpec {
        records: Some(records),
        value_bytes: Some(40),
        popularity: Some(Popularity::Uniform),
        ..WorkloadSpec::named("ycsb")
    }
}

/// A crash `at_us` after the start, and a restart so long after it, if any.
pub fn crash(scope: CrashScope, node: u16, at_us: u64, restart_after_us: Option<u64>) -> Crash {
    let restart_after = restart_after_us.map(Nanos::from_micros);
    Crash { scope, node, at: Nanos::from_micros(at_us), restart_after }
}

/// Runs `config`, and expects every check to hold.
pub fn held(config: &BenchConfig) -> BenchReport {
    held_run(config).report
}

/// The same, with the history.
pub fn held_run(config: &BenchConfig) -> BenchRun {
    let ran = run(config).unwrap();
    let check = &ran.report.check;
    assert!(check.held(), "{config:?}: {:#?}", check.violations);
    assert_eq!(check.held_promise, Some(true), "{config:?}");
    ran
}

/// Free lists of PRISM's servers are looked at every 20 us, where anybody looks at them: what
/// clients report is free at once, and without a watermark nobody waits for more.
pub fn refilled(reclaim: &str, watermark: &str) -> &'static [&'static str] {
    if (reclaim, watermark) == ("reclaim=reports", "watermark=off") {
        &[]
    } else {
        &["refill_us=20"]
    }
}
