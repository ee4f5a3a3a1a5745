//! Figures 6 and 7 of PRISM: replicated blocks. [PRISM21 7.4]

use anyhow::Result;
use serde_json::json;

use super::closed_loop::{CHART, COLUMNS, row, sweep};
use super::load::{Load, assume};
use super::testbed::Testbed;
use crate::experiments::{Chart, Context, Experiment, Ladder, Scale, Table, rounded};

/// "PRISM-RS and the two variants of lock-based ABD".
const SYSTEMS: [&str; 3] = ["prism-rs", "abdlock", "abdlock-software"];

/// Clients of the whole experiment.
pub(super) const CLIENTS: [Ladder; 2] = [
    Ladder { low: &[1, 2, 4, 8], from: 11, factor: 2, most: 2_816 },
    Ladder { low: &[1, 8], from: 44, factor: 4, most: 2_816 },
];
/// Zipf parameters, times 100.
const ZIPF: [&[u8]; 2] = [&[0, 20, 40, 60, 70, 80, 90, 95, 99], &[0, 80, 99]];
/// "100 closed-loop clients".
pub(super) const CLIENTS_OF_FIGURE_7: usize = 100;

/// "3 servers, and a 50 % write workload", uniform.
pub(super) const BLOCKS: Load = Load {
    workload: "ycsb",
    servers: 3,
    objects: [1_200_000, 30_000],
    settings: &[],
    zipf_percent: 0,
    clients: 1,
};

/// A system, what is set in it, and what its rows are called: each as the paper describes it, and
/// beside it ABDLOCK with the other reading of whom it writes (AMB-54).
type Shown = (&'static str, &'static [&'static str], &'static str);
const SHOWN: [Shown; 4] = [
    ("prism-rs", &[], "prism-rs"),
    ("abdlock", &[], "abdlock"),
    ("abdlock", &["write_to=quorum"], "abdlock write_to=quorum"),
    ("abdlock-software", &[], "abdlock-software"),
];

/// What is shown of the systems that are asked for.
fn every_shown(context: &Context<'_>) -> Vec<Shown> {
    let systems = context.systems();
    SHOWN.into_iter().filter(|(system, ..)| systems.contains(system)).collect()
}

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
    let ladder = context.options.form.of(CLIENTS);
    let on = &Testbed::new(context)?;
    let every = every_shown(context);
    let found = sweep(context, &every, &ladder, |&(system, settings, _), clients| {
        Load { clients, settings, ..BLOCKS }.run(context, system, on)
    })?;
    let mut table = context.table();
    on.assume(&mut table);
    assume(context, &mut table, &BLOCKS);
    ladder.assume(&mut table, "clients of the whole experiment");
    for ((.., name), clients, point) in found {
        table.push_bound(row(name, clients, &point), &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

fn figure_7(context: &Context<'_>) -> Result<Table> {
    let mut runs = Vec::new();
    for shown in every_shown(context) {
        runs.extend(context.options.form.of(ZIPF).iter().map(|&zipf| (shown, zipf)));
    }
    let on = &Testbed::new(context)?;
    let at = |&((system, settings, _), zipf_percent): &(Shown, u8)| {
        let load = Load { clients: CLIENTS_OF_FIGURE_7, zipf_percent, settings, ..BLOCKS };
        load.run(context, system, on)
    };
    let points = context.pool.map(&runs, at)?;
    let mut table = context.table();
    on.assume(&mut table);
    assume(context, &mut table, &BLOCKS);
    for (((.., name), zipf_percent), point) in runs.into_iter().zip(points) {
        let zipf = rounded(f64::from(zipf_percent) / 100.0, 2);
        let measured = vec![json!(name), zipf, rounded(point.mean, 3)];
        table.push_bound(measured, &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}
