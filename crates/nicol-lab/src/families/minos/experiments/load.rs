//! A MINOS system under closed-loop clients of its own nodes: what the figures share.

use anyhow::Result;
use nicol_core::units::Nanos;
use nicol_minos::BREAKDOWN;
use nicol_sim::Profile;
use nicol_workload::ycsb::Popularity;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::experiments::{Context, Table, digest, rounded};
use nicol_bench::binding::Binding;
use nicol_bench::config::{BenchConfig, Length};
use nicol_bench::report::BenchReport;
use nicol_bench::systems;
use nicol_bench::workloads::WorkloadSpec;

/// Nodes by default. (Table III)
pub(super) const NODES: usize = 5;
/// Clients of a node, each with one request at a time. "Issues 100,000 requests per node" [MINOS24
/// VII] says how many, not how many at once: one is the plain reading, and the default. AMB-49
pub(super) const CLIENTS: [usize; 3] = [1, 2, BUSY_CORES];
/// The characterisation of MINOS-B keeps "5 cores busy per node" [MINOS24 IV].
pub(super) const BUSY_CORES: usize = 5;
/// Bytes of a record, and how many the database has. [MINOS24 VII]
const RECORD_BYTES: u32 = 1_024;
pub(super) const RECORDS: [u64; 2] = [100_000, 2_000];
/// Requests of a node. [MINOS24 VII]
pub(super) const REQUESTS: [u64; 2] = [100_000, 200];
/// Bytes of memory that a record takes on a node, rounded up, and what a run needs besides.
const FOOTPRINT: u64 = 1_400;
const BASE: u64 = 600 << 20;
/// Bytes that a node takes besides, rounded up.
const NODE: u64 = 8 << 20;

/// One point of a figure: what differs from the default.
#[derive(Clone, Debug)]
pub(super) struct Load {
    pub(super) system: String,
    pub(super) settings: Vec<String>,
    /// The profile, with what is changed in it.
    pub(super) on: String,
    pub(super) workload: &'static str,
    /// The share of writes, in percent.
    pub(super) writes: u8,
    pub(super) nodes: usize,
    /// Records of the database.
    pub(super) records: u64,
    /// Whether all records are equally popular.
    pub(super) uniform: bool,
    /// Requests of a node.
    pub(super) requests: u64,
    /// Nodes that hold a record, if not all do.
    pub(super) replicas: Option<usize>,
    /// Clients of a node.
    pub(super) clients: usize,
}

/// The measurements of one judged run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Point {
    /// Mean latencies in microseconds and operations per second: of writes, of reads, of logins.
    pub(super) write: Option<(f64, f64)>,
    pub(super) read: Option<(f64, f64)>,
    pub(super) login: Option<(f64, f64)>,
    /// The time in communication of a write: from the first INV to the last ACK, less the mean time
    /// in which a follower handles an INV. [MINOS24 IV]
    pub(super) communication_us: f64,
    pub(super) binding: Binding,
    pub(super) violations: Vec<String>,
}

impl Load {
    /// The default: half writes by zipfian keys on five nodes.
    pub(super) fn new(context: &Context<'_>, system: &str, on: &str) -> Self {
        Self {
            system: system.to_owned(),
            settings: Vec::new(),
            on: context.options.profile.clone().unwrap_or_else(|| on.to_owned()),
            workload: "ycsb",
            writes: 50,
            nodes: NODES,
            records: context.options.form.of(RECORDS),
            uniform: false,
            requests: context.options.form.of(REQUESTS),
            replicas: None,
            clients: CLIENTS[0],
        }
    }

    fn config(&self, context: &Context<'_>) -> BenchConfig {
        let is_ycsb = self.workload == "ycsb";
        let nodes = self.nodes as u64;
        let uniform = Popularity::Uniform;
        let spec = WorkloadSpec {
            // The flag counts a node's share.
            records: Some(self.records.div_ceil(nodes)),
            value_bytes: Some(RECORD_BYTES),
            read_percent: is_ycsb.then_some(100 - self.writes),
            popularity: is_ycsb.then_some(match self.uniform {
                true => uniform,
                false => Popularity::Zipfian(nicol_workload::ycsb::SKEW),
            }),
            ..WorkloadSpec::named(self.workload)
        };
        let mut settings = self.settings.clone();
        settings.extend(self.replicas.map(|_| "sharded=on".to_owned()));
        BenchConfig {
            settings,
            nodes: self.nodes,
            replicas: self.replicas.unwrap_or(1),
            clients: Some(self.clients),
            length: Some(Length::Transactions(self.requests * nodes)),
            warmup: Some(Nanos::ZERO),
            ..BenchConfig::new(&self.system, spec, &self.on, context.options.seed)
        }
    }

