//! The benchmarks of the papers at their scales, and at quick ones.

use anyhow::Result;
use nicol_core::units::Nanos;
use nicol_workload::tpcc::Indices;
use nicol_workload::tpcc::key::ITEMS_MAX;

use crate::experiments::{Form, Ladder, Table};
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
    /// Simulated time of the full form before measuring, and measured.
    full: (Nanos, Nanos),
    /// The factor by which the full form raises the load.
    step: usize,
}

/// Bytes of memory per record, rounded up: measured, but for the pages that a run writes.
struct Footprint {
    /// In tables and logs, which copies share until they are written. (decision 0113)
    table: u64,
    /// Of a hundred pages of a table, those that a run writes, by the number of its writes: each
    /// copy has them to itself.
    written: u64,
    /// More in Xenic's NIC index.
    nic_index: u64,
    /// More where coordinators cache addresses.
    addresses: u64,
}

impl Footprint {
    fn of(&self, system: &System) -> u64 {
        let own = self.table * self.written * REPLICAS as u64 / 100;
        let nic_index = if system.offloads { self.nic_index } else { 0 };
        let addresses = if system.caches_addresses { self.addresses } else { 0 };
        self.table + own + nic_index + addresses
    }
}

/// The load of a node. Of two numbers the first is the full form's, the other the quick one's.
enum Scale {
    /// Records; the full form has the paper's.
    Records([u64; 2]),
    /// TPC-C; the full form has the paper's warehouses.
    Warehouses {
        warehouses: [u16; 2],
        items: [u32; 2],
        /// Transactions of the cluster whose rows there is space for: those of the simulated time
        /// at 1.6 M new orders per node and second. The quick form measures 0.35 ms; its space is
        /// most of what it loads.
        transactions: [u64; 2],
    },
}

/// Customers of a district of TPC-C: their rows are the coordinator's own, and no system contends
/// for them, so that few do.
const CUSTOMERS: [u16; 2] = [20, 4];

/// The full form's items of the full mix, whose texts of STOCK take memory that is not there for
/// more, and of table 3, which searches for threads by many runs.
const FEWER_ITEMS: u32 = 5_000;

/// TPC-C's New-Order alone, with all items of the specification [Xenic21 5.2]. A run writes to a
/// page of each copy for every item that is ordered: the shorter it is, the fewer.
pub(super) static TPCC_NEW_ORDER: Benchmark = Benchmark {
    name: "tpcc-no",
    workload: "tpcc-no",
    scale: Scale::Warehouses {
        warehouses: [72, 24],
        items: [ITEMS_MAX, 500],
        transactions: [20_000, 10_000],
    },
    footprint: Footprint { table: 85, written: 15, nic_index: 110, addresses: 110 },
    full: (Nanos::from_micros(500), Nanos::from_micros(1_000)),
    step: 4,
    ..tpcc([72, 24])
};

/// The same with fewer items.
pub(super) static TPCC_NEW_ORDER_FEWER_ITEMS: Benchmark =
    Benchmark { name: "tpcc-no", workload: "tpcc-no", ..tpcc([72, 24]) };

/// [Xenic21 5.3] Throughput is that of new orders.
pub(super) static TPCC: Benchmark = tpcc([72, 24]);

/// [Xenic21 5.3] 384 warehouses in the cluster.
pub(super) static TPCC_384: Benchmark = tpcc([384 / NODES as u16, 24]);

const fn tpcc(warehouses: [u16; 2]) -> Benchmark {
    Benchmark {
        name: "tpcc",
        workload: "tpcc",
        scale: Scale::Warehouses {
            warehouses,
            items: [FEWER_ITEMS, 500],
            transactions: [80_000, 10_000],
        },
        zipf_percent: None,
        footprint: Footprint { table: 470, written: 60, nic_index: 405, addresses: 165 },
        counted: Some("new_order"),
        full: (Nanos::from_millis(2), Nanos::from_millis(6)),
        step: 2,
    }
}

