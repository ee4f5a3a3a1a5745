//! Figures 5, 6, 8, 9 and 10 of AlNiCo: what scheduling does to contention, and what it costs.

use anyhow::Result;
use serde_json::json;

use super::run::{
    ALNICO, ALNICO_CPU_2, ALNICO_CPU_N, ONE_MESSAGE, Point, ROUND_ROBIN, Run, STATIC_PARTITION,
    STRIFE, STRIFE_FULL, Scheduler, UNWEIGHED, assume,
};
use crate::experiments::{Chart, Context, Experiment, Form, Scale, Table, rounded};
use nicol_bench::workloads::WorkloadSpec;

/// "Competitors": NetSTO, StaticPart, Strife, AlNiCo; and AlNiCo without its weights.
const SCHEDULERS: [Scheduler; 6] =
    [ROUND_ROBIN, STATIC_PARTITION, STRIFE, STRIFE_FULL, ALNICO, UNWEIGHED];
/// With the versions on CPUs.
const WITH_CPUS: [Scheduler; 8] = [
    ROUND_ROBIN,
    STATIC_PARTITION,
    STRIFE,
    STRIFE_FULL,
    ALNICO,
    UNWEIGHED,
    ALNICO_CPU_2,
    ALNICO_CPU_N,
];
/// Those whose RPCs are compared without contention.
const OF_RPCS: [Scheduler; 6] =
    [ROUND_ROBIN, ALNICO, ONE_MESSAGE, UNWEIGHED, ALNICO_CPU_2, ALNICO_CPU_N];
const ENGINES: [&str; 4] = ["silo", "tictoc", "cicada", "2pl"];
/// Bytes of a request. (C2.04)
const BYTES: [u32; 4] = [128, 512, 2_048, 4_096];
/// Bytes of the smallest request that reads a key, which count among them.
const REQUEST_BYTES: u32 = 170;
/// Zipf parameters, times 100.
const ZIPF: [&[u8]; 2] = [&[50, 70, 90, 99, 110, 120, 130, 140, 150], &[50, 99, 150]];

const COLUMNS: &[&str] = &["workload", "scheduler", "throughput_per_s", "abort_fraction"];
const CHART: Chart = bars(&["scheduler"], &["workload"], "throughput_per_s");
const SILO: &[&str] = &["silo"];
const SETTINGS: &[&str] = &["scheduler"];

const fn bars(
    category: &'static [&'static str],
    series: &'static [&'static str],
    y: &'static str,
) -> Chart {
    Chart::Bars { category, series, y, inside: None }
}

