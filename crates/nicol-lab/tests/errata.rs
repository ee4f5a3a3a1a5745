//! Where the paper leaves a gap: as printed the checker catches it, as resolved it does not.

use nicol_core::units::Nanos;
use nicol_lab::bench::{BenchConfig, Length, run};
use nicol_lab::report::BenchReport;
use nicol_lab::workloads::WorkloadSpec;

/// Seeds within which a gap is found, and over which its resolution holds.
const SEEDS: u64 = 100;

/// A gap: what leaves it open, what closes it, the way on which it lies, and who falls into it.
struct Erratum {
    printed: &'static [&'static str],
    resolved: &'static [&'static str],
    path: &'static str,
    on: &'static str,
    records: u64,
    keys: u16,
    read_percent: u8,
}

impl Erratum {
    fn report(&self, settings: &[&str], seed: u64) -> BenchReport {
        let spec = WorkloadSpec {
            name: "ycsb-t".to_owned(),
            records: Some(self.records),
            keys: Some(self.keys),
            read_percent: Some(self.read_percent),
            zipf_percent: Some(0),
            ..WorkloadSpec::default()
        };
        let config = BenchConfig {
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            replicas: 2,
            host_engines: Some(2),
            nic_engines: Some(2),
            clients: Some(8),
            length: Some(Length::Transactions(600)),
            warmup: Some(Nanos::ZERO),
            ..BenchConfig::new("xenic", spec, self.on, seed)
        };
        let report = run(&config).unwrap().report;
        assert!(report.paths[self.path] > 0, "seed {seed}: no transaction went that way");
        report
    }

    /// Is caught as printed and holds as resolved, over the same seeds.
    fn is_distinguished(&self) {
        let mut caught = 0;
        for seed in 0..SEEDS {
            let printed = self.report(self.printed, seed).check;
            assert_eq!(printed.leaked["locks"], 0, "seed {seed}: locks are no part of the gap");
            caught += u64::from(printed.held_promise == Some(false));
            let resolved = self.report(self.resolved, seed).check;
            assert!(resolved.held(), "seed {seed}: {:#?}", resolved.violations);
        }
        assert!(caught > 0, "{:?} was never caught", self.printed);
    }
}

/// AMB-06: the coordinator's read set of a multi-hop transaction is nowhere protected.
#[test]
fn a_multi_hop_transaction_must_protect_what_its_coordinator_only_reads() {
    let erratum = Erratum {
        printed: &["local_paths=off", "local_read=strict", "faithful=paper"],
        resolved: &["local_paths=off", "faithful=fixed"],
        path: "multi_hop",
        on: "liquidio3",
        records: 4,
        keys: 2,
        read_percent: 70,
    };
    erratum.is_distinguished();
}

/// AMB-07: a local writing transaction locks what it writes, but may have read what is out of date.
#[test]
fn a_local_write_must_ship_the_versions_that_it_read() {
    let erratum = Erratum {
        printed: &["multi_hop=off", "faithful=paper", "local_read=strict"],
        resolved: &["multi_hop=off", "faithful=fixed"],
        path: "local_write",
        on: "liquidio3",
        records: 8,
        keys: 2,
        read_percent: 50,
    };
    erratum.is_distinguished();
}

/// AMB-08: a local reading transaction misses what the host has not applied yet.
#[test]
fn a_local_read_must_not_miss_what_is_committed() {
    let erratum = Erratum {
        printed: &["local_read=paper"],
        resolved: &["local_read=strict"],
        path: "local_read",
        on: "liquidio3",
        records: 8,
        keys: 2,
        read_percent: 70,
    };
    erratum.is_distinguished();
}
