//! What a run reports: `nicol.bench/1`.

use std::collections::BTreeMap;

use serde::Serialize;

/// The schema's name, first in every object.
pub const SCHEMA: &str = "nicol.bench/1";

/// The result of one run. Names are a contract; `*_us` are microseconds, `*_s` seconds.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    /// `nicol.bench/1`.
    pub schema: &'static str,
    /// The workload's name.
    pub workload: String,
    /// The system's name.
    pub system: String,
    /// `threads` or `simulated`.
    pub world: &'static str,
    /// The hardware profile, in the simulated world.
    pub profile: Option<String>,
    /// What a reader must know before the numbers: settings under which the system is not correct,
    /// hardware on which it gains nothing.
    pub warnings: Vec<String>,
    /// Nodes of the cluster.
    pub nodes: usize,
    /// Copies of each shard.
    pub replicas: usize,
    /// Host engines per node.
    pub host_engines: usize,
    /// NIC engines per node.
    pub nic_engines: usize,
    /// Clients per node.
    pub clients_per_node: usize,
    /// `closed` or `open`.
    pub load: &'static str,
    /// Transactions per second asked for, in an open loop.
    pub rate_per_s: Option<u64>,
    /// The seed.
    pub seed: u64,
    /// The fault plan.
    pub faults: &'static str,
    /// What makes writes durable: `memory` (as if battery-backed), `file`, or as the `profile`
    /// says.
    pub log_device: &'static str,
    /// Transactions committed in the measured time.
    pub committed: u64,
    /// Attempts aborted, in all.
    pub aborted: u64,
    /// Transactions whose outcome the client does not know.
    pub unknown: u64,
    /// Transactions that the application refused (not counted as aborted).
    pub refused: u64,
    /// Transactions given up after the last retry.
    pub failed: u64,
    /// Aborted attempts by reason.
    pub abort_reasons: BTreeMap<&'static str, u64>,
    /// Committed transactions by the way that they took, the part before the measured time
    /// included.
    pub paths: BTreeMap<&'static str, u64>,
    /// Committed transactions per second.
    pub throughput_per_s: f64,
    /// The same per node.
    pub throughput_per_node_per_s: f64,
    /// Latency of committed transactions, retries included.
    pub latency_us: Latency,
    /// Latency by transaction type.
    pub kinds: Vec<Kind>,
    /// Messages between engines per committed transaction (PCIe queues included).
    pub messages_per_txn: f64,
    /// Bytes of frames per committed transaction.
    pub bytes_per_txn: f64,
    /// Frames per committed transaction.
    pub frames_per_txn: f64,
    /// DMA requests per committed transaction.
    pub dma_per_txn: f64,
    /// One-sided operations per committed transaction, where cards execute them; elsewhere they are
    /// messages to NIC engines.
    pub verbs_per_txn: f64,
    /// What lookups on the NICs cost, from the first transaction on.
    pub lookups: Lookups,
    /// Busy fractions.
    pub resources: Vec<Resource>,
    /// What the cores spent their time on, per committed transaction; empty where it is not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub core_time: Vec<CoreTime>,
    /// What the records took of this machine's memory, if it says.
    pub memory: Option<Memory>,
    /// What the checkers say.
    pub check: Check,
    /// Hash of every event of the simulation.
    pub trace_digest: Option<String>,
    /// Events of the simulation's kernel.
    pub events: Option<u64>,
    /// Simulated seconds.
    pub simulated_s: Option<f64>,
    /// Wall-clock seconds of the run.
    pub wall_s: f64,
    /// Kernel events per wall-clock second.
    pub events_per_wall_s: Option<f64>,
    /// Simulated seconds per wall-clock second.
    pub simulated_to_wall: Option<f64>,
}

/// Percentiles of a latency distribution, in microseconds.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Latency {
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// 99.9th percentile.
    pub p999: f64,
    /// 99.99th percentile.
    pub p9999: f64,
    /// Largest.
    pub max: f64,
    /// Mean.
    pub mean: f64,
}

/// Lookups on the NICs, warm-up included. Rates are per lookup that the index did not answer.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Lookups {
    /// Keys looked up.
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

/// One transaction type.
#[derive(Clone, Debug, Serialize)]
pub struct Kind {
    /// Its name.
    pub name: &'static str,
    /// Committed in the measured time.
    pub committed: u64,
    /// Its latency.
    pub latency_us: Latency,
}

/// One resource.
#[derive(Clone, Debug, Serialize)]
pub struct Resource {
    /// Its name.
    pub name: String,
    /// Busy fraction of the measured time, 0 to 1.
    pub utilization: f64,
}

/// What all cores of a side together spent on one thing.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CoreTime {
    /// `host` or `nic`.
    pub side: &'static str,
    /// On what, such as `messages`.
    pub on: &'static str,
    /// How long, per committed transaction, in nanoseconds of a core.
    pub ns_per_txn: f64,
}

/// What a run took of this machine's memory.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// Initial records, every copy counted: at most, as the workload bounds them.
    pub records: u64,
    /// Resident bytes that loading them added: tables, indices, logs.
    pub loaded_bytes: u64,
    /// The same by record.
    pub bytes_per_record: f64,
    /// The most that loading had added at any time.
    pub loading_peak_bytes: u64,
    /// The most that the process ever had, the recorded history and its check included.
    pub peak_bytes: u64,
}

/// The checkers' verdict.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Check {
    /// Strictly serializable? `None` if no history was recorded.
    pub serializable: Option<bool>,
    /// Transactions that the serializability checker saw.
    pub checked_transactions: u64,
    /// Do the workload's invariants hold (money conserved)?
    pub invariants: bool,
    /// Do all replicas of each shard hold the same bytes?
    pub replicas_converge: bool,
    /// Locks that nobody will release.
    pub leaked_locks: u64,
    /// What is wrong, in words; empty if nothing.
    pub violations: Vec<String>,
}

impl Check {
    /// Did every check hold?
    pub fn held(&self) -> bool {
        self.violations.is_empty()
    }
}