/// Retwis [Xenic21 5.4]
pub(super) static RETWIS: Benchmark = Benchmark {
    name: "retwis",
    workload: "retwis",
    scale: Scale::Records([1_000_000, 20_000]),
    zipf_percent: Some(50),
    footprint: Footprint { table: 192, written: 100, nic_index: 24, addresses: 126 },
    counted: None,
    full: (Nanos::from_millis(1), Nanos::from_millis(3)),
    step: 2,
};

/// [Xenic21 5.5] A record is an account; each has a row in two tables.
pub(crate) static SMALLBANK: Benchmark = Benchmark {
    name: "smallbank",
    workload: "smallbank",
    scale: Scale::Records([2_400_000, 20_000]),
    zipf_percent: None,
    footprint: Footprint { table: 86, written: 75, nic_index: 75, addresses: 126 },
    counted: None,
    full: (Nanos::from_millis(1), Nanos::from_millis(3)),
    step: 2,
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
            Scale::Warehouses { warehouses, items, transactions } => WorkloadSpec {
                name,
                zipf_percent,
                warehouses: Some(form.of(warehouses)),
                items: Some(form.of(items)),
                customers: Some(form.of(CUSTOMERS)),
                transactions: Some(form.of(transactions)),
                ..WorkloadSpec::default()
            },
        }
    }

    /// About how many bytes of memory a run of `system` needs at most.
    ///
    /// Errors: a scale that the workload does not take.
    pub(super) fn memory(&self, form: Form, system: &System) -> Result<u64> {
        let mut spec = self.spec(form);
        if let Scale::Warehouses { .. } = self.scale {
            // As for every system here: they scan, so that there are no rows of index records.
            spec.indices = Some(Indices::Trees);
        }
        let workload = build(&spec, NODES)?.workload;
        let records = workload.records_per_shard() + workload.growth_per_shard();
        Ok(BASE + records * NODES as u64 * self.footprint.of(system))
    }

    /// Simulated time before measuring, and measured.
    pub(super) fn windows(&self, form: Form) -> (Nanos, Nanos) {
        match form {
            Form::Full => self.full,
            Form::Quick => (Nanos::from_micros(100), Nanos::from_micros(250)),
        }
    }

    /// Clients of a node.
    pub(super) fn ladder(&self, form: Form) -> Ladder {
        match form {
            Form::Full => Ladder { low: &[], from: 1, factor: self.step, most: 4_096 },
            // The last step of four is half of what a quick ladder costs.
            Form::Quick => Ladder { low: &[4], from: 64, factor: 4, most: 1_024 },
        }
    }

    /// The scale of a node, in words.
    pub(super) fn scale_words(&self, form: Form) -> String {
        match self.scale {
            Scale::Records(records) => format!("{} records per node", form.of(records)),
            Scale::Warehouses { warehouses, items, .. } => format!(
                "{} warehouses per node, {} items, {} customers per district",
                form.of(warehouses),
                form.of(items),
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
            Scale::Warehouses { warehouses, items, .. } => {
                let scale = self.scale_words(form);
                let lacks = if form.of(items) == ITEMS_MAX {
                    "3000 customers: a district's own, for which no other client contends"
                } else {
                    "100000 items and 3000 customers: their copies on all nodes do not fit one machine"
                };
                let reason = format!(
                    "the paper has {} warehouses per node, with the specification's {lacks}",
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

#[cfg(test)]
mod tests {
    use super::*;
    use nicol_bench::families::commit::find;

    #[test]
    fn every_benchmark_is_a_workload_at_both_scales() {
        let all = [&TPCC_NEW_ORDER, &TPCC_NEW_ORDER_FEWER_ITEMS, &TPCC, &TPCC_384];
        for benchmark in all.into_iter().chain([&RETWIS, &SMALLBANK]) {
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
