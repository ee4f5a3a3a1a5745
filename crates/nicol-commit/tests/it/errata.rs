//! Where the paper leaves a gap: as printed the checker catches it, as resolved it does not.

use std::sync::Arc;

use nicol_commit::xenic::{Faithful, LocalRead, Node, XenicConfig};
use nicol_core::workload::Workload;
use nicol_workload::chooser::{Distribution, PartsPerMillion};
use nicol_workload::ycsb_t::{YcsbT, YcsbTConfig};

use crate::cluster::{NODES, RUN, Ran, Run, run};

/// Seeds within which a gap is found, and over which its resolution holds.
const SEEDS: u64 = 100;

/// A gap: what leaves it open, what closes it, the way on which it lies, and who falls into it.
struct Erratum {
    printed: XenicConfig,
    resolved: XenicConfig,
    path: &'static str,
    records: u64,
    keys: usize,
    read_percent: u32,
}

/// The paper's choices, with every gap closed.
fn fixed() -> XenicConfig {
    XenicConfig::paper(64, 8)
}

impl Erratum {
    fn run(&self, config: &XenicConfig, seed: u64) -> Ran {
        let workload: Arc<dyn Workload> = Arc::new(YcsbT::new(YcsbTConfig {
            nodes: NODES,
            records_per_node: self.records,
            keys_per_txn: self.keys,
            value_bytes: 64,
            read_fraction: PartsPerMillion::percent(self.read_percent),
            blind_fraction: PartsPerMillion(0),
            distribution: Distribution::Uniform,
            ship: true,
        }));
        let how = Run { replicas: 2, transactions: 600, ..RUN };
        let ran = run::<Node>(&how, config, workload, seed);
        assert!(ran.paths[self.path] > 0, "seed {seed}: no transaction went that way");
        ran
    }

    /// Is caught as printed and holds as resolved, over the same seeds.
    fn is_distinguished(&self) {
        let mut caught = 0;
        for seed in 0..SEEDS {
            let printed = self.run(&self.printed, seed);
            assert_eq!(printed.leaked, 0, "seed {seed}: locks are no part of the gap");
            caught += u64::from(!printed.anomalies.is_empty());
            let resolved = self.run(&self.resolved, seed);
            assert!(
                resolved.held(),
                "seed {seed}: {:#?} {:#?}",
                resolved.anomalies,
                resolved.wrong
            );
        }
        assert!(caught > 0, "{:?} was never caught", self.printed);
    }
}

/// AMB-06: the coordinator's read set of a multi-hop transaction is nowhere protected.
#[test]
fn a_multi_hop_transaction_must_protect_what_its_coordinator_only_reads() {
    let resolved = XenicConfig { local_paths: false, ..fixed() };
    let erratum = Erratum {
        printed: XenicConfig { faithful: Faithful::Paper, ..resolved.clone() },
        resolved,
        path: "multi_hop",
        records: 4,
        keys: 2,
        read_percent: 70,
    };
    erratum.is_distinguished();
}

/// AMB-07: a local writing transaction locks what it writes, but may have read what is out of date.
#[test]
fn a_local_write_must_ship_the_versions_that_it_read() {
    let resolved = XenicConfig { multi_hop: false, ..fixed() };
    let erratum = Erratum {
        printed: XenicConfig { faithful: Faithful::Paper, ..resolved.clone() },
        resolved,
        path: "local_write",
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
        printed: XenicConfig { local_read: LocalRead::Paper, ..fixed() },
        resolved: fixed(),
        path: "local_read",
        records: 8,
        keys: 2,
        read_percent: 70,
    };
    erratum.is_distinguished();
}
