//! What a report of the commit family has besides: lookups on the NICs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, json};

use crate::families::scheduling;
use crate::family::{Addition, Counters};
use crate::report::BenchReport;

/// The group of counters of lookups on NICs.
const LOOKUPS: &str = "lookups";

/// Lookups on the NICs, warm-up included. Rates are per lookup that the index did not answer.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub struct Lookups {
    /// Keys that NICs have looked up.
    pub keys: u64,
    /// Fraction that the NIC index answered, 0 to 1.
    pub hit_rate: f64,
    /// Fraction that a negative entry answered, 0 to 1; part of `hit_rate`.
    pub negative_rate: f64,
    /// Fraction of keys of ordered tables that the host was asked for, 0 to 1.
    pub asked_rate: f64,
    /// Fraction of the misses that one DMA read answered.
    pub first_reads_per_miss: f64,
    /// DMA reads per miss.
    pub reads_per_miss: f64,
    /// Objects read per miss.
    pub objects_per_miss: f64,
    /// Bytes read per miss.
    pub bytes_per_miss: f64,
    /// Misses that took a second, adjacent read, 0 to 1.
    pub second_reads_per_miss: f64,
    /// Overflow pages read per miss.
    pub overflow_reads_per_miss: f64,
    /// Searches begun again per miss, since the host was changing what was read.
    pub retries_per_miss: f64,
    /// DMA reads that a write of the host tore, and that were made again.
    pub torn_reads: u64,
    /// Doublings that the host tables of all nodes have begun.
    pub table_doublings: u64,
}

impl Lookups {
    /// Those of a run of the commit family; all zero in another family's report.
    pub fn of(report: &BenchReport) -> Self {
        let found = report.fields.get(LOOKUPS).cloned().unwrap_or_default();
        serde_json::from_value(found).unwrap_or_default()
    }
}

/// The part of a report.
pub(super) fn addition(counters: &Counters) -> Addition {
    let lookups = counters.get(LOOKUPS).map_or_else(Lookups::default, lookups_of);
    let mut fields = Map::new();
    fields.insert(LOOKUPS.to_owned(), json!(lookups));
    let lines = if lookups.keys > 0 { vec![("lookups on NICs", line(&lookups))] } else { vec![] };
    Addition { fields, lines, warnings: scheduling::without_feedback(counters) }
}

fn lookups_of(counters: &BTreeMap<&str, u64>) -> Lookups {
    let of = |name: &str| counters.get(name).copied().unwrap_or_default();
    let (keys, hits) = (of("keys"), of("hits"));
    let per_key = |name| of(name) as f64 / keys.max(1) as f64;
    let per_miss = |name| of(name) as f64 / (keys - hits).max(1) as f64;
    Lookups {
        keys,
        hit_rate: per_key("hits"),
        negative_rate: per_key("negative_hits"),
        asked_rate: per_key("asked"),
        first_reads_per_miss: per_miss("first_reads"),
        reads_per_miss: per_miss("dma_reads"),
        objects_per_miss: per_miss("objects_read"),
        bytes_per_miss: per_miss("bytes_read"),
        second_reads_per_miss: per_miss("second_reads"),
        overflow_reads_per_miss: per_miss("overflow_reads"),
        retries_per_miss: per_miss("retries"),
        torn_reads: of("torn_reads"),
        table_doublings: of("table_doublings"),
    }
}

/// A line that tells who answered the lookups, and what the host's memory was read for. [Xenic21
/// 4.1]
fn line(lookups: &Lookups) -> String {
    format!(
        "{:.1} % by the index ({:.1} % absent); per miss {:.2} reads of {:.1} objects: \
         {:.2} answered by the first, {:.2} second reads, {:.2} overflow pages",
        lookups.hit_rate * 100.0,
        lookups.negative_rate * 100.0,
        lookups.reads_per_miss,
        lookups.objects_per_miss,
        lookups.first_reads_per_miss,
        lookups.second_reads_per_miss,
        lookups.overflow_reads_per_miss
    )
}