    /// Runs and judges it.
    pub(super) fn run(&self, context: &Context<'_>) -> Result<Point> {
        let config = self.config(context);
        let hardware = digest(&format!("{:?}", Profile::load(&config.on)?));
        let run = format!("minos {hardware:016x} {config:?}");
        let copies = self.records * self.replicas.unwrap_or(self.nodes) as u64;
        let memory = copies * FOOTPRINT + self.nodes as u64 * NODE + BASE;
        let system = systems::find(&self.system)?;
        context.point(&run, memory, || Ok(self.point(&(system.run)(system, &config)?.report)))
    }

    fn point(&self, report: &BenchReport) -> Point {
        let kind = |names: &[&str]| {
            let found = report.kinds.iter().find(|kind| names.contains(&kind.name))?;
            let share = found.committed as f64 / report.committed.max(1) as f64;
            let rate = report.throughput_per_s * share;
            (found.committed > 0).then_some((found.latency_us.mean, rate))
        };
        let counted = |name| report.counters[BREAKDOWN][name] as f64;
        let mean = |sum, count| counted(sum) / counted(count).max(1.0) / 1e3;
        let communication_us = if counted("exchanges") > 0.0 {
            mean("exchange_ns", "exchanges") - mean("handling_ns", "invs_handled")
        } else {
            0.0
        };
        let what = format!(
            "{} {:?} on {} of {} nodes with {} clients",
            self.system, self.settings, self.on, self.nodes, self.clients
        );
        let violations = report.check.violations.iter();
        Point {
            write: kind(&["update", "write"]),
            read: kind(&["read"]),
            login: kind(&["login"]),
            communication_us,
            binding: report.binding.clone(),
            violations: violations.map(|one| format!("{what}: {one}")).collect(),
        }
    }
}

/// `load` with each number of clients.
pub(super) fn by_clients(load: &Load) -> impl Iterator<Item = Load> + use<'_> {
    CLIENTS.into_iter().map(|clients| Load { clients, ..load.clone() })
}

/// Runs all of `loads`, in their order.
pub(super) fn run_all(context: &Context<'_>, loads: &[Load]) -> Result<Vec<Point>> {
    context.pool.map(loads, |load| load.run(context))
}

/// A table that says what every figure assumes.
pub(super) fn table(context: &Context<'_>, loads: &[Load]) -> Result<Table> {
    let mut table = context.table();
    for load in loads {
        let name = load.on.split(':').next().unwrap_or_default();
        table.ran_on(&std::sync::Arc::new(Profile::load(name)?));
    }
    let mut clients: Vec<usize> = loads.iter().map(|load| load.clients).collect();
    clients.sort_unstable();
    clients.dedup();
    let clients = clients.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let why = "how many requests a node has under way is not published: one is the default, and the \
               others are shown beside it (AMB-49)";
    table.assume("clients of a node", clients, why);
    let Load { requests, records, .. } = loads[0];
    table.assume("requests of a node", requests, "the paper has 100,000");
    table.assume("records", records, "the paper has 100,000, on every node");
    table.assume(
        "writes of a scope",
        10,
        "not published; a [PERSIST]sc is an operation of its own",
    );
    Ok(table)
}

/// A latency in microseconds, or null.
pub(super) fn latency(found: Option<(f64, f64)>) -> Value {
    found.map_or(json!(null), |(latency, _)| rounded(latency, 3))
}

/// A throughput per second, or null.
pub(super) fn throughput(found: Option<(f64, f64)>) -> Value {
    found.map_or(json!(null), |(_, rate)| rounded(rate, 0))
}
