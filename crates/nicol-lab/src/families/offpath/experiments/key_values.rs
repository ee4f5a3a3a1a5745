//! Figures 17 and 18: DrTM-KV's alternatives on YCSB C. [OffPath23 5.2]

use anyhow::{Result, ensure};
use nicol_core::units::Nanos;
use nicol_workload::ycsb::{Mix, Popularity, SKEW};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{CLIENT, RNIC, SNIC};
use crate::config::{BenchConfig, Length};
use crate::experiments::{Chart, Context, Experiment, Scale, Table, digest, rounded};
use crate::profiles;
use crate::systems;
use crate::workloads::WorkloadSpec;

const SYSTEMS: &[&str] = &[
    "drtm-kv:rnic",
    "drtm-kv:a1",
    "drtm-kv:a2",
    "drtm-kv:a3",
    "drtm-kv:a4",
    "drtm-kv:a5",
    "drtm-kv:a4+a5",
];
/// Those that run the whole workload: A5 alone does not. [OffPath23 figure 18]
const OF_FIGURE_18: &[&str] =
    &["drtm-kv:rnic", "drtm-kv:a1", "drtm-kv:a2", "drtm-kv:a3", "drtm-kv:a4", "drtm-kv:a4+a5"];

/// The experiments of this file.
pub(super) static ALL: [Experiment; 2] = [
    Experiment {
        id: "offpath-fig17",
        family: "offpath",
        title: "DrTM-KV's alternatives on YCSB C: latency and throughput [OffPath23 fig. 17]",
        columns: &["alternative", "latency_us", "throughput_mops"],
        chart: Chart::Bars {
            category: &["alternative"],
            series: &[],
            y: "throughput_mops",
            inside: Some("latency_us"),
        },
        systems: SYSTEMS,
        settings: &[],
        timed: true,
        run: latency_and_throughput,
    },
    Experiment {
        id: "offpath-fig18",
        family: "offpath",
        title: "DrTM-KV's alternatives on YCSB C by client machines [OffPath23 fig. 18]",
        columns: &["alternative", "clients", "throughput_mops"],
        chart: Chart::Lines {
            x: "clients",
            y: "throughput_mops",
            series: &["alternative"],
            scale: Scale::LogX,
        },
        systems: OF_FIGURE_18,
        settings: &[],
        timed: true,
        run: by_clients,
    },
];

/// Machines that ask, at most, and clients of each: what their cores have under way. [OffPath23
/// 5.2]
const MACHINES: usize = 11;
const PER_MACHINE: usize = 24 * 3;
/// Bytes of a value. [OffPath23 5.2]
const VALUE_BYTES: u32 = 64;
/// Records: the study does not say how many; in its 10 GB range many.
const RECORDS: [u64; 2] = [1_000_000, 10_000];
/// The measured time, and the part before it: of the slowest alternative, with most clients, a
/// request takes 100 us.
const WINDOW: [Nanos; 2] = [Nanos::from_millis(2), Nanos::from_millis(1)];
const WARM_UP: [Nanos; 2] = [Nanos::from_micros(500), Nanos::from_micros(300)];
/// Bytes of memory of a record, and of what a run needs besides.
const FOOTPRINT: u64 = 1_000;
const BASE: u64 = 500 << 20;

/// One judged run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Point {
    throughput: f64,
    mean: f64,
    violations: Vec<String>,
}

/// A system with settings, as a row has it.
struct Row {
    name: &'static str,
    system: &'static str,
    settings: &'static [&'static str],
}

/// An alternative in another form than the study's default, or its own.
const fn row(name: &'static str, system: &'static str, settings: &'static [&'static str]) -> Row {
    Row { name, system, settings }
}

/// What the rows are: the part of a system's name after the colon, then how it differs. Copies: of
/// what clients READ of the SoC's memory, so that hot keys are in several banks (advice 1).
static ROWS: [Row; 10] = [
    row("rnic", "drtm-kv:rnic", &[]),
    row("a1", "drtm-kv:a1", &[]),
    row("a2", "drtm-kv:a2", &[]),
    row("a3", "drtm-kv:a3", &[]),
    row("a4", "drtm-kv:a4", &[]),
    row("a4, 4 copies", "drtm-kv:a4", &["copies=4"]),
    row("a5", "drtm-kv:a5", &[]),
    row("a5 by READ", "drtm-kv:a5", &["kept_by=read"]),
    row("a5 by READ, 4 copies", "drtm-kv:a5", &["kept_by=read", "copies=4"]),
    row("a4+a5", "drtm-kv:a4+a5", &[]),
];