const fn overall(
    id: &'static str,
    title: &'static str,
    run: fn(&Context<'_>) -> Result<Table>,
) -> Experiment {
    Experiment {
        id,
        family: "engine",
        title,
        columns: COLUMNS,
        chart: CHART,
        systems: SILO,
        settings: SETTINGS,
        timed: true,
        run,
    }
}

/// Figures 5 and 6.
pub(super) static OVERALL: [Experiment; 7] = [
    overall("alnico-fig5a", "TPC-C, 20 warehouses [AlNiCo22 fig. 5a]", |context| {
        figure_5(context, "tpcc-20", |form| Run::tpcc(form, 20))
    }),
    overall("alnico-fig5b", "TPC-C, zipfian warehouses [AlNiCo22 fig. 5b]", |context| {
        let zipfian = |form| WorkloadSpec { zipf_percent: Some(99), ..Run::tpcc(form, 20) };
        figure_5(context, "tpcc-zipf", zipfian)
    }),
    overall("alnico-fig5c", "TPC-C, 2 warehouses [AlNiCo22 fig. 5c]", |context| {
        figure_5(context, "tpcc-2", |form| Run::tpcc(form, 2))
    }),
    overall("alnico-fig5d", "YCSB-T, 5 % writes [AlNiCo22 fig. 5d]", |context| {
        figure_5(context, "ycsb-t-5", |form| Run::ycsb(form, 5, 99))
    }),
    overall("alnico-fig5e", "YCSB-T, 50 % writes [AlNiCo22 fig. 5e]", |context| {
        figure_5(context, "ycsb-t-50", |form| Run::ycsb(form, 50, 99))
    }),
    overall("alnico-fig5f", "YCSB-T, 95 % writes [AlNiCo22 fig. 5f]", |context| {
        figure_5(context, "ycsb-t-95", |form| Run::ycsb(form, 95, 99))
    }),
    Experiment {
        id: "alnico-fig6",
        family: "engine",
        title: "Latency of TPC-C's transactions, 2 warehouses [AlNiCo22 fig. 6]",
        columns: &["scheduler", "kind", "latency_p50_us", "latency_p99_us"],
        chart: bars(&["kind"], &["scheduler"], "latency_p50_us"),
        systems: SILO,
        settings: SETTINGS,
        timed: true,
        run: figure_6,
    },
];

/// Figures 8 to 10.
pub(super) static FURTHER: [Experiment; 3] = [
    Experiment {
        id: "alnico-fig8",
        family: "engine",
        title: "Engines behind schedulers, TPC-C with 2 warehouses [AlNiCo22 fig. 8]",
        columns: &["engine", "scheduler", "throughput_per_s"],
        chart: bars(&["engine"], &["scheduler"], "throughput_per_s"),
        systems: &ENGINES,
        settings: SETTINGS,
        timed: true,
        run: figure_8,
    },
    Experiment {
        id: "alnico-fig9",
        family: "engine",
        title: "Latency of an RPC without contention, by its bytes [AlNiCo22 fig. 9]",
        columns: &["scheduler", "bytes", "latency_p50_us"],
        chart: Chart::Lines {
            x: "bytes",
            y: "latency_p50_us",
            series: &["scheduler"],
            scale: Scale::LogX,
        },
        systems: SILO,
        settings: SETTINGS,
        timed: true,
        run: figure_9,
    },
    Experiment {
        id: "alnico-fig10",
        family: "engine",
        title: "YCSB-T by skew, and how much contention is found [AlNiCo22 fig. 10]",
        columns: &["scheduler", "zipf", "throughput_per_s", "detection_accuracy"],
        chart: Chart::Lines {
            x: "zipf",
            y: "throughput_per_s",
            series: &["scheduler"],
            scale: Scale::LogY,
        },
        systems: SILO,
        settings: SETTINGS,
        timed: true,
        run: figure_10,
    },
];

fn measure(context: &Context<'_>, runs: &[Run]) -> Result<(Table, Vec<Point>)> {
    let points = context.pool.map(runs, |run| run.run(context))?;
    let mut table = context.table();
    assume(context, &mut table)?;
    points.iter().for_each(|point| table.judge(point.violations.clone()));
    Ok((table, points))
}

fn figure_5(
    context: &Context<'_>,
    name: &str,
    workload: impl Fn(Form) -> WorkloadSpec,
) -> Result<Table> {
    let spec = workload(context.options.form);
    let run = |scheduler| Run::new("silo", scheduler, spec.clone());
    let runs: Vec<Run> = WITH_CPUS.into_iter().map(run).collect();
    let (mut table, points) = measure(context, &runs)?;
    for (run, point) in runs.iter().zip(points) {
        let measured = vec![
            json!(name),
            json!(run.scheduler.row),
            rounded(point.throughput, 0),
            rounded(point.abort_fraction, 4),
        ];
        table.push_bound(measured, &point.binding);
    }
    Ok(table)
}

fn figure_6(context: &Context<'_>) -> Result<Table> {
    let spec = Run::tpcc(context.options.form, 2);
    let run = |scheduler| Run::new("silo", scheduler, spec.clone());
    let runs: Vec<Run> = SCHEDULERS.into_iter().map(run).collect();
    let (mut table, points) = measure(context, &runs)?;
    for (run, point) in runs.iter().zip(points) {
        for kind in ["new_order", "delivery"] {
            let (p50, p99) = point.kinds.get(kind).copied().unwrap_or_default();
            let measured =
                vec![json!(run.scheduler.row), json!(kind), rounded(p50, 2), rounded(p99, 2)];
            table.push_bound(measured, &point.binding);
        }
    }
    Ok(table)
}

fn figure_8(context: &Context<'_>) -> Result<Table> {
    let spec = Run::tpcc(context.options.form, 2);
    let mut runs = Vec::new();
    for engine in context.systems() {
        runs.extend(SCHEDULERS.map(|scheduler| Run::new(engine, scheduler, spec.clone())));
    }
    let (mut table, points) = measure(context, &runs)?;
    for (run, point) in runs.iter().zip(points) {
        let measured =
            vec![json!(run.engine), json!(run.scheduler.row), rounded(point.throughput, 0)];
        table.push_bound(measured, &point.binding);
    }
    Ok(table)
}

fn figure_9(context: &Context<'_>) -> Result<Table> {
    let spec = WorkloadSpec { keys: Some(1), ..Run::ycsb(Form::Quick, 0, 0) };
    let mut runs = Vec::new();
    for scheduler in OF_RPCS {
        runs.extend(BYTES.map(|bytes| {
            let padding = bytes.saturating_sub(REQUEST_BYTES);
            let run = Run::new("silo", scheduler, spec.clone());
            Run { clients: Some(1), settings: vec![format!("padding={padding}")], ..run }
        }));
    }
    let (mut table, points) = measure(context, &runs)?;
    let reason = "an RPC that reads one key; its vectors take most of 128 B";
    table.assume("least bytes of a request", REQUEST_BYTES, reason);
    let reason = "(C2.06); that a slot is free for the next part only when the reply to the last one has come is \
                  read from C2.04, where 4 KB take twice as long as 2 KB";
    table.assume("bytes of a slot", 2_048, reason);
    for ((run, bytes), point) in runs.iter().zip(BYTES.into_iter().cycle()).zip(points) {
        let measured = vec![json!(run.scheduler.row), json!(bytes), rounded(point.p50, 3)];
        table.push_bound(measured, &point.binding);
    }
    Ok(table)
}

fn figure_10(context: &Context<'_>) -> Result<Table> {
    let form = context.options.form;
    let mut runs = Vec::new();
    for scheduler in SCHEDULERS {
        for &zipf in form.of(ZIPF) {
            runs.push(Run::new("silo", scheduler, Run::ycsb(form, 50, zipf)));
        }
    }
    let (mut table, points) = measure(context, &runs)?;
    let reason = "aborts on keys whose feature weighs anything, among all aborts since vectors were \
                  published; 0 where nobody weighs. The paper's definition is not known";
    table.assume("detection_accuracy", "a share", reason);
    for (run, point) in runs.iter().zip(points) {
        let zipf = f64::from(run.workload.zipf_percent.unwrap_or_default()) / 100.0;
        let measured = vec![
            json!(run.scheduler.row),
            rounded(zipf, 2),
            rounded(point.throughput, 0),
            rounded(point.accuracy, 3),
        ];
        table.push_bound(measured, &point.binding);
    }
    Ok(table)
}
