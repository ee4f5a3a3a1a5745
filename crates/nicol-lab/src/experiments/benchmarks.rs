//! The benchmarks of the papers at their scales, and at quick ones.

use super::study::{NODES, REPLICAS};
use super::{Form, Table};
use crate::workloads::WorkloadSpec;

/// A workload at a scale.
pub(super) struct Benchmark {
    /// Its name in results.
    pub(super) name: &'static str,
    /// The workload's name.
    workload: &'static str,
    /// Records per node: the paper's, and the quick form's.
    records: [u64; 2],
    zipf_percent: Option<u8>,
    /// Bytes of memory per record and copy, with tables, index and history; measured, and rounded
    /// up.
    bytes: u64,
    /// The transaction type that throughput counts; all without one.
    pub(super) counted: Option<&'static str>,
}

/// [Xenic21 5.4]
pub(super) static RETWIS: Benchmark = Benchmark {
    name: "retwis",
    workload: "retwis",
    records: [1_000_000, 20_000],
    zipf_percent: Some(50),
    bytes: 180,
    counted: None,
};

/// [Xenic21 5.5] A record is an account; each has a row in two tables.
pub(super) static SMALLBANK: Benchmark = Benchmark {
    name: "smallbank",
    workload: "smallbank",
    records: [2_400_000, 20_000],
    zipf_percent: None,
    bytes: 180,
    counted: None,
};

/// What a point needs besides its records.
const BASE: u64 = 300 << 20;

impl Benchmark {
    fn records(&self, form: Form) -> u64 {
        let [full, quick] = self.records;
        form.pick(full, quick)
    }

    /// The workload of a run.
    pub(super) fn spec(&self, form: Form) -> WorkloadSpec {
        WorkloadSpec {
            name: self.workload.to_owned(),
            records: Some(self.records(form)),
            zipf_percent: self.zipf_percent,
            ..WorkloadSpec::default()
        }
    }

    /// About how many bytes of memory a run needs at most.
    pub(super) fn memory(&self, form: Form) -> u64 {
        BASE + self.records(form) * (NODES * REPLICAS) as u64 * self.bytes
    }

    /// Says at what scale it runs, where that is not the paper's.
    pub(super) fn assume(&self, table: &mut Table, form: Form) {
        let [full, _] = self.records;
        let records = self.records(form);
        if records != full {
            let key = format!("{} records per node", self.name);
            let reason = format!("the paper has {full}; the quick form loads less");
            table.assume(&key, records, &reason);
        }
    }
}
