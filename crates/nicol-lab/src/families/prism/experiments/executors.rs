//! The end-to-end figures of PRISM once more, with every executor of chains side by side: software
//! on host cores, the card of section 4.2, and the cores of a BlueField. The paper compares them in
//! figures 1 and 2 only. Beside them stands the baseline with plain verbs. [PRISM21 4, 6.2, 7.4,
//! 8.3]

use anyhow::{Context as _, Result};
use nicol_workload::ycsb::Mix;
use serde_json::{Value, json};

use super::closed_loop::{CLIENTS, sweep};
use super::load::{Load, Point};
use super::registers::{self, BLOCKS, CLIENTS_OF_FIGURE_7};
use super::testbed::{Executor, Testbed};
use super::transactions::{self, Case, Shown};
use super::{key_values, load};
use crate::experiments::{Chart, Context, Experiment, Ladder, Scale, Table, rounded};

const OF_LOAD: &[&str] = &[
    "system",
    "executor",
    "clients",
    "throughput_per_s",
    "latency_mean_us",
    "latency_p50_us",
    "latency_p99_us",
];
const LOAD_CHART: Chart = Chart::Lines {
    x: "throughput_per_s",
    y: "latency_mean_us",
    series: &["system", "executor"],
    scale: Scale::LogY,
};

/// The systems whose requests are chains. The others are the baselines, whose requests are plain
/// verbs.
const OF_CHAINS: [&str; 3] = ["prism-kv", "prism-rs", "prism-tx"];

/// The executor of a baseline's verbs: the card, as it is.
const VERBS: &str = "verbs";

/// Zipf parameters, times 100.
const ZIPF: [&[u8]; 2] = [&[0, 20, 40, 60, 70, 80, 90, 95, 99], &[0, 99]];

/// The experiments of this file.
pub(super) static ALL: [Experiment; 6] = [
    Experiment {
        id: "prism-fig3-executors",
        family: "prism",
        title: "PRISM-KV by who executes chains, YCSB C: reads [beyond PRISM21 fig. 3]",
        columns: OF_LOAD,
        chart: LOAD_CHART,
        systems: &["prism-kv", "pilaf"],
        settings: &["hash"],
        timed: true,
        run: |context| key_value(context, Mix::C),
    },
    Experiment {
        id: "prism-fig4-executors",
        family: "prism",
        title: "PRISM-KV by who executes chains, YCSB A: half writes [beyond PRISM21 fig. 4]",
        columns: OF_LOAD,
        chart: LOAD_CHART,
        systems: &["prism-kv", "pilaf"],
        settings: &["hash"],
        timed: true,
        run: |context| key_value(context, Mix::A),
    },
    Experiment {
        id: "prism-fig6-executors",
        family: "prism",
        title: "PRISM-RS by who executes chains, half writes [beyond PRISM21 fig. 6]",
        columns: OF_LOAD,
        chart: LOAD_CHART,
        systems: &["prism-rs", "abdlock"],
        settings: &[],
        timed: true,
        run: blocks,
    },
    Experiment {
        id: "prism-fig7-executors",
        family: "prism",
        title: "PRISM-RS by who executes chains: latency of 100 clients under contention [beyond \
                PRISM21 fig. 7]",
        columns: &["system", "executor", "zipf", "latency_mean_us"],
        chart: Chart::Lines {
            x: "zipf",
            y: "latency_mean_us",
            series: &["system", "executor"],
            scale: Scale::LogY,
        },
        systems: &["prism-rs", "abdlock"],
        settings: &[],
        timed: true,
        run: contended_blocks,
    },
    Experiment {
        id: "prism-fig9-executors",
        family: "prism",
        title: "PRISM-TX by who executes chains, YCSB-T with low contention [beyond PRISM21 fig. 9]",
        columns: OF_LOAD,
        chart: LOAD_CHART,
        systems: &["prism-tx", "farm"],
        settings: &[],
        timed: true,
        run: transactions_of_load,
    },
    Experiment {
        id: "prism-fig10-executors",
        family: "prism",
        title: "PRISM-TX by who executes chains, YCSB-T: peak throughput under contention [beyond \
                PRISM21 fig. 10]",
        columns: &["system", "executor", "zipf", "peak_throughput_per_s"],
        chart: Chart::Lines {
            x: "zipf",
            y: "peak_throughput_per_s",
            series: &["system", "executor"],
            scale: Scale::LogY,
        },
        systems: &["prism-tx", "farm"],
        settings: &[],
        timed: true,
        run: peaks,
    },
];

/// A system on what executes its requests.
struct Series {
    system: &'static str,
    executor: &'static str,
    on: Testbed,
}

/// PRISM's system with every executor, and the baseline: of those that are asked for.
fn every_series(context: &Context<'_>) -> Result<Vec<Series>> {
    let mut every = Vec::new();
    for system in context.systems() {
        if !OF_CHAINS.contains(&system) {
            every.push(Series { system, executor: VERBS, on: Testbed::new(context)? });
            continue;
        }
        for executor in Executor::EVERY {
            let on = Testbed::with(context, executor)?;
            every.push(Series { system, executor: executor.name(), on });
        }
    }
    Ok(every)
}