/// Runs `row` with so many clients on each of so many machines.
fn run(context: &Context<'_>, row: &Row, machines: usize, clients: usize) -> Result<Point> {
    let system = row.system;
    let form = context.options.form;
    let records = form.of(RECORDS);
    let snic = context.options.profile.as_deref().unwrap_or(SNIC);
    let server = if system == SYSTEMS[0] { RNIC } else { snic };
    let spec = WorkloadSpec {
        records: Some(records),
        value_bytes: Some(VALUE_BYTES),
        mix: Some(Mix::C),
        popularity: Some(Popularity::Zipfian(SKEW)),
        ..WorkloadSpec::named("ycsb")
    };
    let config = BenchConfig {
        nodes: 1,
        replicas: 1,
        client_nodes: machines,
        host_engines: Some(24),
        nic_engines: Some(8),
        clients: Some(clients),
        length: Some(Length::Time(form.of(WINDOW))),
        warmup: Some(form.of(WARM_UP)),
        settings: row.settings.iter().map(|&one| one.to_owned()).collect(),
        ..BenchConfig::new(
            system,
            spec,
            &format!("server={server},client={CLIENT}"),
            context.options.seed,
        )
    };
    let hardware = [server, CLIENT].map(profiles::load);
    let hardware = digest(&format!("{hardware:?}"));
    let name = format!("drtm-kv {hardware:016x} {config:?}");
    let system = systems::find(system)?;
    context.point(&name, records * FOOTPRINT + BASE, || {
        let report = (system.run)(system, &config)?.report;
        ensure!(report.committed > 0, "{}: nothing was read in the measured time", system.name);
        let violations = report.check.violations.iter();
        Ok(Point {
            throughput: report.throughput_per_s,
            mean: report.latency_us.mean,
            violations: violations.map(|one| format!("{}: {one}", system.name)).collect(),
        })
    })
}

/// The rows of the systems that were asked for.
fn rows(context: &Context<'_>) -> Vec<&'static Row> {
    let systems = context.systems();
    ROWS.iter().filter(|row| systems.contains(&row.system)).collect()
}

fn assume(context: &Context<'_>, table: &mut Table) -> Result<()> {
    let snic = context.options.profile.as_deref().unwrap_or(SNIC);
    for name in [snic, RNIC, CLIENT] {
        table.ran_on(&std::sync::Arc::new(profiles::load(name)?));
    }
    let form = context.options.form;
    table.assume("records", form.of(RECORDS), "the study does not say");
    let reason = "simulated; the published length is not given";
    table.assume("measured time", format!("{} us", form.of(WINDOW).0 / 1_000), reason);
    table.assume("clients of a machine", PER_MACHINE, "3 under way on each of 24 cores");
    let reason = "what clients ask for is always there, as the study restricts them";
    table.assume("a5", "every value is cached", reason);
    let reason = "not by SEND: figure 17 of the study may mean either [AMB-30]";
    table.assume("a5 by READ", "kept_by=read", reason);
    table.assume("4 copies", "copies=4", "the study: a few hot keys, several times (advice 1)");
    table.assume("a4+a5", "an eighth of the values is cached", "the study does not say");
    Ok(())
}

/// [OffPath23 figure 17]: one client alone, and as many as there are.
fn latency_and_throughput(context: &Context<'_>) -> Result<Table> {
    let rows = rows(context);
    let found = context.pool.map(&rows, |row| {
        Ok((run(context, row, 1, 1)?, run(context, row, MACHINES, PER_MACHINE)?))
    })?;
    let mut table = context.table();
    assume(context, &mut table)?;
    for (row, (alone, most)) in rows.iter().zip(found) {
        let rates = [rounded(alone.mean, 2), rounded(most.throughput / 1e6, 2)];
        table.push([json!(row.name)].into_iter().chain(rates).collect());
        table.judge(alone.violations);
        table.judge(most.violations);
    }
    Ok(table)
}

/// [OffPath23 figure 18]: more and more machines.
fn by_clients(context: &Context<'_>) -> Result<Table> {
    const FULL: [usize; 6] = [1, 3, 5, 7, 9, MACHINES];
    const QUICK: [usize; 3] = [2, 6, MACHINES];
    let machines = context.options.form.of([&FULL[..], &QUICK[..]]);
    let mut points = Vec::new();
    for row in rows(context) {
        points.extend(machines.iter().map(|&machines| (row, machines)));
    }
    let found =
        context.pool.map(&points, |&(row, machines)| run(context, row, machines, PER_MACHINE))?;
    let mut table = context.table();
    assume(context, &mut table)?;
    for (&(row, machines), point) in points.iter().zip(found) {
        let throughput = rounded(point.throughput / 1e6, 2);
        table.push(vec![json!(row.name), json!(machines), throughput]);
        table.judge(point.violations);
    }
    Ok(table)
}
