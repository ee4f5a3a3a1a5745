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
        systems: SYSTEMS,
        settings: &[],
        timed: true,
        run: by_clients,
    },
];

/// Machines that ask, at most, and clients of each: what their cores have under way. [OffPath23 5.2]
const MACHINES: usize = 11;
const PER_MACHINE: usize = 24 * 3;
/// Bytes of a value. [OffPath23 5.2]
const VALUE_BYTES: u32 = 64;
/// Records: the study does not say how many; in its 10 GB range many.
const RECORDS: [u64; 2] = [1_000_000, 10_000];
/// The measured time, and the part before it.
const WINDOW: [Nanos; 2] = [Nanos::from_millis(1), Nanos::from_micros(100)];
const WARM_UP: [Nanos; 2] = [Nanos::from_micros(300), Nanos::from_micros(200)];
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

/// The alternative of a system: the part after the colon.
fn alternative(system: &str) -> &str {
    system.split_once(':').map_or(system, |(_, alternative)| alternative)
}

/// Runs `system` with so many clients on each of so many machines.
fn run(context: &Context<'_>, system: &str, machines: usize, clients: usize) -> Result<Point> {
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
    table.assume("a4+a5", "an eighth of the values is cached", "the study does not say");
    Ok(())
}

/// [OffPath23 figure 17]: one client alone, and as many as there are.
fn latency_and_throughput(context: &Context<'_>) -> Result<Table> {
    let systems = context.systems();
    let found = context.pool.map(&systems, |system| {
        Ok((run(context, system, 1, 1)?, run(context, system, MACHINES, PER_MACHINE)?))
    })?;
    let mut table = context.table();
    assume(context, &mut table)?;
    for (system, (alone, most)) in systems.iter().zip(found) {
        let rates = [rounded(alone.mean, 2), rounded(most.throughput / 1e6, 2)];
        table.push([json!(alternative(system))].into_iter().chain(rates).collect());
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
    for system in context.systems() {
        // [OffPath23 figure 18] A5 alone cannot run the whole workload.
        if system != "drtm-kv:a5" {
            points.extend(machines.iter().map(|&machines| (system, machines)));
        }
    }
    let found = context
        .pool
        .map(&points, |&(system, machines)| run(context, system, machines, PER_MACHINE))?;
    let mut table = context.table();
    assume(context, &mut table)?;
    for (&(system, machines), point) in points.iter().zip(found) {
        let throughput = rounded(point.throughput / 1e6, 2);
        table.push(vec![json!(alternative(system)), json!(machines), throughput]);
        table.judge(point.violations);
    }
    Ok(table)
}