/// A table of one row for each of `at` on each of `every` series, by `measure`.
fn measured<X: Copy + Sync>(
    context: &Context<'_>,
    every: &[Series],
    at: &[X],
    measure: impl Fn(&Series, X) -> Result<Point> + Sync,
    row: impl Fn(X, &Point) -> Vec<Value>,
) -> Result<Table> {
    let mut runs = Vec::new();
    for series in every {
        runs.extend(at.iter().map(|&at| (series, at)));
    }
    let points = context.pool.map(&runs, |&(series, at)| measure(series, at))?;
    let rows = runs.into_iter().zip(points);
    Ok(table_of(context, every, rows.map(|((series, at), point)| (series, row(at, &point), point))))
}

/// A table of one row for each load of `ladder` on each of `every` series, by `measure`.
fn climbed(
    context: &Context<'_>,
    every: &[Series],
    ladder: &Ladder,
    measure: impl Fn(&Series, usize) -> Result<Point> + Sync,
) -> Result<Table> {
    let series: Vec<&Series> = every.iter().collect();
    let found = sweep(context, &series, ladder, |series, clients| measure(series, clients))?;
    let row = |clients, point: &Point| std::iter::once(json!(clients)).chain(point.numbers());
    let rows = found
        .into_iter()
        .map(|(series, clients, point)| (series, row(clients, &point).collect(), point));
    Ok(table_of(context, every, rows))
}

/// The table of these rows.
fn table_of<'s>(
    context: &Context<'_>,
    every: &[Series],
    rows: impl Iterator<Item = (&'s Series, Vec<Value>, Point)>,
) -> Table {
    let mut table = context.table();
    every.iter().for_each(|series| series.on.assume(&mut table));
    let reason = "bluefield1-25g in the network of the others: the paper's is at 25 GbE without a \
                  switch, and runs no application";
    table.assume("servers of bluefield", "rate and latency of the clients' link", reason);
    // The link of the server binds both at their peaks; the card's are the lower where a chain
    // carries data, since 96 B of headers come with each packet.
    let reason = "a chain on a card is packets of its own; requests and answers of software gather \
                  in frames under load, and share their headers";
    table.assume("packets of asic", "one request or response each", reason);
    for (series, row, point) in rows {
        let mut cells = vec![json!(series.system), json!(series.executor)];
        cells.extend(row);
        table.push_bound(cells, &point.binding);
        table.judge(point.violations);
    }
    table
}

fn share(percent: u8) -> Value {
    rounded(f64::from(percent) / 100.0, 2)
}

fn key_value(context: &Context<'_>, mix: Mix) -> Result<Table> {
    let measure = |series: &Series, clients: usize| {
        key_values::measure(context, (series.system, mix), &series.on, clients)
    };
    let ladder = context.options.form.of(CLIENTS);
    let mut table = climbed(context, &every_series(context)?, &ladder, measure)?;
    key_values::assume(context, &mut table);
    Ok(table)
}

fn blocks(context: &Context<'_>) -> Result<Table> {
    let measure = |series: &Series, clients: usize| {
        Load { clients, ..BLOCKS }.run(context, series.system, &series.on)
    };
    let ladder = context.options.form.of(registers::CLIENTS);
    let mut table = climbed(context, &every_series(context)?, &ladder, measure)?;
    load::assume(context, &mut table, &BLOCKS);
    ladder.assume(&mut table, "clients of the whole experiment");
    Ok(table)
}

fn contended_blocks(context: &Context<'_>) -> Result<Table> {
    let measure = |series: &Series, zipf_percent: u8| {
        let load = Load { clients: CLIENTS_OF_FIGURE_7, zipf_percent, ..BLOCKS };
        load.run(context, series.system, &series.on)
    };
    let row = |zipf: u8, point: &Point| vec![share(zipf), rounded(point.mean, 3)];
    let zipf = context.options.form.of(ZIPF);
    let mut table = measured(context, &every_series(context)?, zipf, measure, row)?;
    load::assume(context, &mut table, &BLOCKS);
    Ok(table)
}

/// The system of `series` as its paper describes it.
fn shown(series: &Series) -> Result<Shown> {
    let shown = Shown::as_described(series.system);
    shown.with_context(|| format!("{} runs no transactions", series.system))
}

fn transactions_of_load(context: &Context<'_>) -> Result<Table> {
    let measure = |series: &Series, clients: usize| {
        let shown = shown(series)?;
        Case { shown, clients, zipf_percent: 0 }.measure(context, &series.on)
    };
    let ladder = context.options.form.of(CLIENTS);
    let mut table = climbed(context, &every_series(context)?, &ladder, measure)?;
    transactions::assume(context, &mut table, ladder);
    Ok(table)
}

fn peaks(context: &Context<'_>) -> Result<Table> {
    let form = context.options.form;
    let ladder = form.of(transactions::CLIENTS_AT_PEAK);
    let measure = |series: &Series, zipf_percent: u8| {
        let shown = shown(series)?;
        let at = |clients| {
            let case = Case { shown, clients, zipf_percent };
            case.measure(context, &series.on)
        };
        Point::peak_of(ladder.climb(|point: &Point| point.throughput, at)?)
    };
    let row = |zipf: u8, point: &Point| vec![share(zipf), rounded(point.throughput, 0)];
    let mut table = measured(context, &every_series(context)?, form.of(ZIPF), measure, row)?;
    transactions::assume(context, &mut table, ladder);
    Ok(table)
}
