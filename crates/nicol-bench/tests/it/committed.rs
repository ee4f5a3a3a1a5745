//! What a report counts as committed.

use nicol_bench::bench::{self, BenchConfig, Length};
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::units::Nanos;

/// Clients that begin in the measured time, and end long after it: nothing has committed in it.
#[test]
fn committed_means_one_thing() {
    let mut workload = WorkloadSpec::named("smallbank");
    workload.shrink();
    let of = |warmup, span| {
        let config = BenchConfig {
            clients: Some(8),
            warmup: Some(warmup),
            length: Some(Length::Time(span)),
            ..BenchConfig::new("xenic", workload.clone(), "liquidio3:link.latency=1ms", 1)
        };
        bench::run(&config).unwrap().report
    };
    let us = Nanos::from_micros;
    for (warmup, span) in [(us(0), us(20)), (us(0), us(40_000))] {
        let report = of(warmup, span);
        let kinds: u64 = report.kinds.iter().map(|kind| kind.committed).sum();
        assert_eq!(report.committed, kinds);
        let rate = report.committed as f64 / span.as_secs_f64();
        assert!((report.throughput_per_s - rate).abs() < 1.0, "{rate}");
        assert!(report.due_committed > 0 && report.committed != report.due_committed);
    }
}

#[test]
fn what_the_application_refuses_has_not_aborted() {
    let mut workload = WorkloadSpec::named("tpcc");
    workload.shrink();
    let length = Some(Length::Transactions(2_000));
    let config = BenchConfig { length, ..BenchConfig::new("xenic", workload, "liquidio3", 1) };
    let report = bench::run(&config).unwrap().report;
    assert!(report.refused > 0 && report.aborted > 0, "a hundredth of new orders is refused");
    let reasons: u64 = report.abort_reasons.values().sum();
    assert_eq!(report.aborted, reasons - report.refused);
}
