//! What a run reports: `nicol.bench/1`.

use std::collections::BTreeMap;

use nicol_core::history::{History, Promise};
use nicol_core::steering::Decisions;
use serde::Serialize;
use serde::ser::{SerializeMap, Serializer};
use serde_json::{Map, Value};

use crate::befell::ByKind;
use crate::binding::{Binding, Resource};
use crate::milestones::Milestones;
use crate::toll::Toll;
use crate::trace::StepCost;

/// The schema's name, first in every object.
pub const SCHEMA: &str = "nicol.bench/1";

/// The result of one run. Names are a contract; `*_us` are microseconds, `*_s` seconds.
#[derive(Clone, Debug, Serialize)]
pub struct BenchReport {
    pub schema: &'static str,
    pub workload: String,
    pub system: String,
    pub world: &'static str,
    /// The hardware profile, in the simulated world.
    pub profile: Option<String>,
    /// Warnings to read before the numbers: settings under which the system is not correct,
    /// hardware on which it gains nothing.
    pub warnings: Vec<String>,
    /// Nodes that hold shards.
    pub nodes: usize,
    /// Nodes for clients alone.
    pub client_nodes: usize,
    /// Copies of each shard.
    pub replicas: usize,
    /// Host engines per node.
    pub host_engines: usize,
    /// NIC engines per node.
    pub nic_engines: usize,
    /// Clients per node that has any.
    pub clients_per_node: usize,
    /// The time that starting every engine took, by node.
    pub start_us_per_node: f64,
    pub load: &'static str,
    /// Transactions per second asked for, in an open loop.
    pub rate_per_s: Option<u64>,
    pub seed: u64,
    /// Families of faults, `plan`, or `none`.
    pub faults: String,
    /// The effects of these, by kind; nothing where there are none.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub befell: ByKind,
    /// The toll that they may take, and so the demand on the load.
    #[serde(skip)]
    pub toll: Toll,
    /// The changes of the membership, if it changed.
    #[serde(skip_serializing_if = "Milestones::are_none")]
    pub milestones: Milestones,
    /// Operations that the plan schedules; `None` if it ends by time.
    pub planned: Option<u64>,
    /// Operations that committed or were refused by the application, whenever.
    pub done: u64,
    /// The device that makes writes durable: `memory` (as if battery-backed), `file`, or as the
    /// `profile` says.
    pub log_device: &'static str,
    /// Transactions that committed in the measured time, whenever they were due: those that are
    /// the throughput, and the sum over all types.
    pub committed: u64,
    /// Transactions that were due in the measured time and committed, whenever that was. The
    /// outcomes that follow are of the same transactions, of which latency is, too.
    pub due_committed: u64,
    /// Attempts aborted, in all, but for refusals.
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
    /// Further counters of the system's nodes, by group and name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counters: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// Committed transactions per second.
    pub throughput_per_s: f64,
    /// The same per node.
    pub throughput_per_node_per_s: f64,
    /// Latency of committed transactions that were due in the measured time, retries included, but
    /// for types that are deferred.
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
    #[serde(flatten)]
    pub binding: Binding,
    /// The resources of each node, and how busy they were.
    pub resources: Vec<Resource>,
    /// The time of the cores per committed transaction, by what they spent it on; empty where it is
    /// not known.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub core_time: Vec<CoreTime>,
    /// The same of the measured time by step of the protocol, and what was sent, if that was asked
    /// for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<StepCost>,
    /// Microseconds of a core that the threads of servers took per committed transaction, the time
    /// before the measured one included; where clients ran on threads of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpu_us: Option<f64>,
    /// Committed transactions in a second of a core of the servers' threads.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub per_server_cpu_s: Option<f64>,
    /// The memory that the records took of this machine, if the system says.
    pub memory: Option<Memory>,
    pub check: Check,
    /// Fields that the system's family adds.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
    /// The same as lines of a table: titles and texts.
    #[serde(skip)]
    pub lines: Vec<(&'static str, String)>,
    /// Hash of every event of the simulation.
    pub trace_digest: Option<String>,
    /// Events of the simulation's kernel.
    pub events: Option<u64>,
    pub simulated_s: Option<f64>,
    /// Wall-clock seconds of the run.
    pub wall_s: f64,
    /// Kernel events per wall-clock second.
    pub events_per_wall_s: Option<f64>,
    /// Simulated seconds per wall-clock second.
    pub simulated_to_wall: Option<f64>,
}

impl BenchReport {
    /// Why the run shows nothing, in words: less than half of what its plan schedules was done.
    pub fn invalid(&self) -> Option<String> {
        let planned = self.planned.filter(|planned| self.done * 2 < *planned)?;
        Some(format!("{} of {planned} operations were done", self.done))
    }
}

/// Percentiles of a latency distribution, in microseconds; where there is no sample, none is a
/// number, and as JSON each is `null`.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Latency {
    pub p50: f64,
    pub p90: f64,
    pub p95: f64,
    pub p99: f64,
    pub p999: f64,
    pub p9999: f64,
    pub max: f64,
    pub mean: f64,
}

