//! Runs that share what they load.

use std::sync::Arc;

use nicol_bench::bench;
use nicol_bench::config::{BenchConfig, Length};
use nicol_bench::last_load::LastLoad;
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::units::Nanos;

#[test]
fn a_run_over_what_is_kept_is_one_that_loads_itself() {
    // Enough for tables of more than a megabyte: smaller ones share no pages.
    let workload = WorkloadSpec { records: Some(25_000), ..WorkloadSpec::named("smallbank") };
    for (system, on) in [("xenic", "liquidio3"), ("drtm-h", "connectx5")] {
        let run = |last_load: Option<&Arc<LastLoad>>, clients| {
            let config = BenchConfig {
                length: Some(Length::Time(Nanos::from_micros(80))),
                clients: Some(clients),
                last_load: last_load.cloned(),
                ..BenchConfig::new(system, workload.clone(), on, 3)
            };
            let run = bench::run(&config).unwrap();
            assert!(run.report.check.violations.is_empty(), "{:?}", run.report.check);
            run.history
        };
        let last_load = Arc::new(LastLoad::default());
        let first = run(Some(&last_load), 8);
        // What the first has written is not there in the second.
        assert!(run(Some(&last_load), 24) == run(None, 24), "{system}: another history");
        assert!(run(Some(&last_load), 8) == first && last_load.loads() == 1, "{system}");
        last_load.clear();
        assert!(run(Some(&last_load), 8) == first && last_load.loads() == 2, "{system}");
    }
}
