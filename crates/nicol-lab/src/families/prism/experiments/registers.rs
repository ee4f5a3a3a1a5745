//! Figures 6 and 7 of PRISM: replicated blocks. [PRISM21 7.4]

use anyhow::Result;
use serde_json::json;

use super::closed_loop::{CHART, COLUMNS, row};
use super::load::{Load, assume};
use super::testbed::Testbed;
use crate::experiments::{Chart, Context, Experiment, Form, Scale, Table, rounded};

/// "PRISM-RS and the two variants of lock-based ABD".
const SYSTEMS: [&str; 3] = ["prism-rs", "abdlock", "abdlock-software"];

/// Clients of the whole experiment: those of the full form, and of the quick one.
const CLIENTS: [&[usize]; 2] = [&[1, 2, 4, 8, 11, 22, 44, 88, 176, 352, 704], &[1, 8, 44, 176]];
/// Zipf parameters, times 100.
const ZIPF: [&[u8]; 2] = [&[0, 20, 40, 60, 70, 80, 90, 95, 99], &[0, 80, 99]];
/// "100 closed-loop clients".
pub(super) const CLIENTS_OF_FIGURE_7: usize = 100;

/// "3 servers, and a 50 % write workload", uniform.
pub(super) const BLOCKS: Load = Load {
    workload: "ycsb",
    servers: 3,
    objects: [1_200_000, 30_000],
    zipf_percent: 0,
    clients: 1,
};

/// The experiments of this file.
pub(super) static ALL: [Experiment; 2] = [
    Experiment {
        id: "prism-fig6",
        family: "prism",
        title: "Replicated blocks: latency against throughput, half writes [PRISM21 fig. 6]",
        columns: COLUMNS,
        chart: CHART,
        systems: &SYSTEMS,
        settings: &[],
        timed: true,
        run: figure_6,
    },
    Experiment {
        id: "prism-fig7",
        family: "prism",
        title: "Replicated blocks: latency of 100 clients under contention [PRISM21 fig. 7]",
        columns: &["system", "zipf", "latency_mean_us"],
        chart: Chart::Lines {
            x: "zipf",
            y: "latency_mean_us",
            series: &["system"],
            scale: Scale::LogY,
        },
        systems: &SYSTEMS,
        settings: &[],
        timed: true,
        run: figure_7,
    },
];

fn figure_6(context: &Context<'_>) -> Result<Table> {
    let mut runs = Vec::new();
    for system in context.systems() {
        runs.extend(of(context.options.form, CLIENTS).iter().map(|&clients| (system, clients)));
    }
    let on = &Testbed::new(context)?;
    let at = |&(system, clients): &(&'static str, usize)| {
        Load { clients, ..BLOCKS }.run(context, system, on)
    };
    let points = context.pool.map(&runs, at)?;
    let mut table = context.table();
    on.assume(&mut table);
    assume(context, &mut table, &BLOCKS);
    for ((system, clients), point) in runs.into_iter().zip(points) {
        table.push_bound(row(system, clients, &point), &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

fn figure_7(context: &Context<'_>) -> Result<Table> {
    let mut runs = Vec::new();
    for system in context.systems() {
        runs.extend(of(context.options.form, ZIPF).iter().map(|&zipf| (system, zipf)));
    }
    let on = &Testbed::new(context)?;
    let at = |&(system, zipf_percent): &(&'static str, u8)| {
        Load { clients: CLIENTS_OF_FIGURE_7, zipf_percent, ..BLOCKS }.run(context, system, on)
    };
    let points = context.pool.map(&runs, at)?;
    let mut table = context.table();
    on.assume(&mut table);
    assume(context, &mut table, &BLOCKS);
    for ((system, zipf_percent), point) in runs.into_iter().zip(points) {
        let zipf = rounded(f64::from(zipf_percent) / 100.0, 2);
        let measured = vec![json!(system), zipf, rounded(point.mean, 3)];
        table.push_bound(measured, &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

fn of<T: Copy>(form: Form, [full, quick]: [&'static [T]; 2]) -> &'static [T] {
    form.of([full, quick])
}
