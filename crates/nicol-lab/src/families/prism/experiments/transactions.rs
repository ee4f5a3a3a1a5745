//! Figures 9 and 10 of PRISM: PRISM-TX and FaRM under YCSB-T. [PRISM21 8.3]

use anyhow::Result;
use serde_json::json;

use super::closed_loop::{
    CHART, CLIENTS, COLUMNS, RECORDS, Run, assume_clients, assume_cores, assume_time, row, sweep,
};
use super::load::Point;
use super::testbed::Testbed;
use crate::experiments::{Chart, Context, Experiment, Ladder, Scale, Table, rounded};
use nicol_bench::workloads::WorkloadSpec;

/// "Both hardware and software RDMA implementations for FaRM".
const SYSTEMS: &[&str] = &["prism-tx", "farm", "farm-software"];
/// Settings of PRISM-TX in these figures: no collisions, as in the paper's key-value stores. FaRM
/// has two READs for a lookup, RPCs as PRISM's, and clients that wait until the only copy of their
/// writes is installed, as those of PRISM-TX do. [PRISM21 8.3]
const OF_PRISM_TX: &[&str] = &["hash=collision-free"];
const OF_FARM: &[&str] = &[
    "slots_percent=200",
    "inline_bytes=8",
    "validation=read",
    "rpc_by=send",
    "await_commit=on",
    "log_bytes=8192",
];

/// The rows of a figure: each system as the paper describes it, under its own name, and the other
/// readings of a sentence beside it.
const SHOWN: [Shown; 5] = [
    Shown { reading: &["prepare=one-chain"], ..Shown::of("prism-tx", OF_PRISM_TX) },
    // AMB-53
    Shown {
        reading: &["prepare=reads-first"],
        is_beside: true,
        ..Shown::of("prism-tx", OF_PRISM_TX)
    },
    Shown { reading: &["validate_keys=all"], ..Shown::of("farm", OF_FARM) },
    // AMB-54
    Shown { reading: &["validate_keys=unlocked"], is_beside: true, ..Shown::of("farm", OF_FARM) },
    Shown { reading: &["validate_keys=all"], ..Shown::of("farm-software", OF_FARM) },
];

/// A system by one reading of its text.
#[derive(Clone, Copy)]
pub(super) struct Shown {
    system: &'static str,
    settings: &'static [&'static str],
    reading: &'static [&'static str],
    /// Whether it stands beside the reading that the figure is about.
    is_beside: bool,
}

impl Shown {
    const fn of(system: &'static str, settings: &'static [&'static str]) -> Self {
        Self { system, settings, reading: &[], is_beside: false }
    }

    /// `system` as its paper describes it; `None` if these figures do not show it.
    pub(super) fn as_described(system: &str) -> Option<Self> {
        SHOWN.into_iter().find(|shown| shown.system == system)
    }

    /// The name of its rows: the system, and what is read otherwise.
    fn name(&self) -> String {
        let otherwise = self.reading.iter().filter(|_| self.is_beside);
        std::iter::once(&self.system).chain(otherwise).copied().collect::<Vec<_>>().join(" ")
    }
}

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
pub(super) const CLIENTS_AT_PEAK: [Ladder; 2] = [
    Ladder { low: &[], from: 44, factor: 2, most: 5_632 },
    Ladder { low: &[], from: 88, factor: 4, most: 352 },
];
/// Zipf parameters, times 100.
const ZIPF: [&[u8]; 2] = [&[0, 20, 40, 60, 70, 80, 90, 95, 99], &[0, 99]];

/// One combination of the values that figures 9 and 10 vary.
#[derive(Clone, Copy)]
pub(super) struct Case {
    pub(super) shown: Shown,
    pub(super) clients: usize,
    pub(super) zipf_percent: u8,
}

impl Case {
    pub(super) fn measure(self, context: &Context<'_>, on: &Testbed) -> Result<Point> {
        let Self { shown, clients, zipf_percent } = self;
        let spec = WorkloadSpec {
            keys: Some(1),
            read_percent: Some(0),
            zipf_percent: Some(zipf_percent),
            ..WorkloadSpec::named("ycsb-t")
        };
        let settings = [shown.settings, shown.reading].concat();
        let system = shown.system;
        let what = format!(
            "{} with {clients} clients, zipf {zipf_percent} %, on {}",
            shown.name(),
            on.name
        );
        Run { system, settings: &settings, on, clients, spec, what }.measure(context)
    }
}

/// "We use only a single shard": one server, under loads as `ladder` has them.
pub(super) fn assume(context: &Context<'_>, table: &mut Table, ladder: Ladder) {
    assume_time(context, table);
    let objects = context.options.form.of(RECORDS);
    table.assume("objects", objects, "of 512 B each; the paper has 8 million");
    let reason = "\"short read-modify-write transactions\": the shortest";
    table.assume("objects of a transaction", 1, reason);
    assume_cores(table);
    let reason = "PRISM-TX: not published; as far as clocks are synchronized in a machine room";
    table.assume("clocks of clients differ", "up to 5 us", reason);
    assume_clients(table);
    ladder.assume(table, "clients of the whole experiment");
}

/// The rows' systems and readings, of the systems that are asked for.
fn every_shown(context: &Context<'_>) -> impl Iterator<Item = Shown> {
    let systems: Vec<&str> = context.systems().into_iter().collect();
    SHOWN.into_iter().filter(move |shown| systems.contains(&shown.system))
}

fn figure_9(context: &Context<'_>) -> Result<Table> {
    let ladder = context.options.form.of(CLIENTS);
    let on = &Testbed::new(context)?;
    let every: Vec<Shown> = every_shown(context).collect();
    let found = sweep(context, &every, &ladder, |&shown, clients| {
        Case { shown, clients, zipf_percent: 0 }.measure(context, on)
    })?;
    let mut table = context.table();
    on.assume(&mut table);
    assume(context, &mut table, ladder);
    for (shown, clients, point) in found {
        table.push_bound(row(&shown.name(), clients, &point), &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

fn figure_10(context: &Context<'_>) -> Result<Table> {
    let form = context.options.form;
    let ladder = form.of(CLIENTS_AT_PEAK);
    let mut series = Vec::new();
    for shown in every_shown(context) {
        series.extend(form.of(ZIPF).iter().map(|&zipf_percent| (shown, zipf_percent)));
    }
    let on = &Testbed::new(context)?;
    let found = context.pool.map(&series, |&(shown, zipf_percent)| {
        let at = |clients| Case { shown, clients, zipf_percent }.measure(context, on);
        Point::peak_of(ladder.climb(|point: &Point| point.throughput, at)?)
    })?;
    let mut table = context.table();
    on.assume(&mut table);
    assume(context, &mut table, ladder);
    for ((shown, zipf_percent), peak) in series.into_iter().zip(found) {
        let zipf = rounded(f64::from(zipf_percent) / 100.0, 2);
        let measured = vec![json!(shown.name()), zipf, rounded(peak.throughput, 0)];
        table.push_bound(measured, &peak.binding);
        table.judge(peak.violations);
    }
    Ok(table)
}
