//! Xenic in the simulated world, under every checker.

use nicol_core::units::Nanos;
use nicol_lab::bench::{BenchConfig, BenchRun, Length, run};
use nicol_lab::workloads::WorkloadSpec;

fn config(workload: &str, records: u64, on: &str, seed: u64) -> BenchConfig {
    BenchConfig {
        workload: WorkloadSpec {
            name: workload.to_owned(),
            records: Some(records),
            ..WorkloadSpec::default()
        },
        system: "xenic".to_owned(),
        settings: Vec::new(),
        on: on.to_owned(),
        nodes: 3,
        replicas: 3,
        host_engines: Some(2),
        nic_engines: Some(2),
        clients: Some(8),
        length: Some(Length::Transactions(2_000)),
        warmup: Some(Nanos::ZERO),
        rate: None,
        seed,
        faults: false,
        threads: None,
    }
}

fn held(config: &BenchConfig) -> BenchRun {
    let ran = run(config).unwrap();
    let violations = &ran.report.check.violations;
    assert!(ran.report.check.held(), "seed {}: {violations:#?}", config.seed);
    ran
}

#[test]
fn smallbank_commits_and_conserves_money_on_both_profiles() {
    for on in ["liquidio3", "connectx5"] {
        let ran = held(&config("smallbank", 1_000, on, 1));
        assert!(ran.report.committed > 1_000, "{on}: {}", ran.report.committed);
    }
}

#[test]
fn inserts_and_deletes_survive_contention() {
    for seed in 0..8 {
        let ran = held(&config("churn", 16, "liquidio3", seed));
        assert!(ran.report.aborted > 0, "nothing ever conflicted");
    }
}
