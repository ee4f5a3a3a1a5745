//! One server, and closed-loop clients on up to eleven other machines: what figures 3, 4, 9 and 10
//! share. [PRISM21 6.2, 8.3]

use anyhow::{Context as _, Result};
use nicol_core::ids::Side;
use nicol_core::units::Nanos;
use serde_json::{Value, json};

use super::load::Point;
use super::steady::{self, Windows};
use super::testbed::Testbed;
use crate::experiments::{Chart, Context, Form, Ladder, Scale, Table, rounded};
use nicol_bench::config::{BenchConfig, Length};
use nicol_bench::systems;
use nicol_bench::workloads::WorkloadSpec;

/// The columns of a figure of latency over throughput, and how it is drawn.
pub(super) const COLUMNS: &[&str] = &[
    "system",
    "clients",
    "throughput_per_s",
    "latency_mean_us",
    "latency_p50_us",
    "latency_p99_us",
];
pub(super) const CHART: Chart = Chart::Lines {
    x: "throughput_per_s",
    y: "latency_mean_us",
    series: &["system"],
    scale: Scale::LogY,
};

/// Client machines at most, and cores of the server that serve. [PRISM21 6.2]
const CLIENT_NODES: usize = 11;
const CORES: usize = 16;
/// Bytes of a value. [PRISM21 6.2, 8.3]
pub(super) const VALUE_BYTES: u32 = 512;
/// Clients of the whole experiment: one, then as many on each of the client machines.
pub(super) const CLIENTS: [Ladder; 2] = [
    Ladder { low: &[1], from: 11, factor: 2, most: 5_632 },
    Ladder { low: &[1], from: 22, factor: 4, most: 352 },
];
/// Records: the paper has 8 million.
pub(super) const RECORDS: [u64; 2] = [1_000_000, 20_000];
/// The measured time at least.
const WINDOW: [Nanos; 2] = [Nanos::from_millis(2), Nanos::from_micros(400)];
/// Bytes of memory that a record takes at most, in buffers, slots and a table's free space.
const RECORD_MEMORY: u64 = 2_400;

/// A run of one system.
pub(super) struct Run<'r> {
    pub(super) system: &'r str,
    pub(super) settings: &'r [&'static str],
    /// The hardware of the server and of its clients.
    pub(super) on: &'r Testbed,
    pub(super) clients: usize,
    /// The workload, but for the records and their size.
    pub(super) spec: WorkloadSpec,
    /// The name of the run in violations.
    pub(super) what: String,
}

impl Run<'_> {
    fn config(&self, context: &Context<'_>) -> BenchConfig {
        let form = context.options.form;
        let spec = WorkloadSpec {
            records: Some(form.of(RECORDS)),
            value_bytes: Some(VALUE_BYTES),
            ..self.spec.clone()
        };
        let client_nodes = self.clients.min(CLIENT_NODES);
        BenchConfig {
            settings: self.settings.iter().map(ToString::to_string).collect(),
            nodes: 1,
            client_nodes,
            replicas: 1,
            host_engines: Some(CORES),
            nic_engines: Some(self.on.engines(Side::Nic).min(CORES)),
            clients: Some(self.clients / client_nodes),
            length: Some(Length::Time(form.of(WINDOW))),
            ..BenchConfig::new(self.system, spec, &self.on.name, context.options.seed)
        }
    }

    /// Runs it, and judges it.
    pub(super) fn measure(&self, context: &Context<'_>) -> Result<Point> {
        let config = self.config(context);
        let system = systems::find(self.system)?;
        let name = format!("prism steady closed loop {:016x} {config:?}", self.on.digest());
        let memory = context.options.form.of(RECORDS) * RECORD_MEMORY;
        context.point(&name, memory, || {
            let run = |windows: Windows| Ok((system.run)(system, &windows.of(&config))?.report);
            let least = context.options.form.of(WINDOW);
            let report = steady::measure(self.clients, least, run);
            Ok(Point::of(&report.with_context(|| self.what.clone())?, &self.what))
        })
    }
}

/// The row of a run.
pub(super) fn row(system: &str, clients: usize, point: &Point) -> Vec<Value> {
    let mut row = vec![json!(system), json!(clients)];
    row.extend(point.numbers());
    row
}

/// For how long it is measured.
pub(super) fn measured(form: Form) -> String {
    steady::words(form.of(WINDOW))
}

/// Says for how long it was measured.
pub(super) fn assume_time(context: &Context<'_>, table: &mut Table) {
    let form = context.options.form;
    steady::assume(table, form.of(WINDOW));
}

/// Says how many cores a client machine has.
pub(super) fn assume_cores(table: &mut Table) {
    table.assume("host cores of a client machine", CORES, "not published");
}

/// Says where the clients are.
pub(super) fn assume_clients(table: &mut Table) {
    table.assume("clients", "spread over up to 11 machines", "as published");
}

/// Measures each of `series` under a growing load; a point for each load of each of them.
///
/// Errors: what `measure` says.
pub(super) fn sweep<S: Clone + Sync>(
    context: &Context<'_>,
    series: &[S],
    ladder: &Ladder,
    measure: impl Fn(&S, usize) -> Result<Point> + Sync,
) -> Result<Vec<(S, usize, Point)>> {
    let climb = |one: &S| ladder.climb(|point: &Point| point.throughput, |at| measure(one, at));
    let climbed = context.pool.map(series, climb)?;
    let of = |(one, points): (&S, Vec<(usize, Point)>)| {
        let one = one.clone();
        points.into_iter().map(move |(clients, point)| (one.clone(), clients, point))
    };
    Ok(series.iter().zip(climbed).flat_map(of).collect())
}

impl Point {
    /// Throughput, and latency in the mean, the median and the 99th percentile, as columns.
    pub(super) fn numbers(&self) -> [Value; 4] {
        let latencies = [self.mean, self.p50, self.p99].map(|latency| rounded(latency, 3));
        let [mean, p50, p99] = latencies;
        [rounded(self.throughput, 0), mean, p50, p99]
    }
}
