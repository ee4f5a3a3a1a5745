//! The benchmarks of the papers at their scales, and at quick ones.

use anyhow::Result;
use nicol_core::units::Nanos;

use crate::experiments::{Form, Table};
use nicol_bench::families::commit::build;
use nicol_bench::system::System;
use nicol_bench::workloads::WorkloadSpec;

/// Servers of the testbed. [Xenic21 5]
pub(super) const NODES: usize = 6;

/// Copies of each shard, the primary included. [Xenic21 5.2]
pub(super) const REPLICAS: usize = 3;

/// A workload at a scale.
pub(crate) struct Benchmark {
    /// Its name in results.
    pub(super) name: &'static str,
    workload: &'static str,
    scale: Scale,
    zipf_percent: Option<u8>,
    footprint: Footprint,
    /// The transaction type that throughput and latency are of; all without one.
    pub(super) counted: Option<&'static str>,
    /// The factor by which its transactions, and so the runs of its full form, are longer than
    /// others.
    length: u64,
}

/// Bytes of memory per record and copy; measured, and rounded up.
struct Footprint {
    /// In a baseline's table with its log.
    table: u64,
    /// More in Xenic's, with its NIC index.
    nic_index: u64,
    /// More where coordinators cache addresses.
    addresses: u64,
}

impl Footprint {
    fn of(&self, system: &System) -> u64 {
        let nic_index = if system.offloads { self.nic_index } else { 0 };
        let addresses = if system.caches_addresses { self.addresses } else { 0 };
        self.table + nic_index + addresses
    }
}

/// The load of a node. Of two numbers the first is the full form's, the other the quick one's.
enum Scale {
    /// Records; the full form has the paper's.
    Records([u64; 2]),
    /// Warehouses of TPC-C; the full form has the paper's.
    Warehouses([u16; 2]),
}

/// Items, and customers of a district, of TPC-C. 72 warehouses of the specification and their
/// copies would take more than 100 GiB on a machine that simulates all nodes.
const ITEMS: [u32; 2] = [5_000, 500];
const CUSTOMERS: [u16; 2] = [20, 4];
/// Transactions of the cluster whose rows TPC-C has space for: those of 8 ms at 1.6 M new orders
/// per node and second. The quick form measures 0.35 ms; its space is most of what it loads.
const TRANSACTIONS: [u64; 2] = [80_000, 10_000];

/// TPC-C's New-Order alone [Xenic21 5.2]
pub(super) static TPCC_NEW_ORDER: Benchmark =
    Benchmark { name: "tpcc-no", workload: "tpcc-no", ..tpcc([72, 24]) };

/// [Xenic21 5.3] Throughput is that of new orders.
pub(super) static TPCC: Benchmark = tpcc([72, 24]);

/// [Xenic21 5.3] 384 warehouses in the cluster.
pub(super) static TPCC_384: Benchmark = tpcc([384 / NODES as u16, 24]);

const fn tpcc(warehouses: [u16; 2]) -> Benchmark {
    Benchmark {
        name: "tpcc",
        workload: "tpcc",
        scale: Scale::Warehouses(warehouses),
        zipf_percent: None,
        footprint: Footprint { table: 470, nic_index: 135, addresses: 55 },
        counted: Some("new_order"),
        length: 2,
    }
}

/// Retwis [Xenic21 5.4]
pub(super) static RETWIS: Benchmark = Benchmark {
    name: "retwis",
    workload: "retwis",
    scale: Scale::Records([1_000_000, 20_000]),
    zipf_percent: Some(50),
    footprint: Footprint { table: 192, nic_index: 8, addresses: 42 },
    counted: None,
    length: 1,
};

/// [Xenic21 5.5] A record is an account; each has a row in two tables.
pub(crate) static SMALLBANK: Benchmark = Benchmark {
    name: "smallbank",
    workload: "smallbank",
    scale: Scale::Records([2_400_000, 20_000]),
    zipf_percent: None,
    footprint: Footprint { table: 86, nic_index: 25, addresses: 42 },
    counted: None,
    length: 1,
};

/// Memory of a point besides its records.
const BASE: u64 = 500 << 20;

