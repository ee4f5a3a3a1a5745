//! Systems under crashes at any instant: every client ends, what they were told is right, and the
//! same seed crashes the same way.

use nicol_core::faults::{Crash, CrashScope, FaultFamilies, FaultPlan};
use nicol_core::units::Nanos;
use nicol_lab::bench::{BenchConfig, Length, run};
use nicol_lab::report::BenchReport;
use nicol_lab::workloads::WorkloadSpec;

fn config(system: &str, workload: &str, on: &str, seed: u64) -> BenchConfig {
    let mut spec = WorkloadSpec { name: workload.to_owned(), ..WorkloadSpec::default() };
    spec.shrink();
    BenchConfig {
        settings: vec!["timeout_us=500".to_owned()],
        host_engines: Some(2),
        nic_engines: Some(2),
        clients: Some(8),
        length: Some(Length::Transactions(500)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system, spec, on, seed)
    }
}

fn held(config: &BenchConfig) -> BenchReport {
    let report = run(config).unwrap().report;
    let (system, seed) = (&config.system, config.seed);
    assert!(report.check.held(), "{system}, seed {seed}: {:#?}", report.check.violations);
    report
}

#[test]
fn no_system_answers_wrongly_under_crashes_and_messages_that_are_lost() {
    let both = FaultFamilies { crashes: true, ..FaultFamilies::MESSAGES };
    for (system, on) in [("xenic", "liquidio3"), ("farm", "connectx5"), ("fasst", "connectx5")] {
        let mut unknown = 0;
        for seed in 0..12 {
            let workload = ["smallbank", "churn"][seed as usize % 2];
            let report = held(&BenchConfig { faults: both, ..config(system, workload, on, seed) });
            unknown += report.unknown;
        }
        assert!(unknown > 20, "{system}: crashes cut attempts off, which are unknown: {unknown}");
    }
}

#[test]
fn a_crash_of_everything_ends_every_client_with_its_attempt_unknown() {
    let at = Nanos::from_micros(60);
    let crash = Crash { scope: CrashScope::All, node: 0, at, restart_after: None };
    let plan = FaultPlan { crashes: vec![crash], ..FaultPlan::none() };
    for system in ["xenic", "drtm-h"] {
        let plan = Some(plan.clone());
        let config =
            BenchConfig { fault_plan: plan, ..config(system, "smallbank", "liquidio3", 1) };
        let (first, second) = (held(&config), held(&config));
        // Of 24 clients; those between two attempts end without one.
        assert!(first.committed > 0 && (4..=24).contains(&first.unknown), "{first:#?}");
        assert_eq!(first.trace_digest, second.trace_digest, "{system}");
    }
}
