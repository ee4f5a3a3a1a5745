//! Figures 9 and 10 of PRISM: PRISM-TX and FaRM under YCSB-T. [PRISM21 8.3]

use anyhow::Result;
use serde_json::json;

use super::closed_loop::{
    CHART, CLIENTS, COLUMNS, RECORDS, Run, assume_clients, assume_cores, assume_time, row,
};
use super::load::Point;
use super::testbed::Testbed;
use crate::experiments::{Chart, Context, Experiment, Scale, Table, rounded};
use crate::workloads::WorkloadSpec;

/// "Both hardware and software RDMA implementations for FaRM".
const SYSTEMS: &[&str] = &["prism-tx", "farm", "farm-software"];
/// What they run with: no collisions, as the paper's key-value stores; FaRM with two READs for a
/// lookup, RPCs as PRISM's, and clients that wait until the only copy of their writes is installed,
/// as those of PRISM-TX do. [PRISM21 8.3]
const OF_PRISM_TX: &[&str] = &["hash=collision-free"];
const OF_FARM: &[&str] = &[
    "slots_percent=200",
    "inline_bytes=8",
    "validation=read",
    "rpc_by=send",
    "await_commit=on",
    "log_bytes=8192",
];

/// The experiments of this file.
pub(super) static ALL: [Experiment; 2] = [
    Experiment {
        id: "prism-fig9",
        family: "prism",
        title: "PRISM-TX and FaRM, YCSB-T with low contention [PRISM21 fig. 9]",
        columns: COLUMNS,
        chart: CHART,
        systems: SYSTEMS,
        settings: &[],
        timed: true,
        run: figure_9,
    },
    Experiment {
        id: "prism-fig10",
        family: "prism",
        title: "PRISM-TX and FaRM, YCSB-T: peak throughput under contention [PRISM21 fig. 10]",
        columns: &["system", "zipf", "peak_throughput_per_s"],
        chart: Chart::Lines {
            x: "zipf",
            y: "peak_throughput_per_s",
            series: &["system"],
            scale: Scale::LogY,
        },
        systems: SYSTEMS,
        settings: &[],
        timed: true,
        run: figure_10,
    },
];

/// Clients among which the peak is looked for.
const CLIENTS_AT_PEAK: [&[usize]; 2] = [&[44, 88, 176, 352, 704, 1_408], &[88, 352]];
/// Zipf parameters, times 100.
const ZIPF: [&[u8]; 2] = [&[0, 20, 40, 60, 70, 80, 90, 95, 99], &[0, 80, 99]];

/// What is varied.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) system: &'static str,
    pub(super) clients: usize,
    pub(super) zipf_percent: u8,
}

impl Case {
    /// Runs it.
    pub(super) fn measure(self, context: &Context<'_>, on: &Testbed) -> Result<Point> {
        let Self { system, clients, zipf_percent } = self;
        let spec = WorkloadSpec {
            keys: Some(1),
            read_percent: Some(0),
            zipf_percent: Some(zipf_percent),
            ..WorkloadSpec::named("ycsb-t")
        };
        let settings = if system == SYSTEMS[0] { OF_PRISM_TX } else { OF_FARM };
        let what =
            format!("{system} with {clients} clients, zipf {zipf_percent} %, on {}", on.name);
        Run { system, settings, on, clients, spec, what }.measure(context)
    }
}

/// "We use only a single shard": one server.
pub(super) fn assume(context: &Context<'_>, table: &mut Table) {
    assume_time(context, table);
    let objects = context.options.form.of(RECORDS);
    table.assume("objects", objects, "of 512 B each; the paper has 8 million");
    let reason = "\"short read-modify-write transactions\": the shortest";
    table.assume("objects of a transaction", 1, reason);
    assume_cores(table);
    let reason = "PRISM-TX: not published; as far as clocks are synchronized in a machine room";
    table.assume("clocks of clients differ", "up to 5 us", reason);
    assume_clients(table);
}

fn figure_9(context: &Context<'_>) -> Result<Table> {
    let mut cases = Vec::new();
    for system in context.systems() {
        let of = |&clients: &usize| Case { system, clients, zipf_percent: 0 };
        cases.extend(context.options.form.of(CLIENTS).iter().map(of));
    }
    let on = &Testbed::new(context)?;
    let found = context.pool.map(&cases, |case| case.measure(context, on))?;
    let mut table = context.table();
    on.assume(&mut table);
    assume(context, &mut table);
    for (case, point) in cases.iter().zip(found) {
        table.push_bound(row(case.system, case.clients, &point), &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

fn figure_10(context: &Context<'_>) -> Result<Table> {
    let form = context.options.form;
    let clients = form.of(CLIENTS_AT_PEAK);
    let mut cases = Vec::new();
    for system in context.systems() {
        for &zipf_percent in form.of(ZIPF) {
            cases.extend(clients.iter().map(|&clients| Case { system, clients, zipf_percent }));
        }
    }
    let on = &Testbed::new(context)?;
    let found = context.pool.map(&cases, |case| case.measure(context, on))?;
    let mut table = context.table();
    on.assume(&mut table);
    assume(context, &mut table);
    for (cases, points) in cases.chunks(clients.len()).zip(found.chunks(clients.len())) {
        let peak = Point::peak(points);
        let zipf = rounded(f64::from(cases[0].zipf_percent) / 100.0, 2);
        let measured = vec![json!(cases[0].system), zipf, rounded(peak.throughput, 0)];
        table.push_bound(measured, &peak.binding);
        points.iter().for_each(|point| table.judge(point.violations.clone()));
    }
    Ok(table)
}