/// A type of transaction, with its commits and latency.
#[derive(Clone, Debug, Serialize)]
pub struct Kind {
    pub name: &'static str,
    /// Committed in the measured time.
    pub committed: u64,
    /// The latency of those that were due in it, up to the end of the last attempt.
    pub latency_us: Latency,
    /// How clients were answered, where transactions are queued and executed in the background.
    /// Then neither latency is part of that of all types.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deferred: Option<Deferred>,
}

/// Transactions that are answered before they are executed.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Deferred {
    /// Those due in the measured time that were answered, executed or not.
    pub answered: u64,
    /// How long their clients waited.
    pub answer_us: Latency,
}

/// The time that all cores of a side together spent on one thing.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct CoreTime {
    pub side: &'static str,
    /// On what, such as `messages`.
    pub on: &'static str,
    /// Nanoseconds of a core per committed transaction.
    pub ns_per_txn: f64,
}

/// The memory that a run took of this machine.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Memory {
    /// Initial records, every copy counted: at most, as the workload bounds them.
    pub records: u64,
    /// Resident bytes that loading them added: tables, indices, logs.
    pub loaded_bytes: u64,
    /// The same by record.
    pub bytes_per_record: f64,
    /// The same by node.
    pub bytes_per_node: f64,
    /// The most that loading had added at any time.
    pub loading_peak_bytes: u64,
    /// The most that the process ever had, the recorded history and its check included.
    pub peak_bytes: u64,
}

/// The promise of a family, and its checker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Promised {
    /// The verdict's name in a report, such as `serializable`.
    pub field: &'static str,
    /// The promise in words, such as `strictly serializable`.
    pub words: &'static str,
    /// The name of the checker in violations.
    pub checker: &'static str,
    /// The name of the number of operations that were checked, in a report.
    pub checked: &'static str,
    /// The promise that its histories name.
    pub promise: Promise,
}

/// The checkers' verdict.
///
/// As an object: the family's promise (such as `serializable`; null if no history was recorded) and
/// the number of operations checked, `invariants`, `replicas_converge`, `leaked_` with each name,
/// `awaiting_recovery` if something does, `acknowledged_lost` where crashes of everything are
/// judged, and `violations`.
#[derive(Clone, Debug, Default)]
pub struct Check {
    pub promised: Promised,
    /// Whether the promise was held; `None` if no history was recorded.
    pub held_promise: Option<bool>,
    /// Operations that the promise's checker saw.
    pub checked: u64,
    /// Whether the workload's invariants hold (money conserved)
    pub invariants: bool,
    /// Whether all replicas of each shard hold the same bytes; `None` where they need not.
    pub replicas_converge: Option<bool>,
    /// Locks and other things that will never be released, by name.
    pub leaked: BTreeMap<&'static str, u64>,
    /// Locks and other things that only a recovery may release, by name.
    pub awaiting_recovery: BTreeMap<&'static str, u64>,
    /// Records that log devices held after a crash of everything, over what was loaded; `None` if
    /// none was read back.
    pub read_back: Option<u64>,
    /// Acknowledged writes that a crash of everything took, permitted by the model or not, as far
    /// as versions tell; `None` where no promise speaks of such crashes.
    pub acknowledged_lost: Option<u64>,
    /// Violations, in words.
    pub violations: Vec<String>,
}

impl Check {
    /// Whether every check held.
    pub fn held(&self) -> bool {
        self.violations.is_empty()
    }

    /// Adds the verdict on a further run, which alone has a history.
    pub(crate) fn add(&mut self, further: Self) {
        self.held_promise = further.held_promise;
        self.checked = further.checked;
        self.invariants &= further.invariants;
        let both = self.replicas_converge.zip(further.replicas_converge);
        self.replicas_converge = both.map(|(one, other)| one && other);
        for (name, count) in further.leaked {
            *self.leaked.entry(name).or_default() += count;
        }
        for (name, count) in further.awaiting_recovery {
            *self.awaiting_recovery.entry(name).or_default() += count;
        }
        self.read_back = further.read_back.or(self.read_back);
        self.acknowledged_lost = match (self.acknowledged_lost, further.acknowledged_lost) {
            (Some(one), Some(other)) => Some(one + other),
            (one, other) => one.or(other),
        };
        self.violations.extend(further.violations);
    }
}

impl Serialize for Check {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(self.promised.field, &self.held_promise)?;
        map.serialize_entry(self.promised.checked, &self.checked)?;
        map.serialize_entry("invariants", &self.invariants)?;
        map.serialize_entry("replicas_converge", &self.replicas_converge)?;
        if let Some(records) = self.read_back {
            map.serialize_entry("read_back", &records)?;
        }
        if let Some(lost) = self.acknowledged_lost {
            map.serialize_entry("acknowledged_lost", &lost)?;
        }
        for (name, count) in &self.leaked {
            map.serialize_entry(&format!("leaked_{name}"), count)?;
        }
        if self.awaiting_recovery.values().any(|count| *count > 0) {
            map.serialize_entry("awaiting_recovery", &self.awaiting_recovery)?;
        }
        map.serialize_entry("violations", &self.violations)?;
        map.end()
    }
}

/// A run and the history that was judged.
pub struct BenchRun {
    pub report: BenchReport,
    /// The history; empty if none was recorded.
    pub history: History,
    /// Decisions of the nodes at run time, if the system plans then.
    pub decisions: Vec<Decisions>,
}