impl Benchmark {
    /// The workload of a run.
    pub(super) fn spec(&self, form: Form) -> WorkloadSpec {
        let name = self.workload.to_owned();
        let zipf_percent = self.zipf_percent;
        match self.scale {
            Scale::Records(records) => WorkloadSpec {
                name,
                zipf_percent,
                records: Some(form.of(records)),
                ..WorkloadSpec::default()
            },
            Scale::Warehouses(warehouses) => WorkloadSpec {
                name,
                zipf_percent,
                warehouses: Some(form.of(warehouses)),
                items: Some(form.of(ITEMS)),
                customers: Some(form.of(CUSTOMERS)),
                transactions: Some(form.of(TRANSACTIONS)),
                ..WorkloadSpec::default()
            },
        }
    }

    /// About how many bytes of memory a run of `system` needs at most.
    ///
    /// Errors: a scale that the workload does not take.
    pub(super) fn memory(&self, form: Form, system: &System) -> Result<u64> {
        let workload = build(&self.spec(form), NODES)?.workload;
        let records = workload.records_per_shard() + workload.growth_per_shard();
        Ok(BASE + records * (NODES * REPLICAS) as u64 * self.footprint.of(system))
    }

    /// Simulated time before measuring, and measured.
    pub(super) fn windows(&self, form: Form) -> (Nanos, Nanos) {
        let (warmup, window) = windows(form);
        let length = form.of([self.length, 1]);
        (warmup * length, window * length)
    }

    /// The scale of a node, in words.
    pub(super) fn scale_words(&self, form: Form) -> String {
        match self.scale {
            Scale::Records(records) => format!("{} records per node", form.of(records)),
            Scale::Warehouses(warehouses) => format!(
                "{} warehouses per node, {} items, {} customers per district",
                form.of(warehouses),
                form.of(ITEMS),
                form.of(CUSTOMERS)
            ),
        }
    }

    /// Says at what scale it runs, where that is not the paper's.
    pub(super) fn assume(&self, table: &mut Table, form: Form) {
        let name = self.name;
        match self.scale {
            Scale::Records([full, _]) => {
                let records = self.spec(form).records.unwrap_or(full);
                if records != full {
                    let reason = format!("the paper has {full}; the quick form loads less");
                    table.assume(&format!("{name} records per node"), records, &reason);
                }
            }
            Scale::Warehouses(warehouses) => {
                let scale = self.scale_words(form);
                let reason = format!(
                    "the paper has {} warehouses per node, with the specification's 100000 items \
                     and 3000 customers: their copies on all nodes do not fit one machine",
                    warehouses[0]
                );
                table.assume(&format!("{name} scale"), scale, &reason);
                let (where_executed, reason) = match self.workload {
                    "tpcc-no" => (
                        "by the host",
                        "Xenic's host executes what is compute-heavy (4.3.3), as B+ trees make New-Order \
                         (5.2); ship=new-order ships it",
                    ),
                    _ => ("New-Order and Payment shipped, others by the host", "Xenic21 5.3"),
                };
                table.assume(&format!("{name} execution"), where_executed, reason);
                let reason = "throughput is defined so; of latency the paper does not say";
                table.assume(&format!("{name} figures"), "those of new orders", reason);
            }
        }
    }
}

/// Simulated time before measuring, and measured.
fn windows(form: Form) -> (Nanos, Nanos) {
    match form {
        Form::Full => (Nanos::from_millis(1), Nanos::from_millis(3)),
        Form::Quick => (Nanos::from_micros(100), Nanos::from_micros(250)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicol_bench::families::commit::find;

    #[test]
    fn every_benchmark_is_a_workload_at_both_scales() {
        for benchmark in [&TPCC_NEW_ORDER, &TPCC, &TPCC_384, &RETWIS, &SMALLBANK] {
            let [full, quick] = [Form::Full, Form::Quick]
                .map(|form| benchmark.memory(form, find("drtm-h").unwrap()));
            let (full, quick) = (full.unwrap(), quick.unwrap());
            assert!(BASE < quick && quick < full && full < 12 << 30, "{}", benchmark.name);
            let built = build(&benchmark.spec(Form::Quick), NODES).unwrap();
            let kinds = built.workload.kinds();
            assert!(benchmark.counted.is_none_or(|counted| kinds.contains(&counted)));
        }
    }
}
