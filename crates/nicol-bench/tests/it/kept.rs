//! Runs that share what they load.

use std::sync::Arc;

use nicol_bench::bench;
use nicol_bench::config::{BenchConfig, Length};
use nicol_bench::kept::Kept;
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::units::Nanos;

#[test]
fn a_run_over_what_is_kept_is_one_that_loads_itself() {
    // Enough for tables of more than a megabyte: smaller ones share no pages.
    let workload = WorkloadSpec { records: Some(25_000), ..WorkloadSpec::named("smallbank") };
    for (system, on) in [("xenic", "liquidio3"), ("drtm-h", "connectx5")] {
        let run = |kept: Option<&Arc<Kept>>, clients| {
            let config = BenchConfig {
                length: Some(Length::Time(Nanos::from_micros(80))),
                clients: Some(clients),
                kept: kept.cloned(),
                ..BenchConfig::new(system, workload.clone(), on, 3)
            };
            let run = bench::run(&config).unwrap();
            assert!(run.report.check.violations.is_empty(), "{:?}", run.report.check);
            run.history
        };
        let kept = Arc::new(Kept::default());
        let first = run(Some(&kept), 8);
        // What the first has written is not there in the second.
        assert!(run(Some(&kept), 24) == run(None, 24), "{system}: another history");
        assert!(run(Some(&kept), 8) == first && kept.loads() == 1, "{system}");
        kept.clear();
        assert!(run(Some(&kept), 8) == first && kept.loads() == 2, "{system}");
    }
}
