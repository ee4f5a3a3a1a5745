//! Figures 9 and 10 of PRISM: PRISM-TX and FaRM under YCSB-T. [PRISM21 8.3]

use anyhow::Result;
use nicol_core::units::Nanos;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::SWITCHED;
use crate::config::{BenchConfig, Length};
use crate::experiments::{Chart, Context, Experiment, Form, Scale, Table, digest, rounded};
use crate::profiles;
use crate::systems;
use crate::workloads::WorkloadSpec;

/// "Both hardware and software RDMA implementations for FaRM".
const SYSTEMS: &[&str] = &["prism-tx", "farm", "farm-software"];
/// What they run with: no collisions, as the paper's key-value stores; FaRM with two READs for a lookup,
/// RPCs as PRISM's, and clients that wait until the only copy of their writes is there, as those of
/// PRISM-TX do. (P-43)
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
        columns: &[
            "system",
            "clients",
            "throughput_per_s",
            "latency_mean_us",
            "latency_p50_us",
            "latency_p99_us",
        ],
        chart: Chart::Lines {
            x: "throughput_per_s",
            y: "latency_mean_us",
            series: &["system"],
            scale: Scale::LogY,
        },
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

/// Client machines at most, and cores of the server that serve. [PRISM21 6.2]
const CLIENT_NODES: usize = 11;
const CORES: usize = 16;
/// Bytes of an object. [PRISM21 8.3]
const VALUE_BYTES: u32 = 512;
/// Clients of the whole experiment: one, then as many on each of the client machines.
const CLIENTS: [&[usize]; 2] = [&[1, 11, 22, 44, 88, 176, 352, 704, 1_408], &[1, 22, 88, 352]];
/// Those among which the peak is looked for.
const CLIENTS_AT_PEAK: [&[usize]; 2] = [&[44, 88, 176, 352, 704, 1_408], &[88, 352]];
/// Zipf parameters, times 100.
const ZIPF: [&[u8]; 2] = [&[0, 20, 40, 60, 70, 80, 90, 95, 99], &[0, 80, 99]];
/// Objects: the paper has 8 million.
const OBJECTS: [u64; 2] = [1_000_000, 20_000];
/// Bytes of memory that an object takes at most, in buffers, slots and a table's free space.
const OBJECT_MEMORY: u64 = 2_400;

/// One judged run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Point {
    throughput: f64,
    mean: f64,
    p50: f64,
    p99: f64,
    violations: Vec<String>,
}

/// What is varied.
#[derive(Clone, Copy)]
struct Run {
    system: &'static str,
    clients: usize,
    zipf_percent: u8,
}

fn windows(form: Form) -> (Nanos, Nanos) {
    (Nanos::from_micros(form.of([200, 50])), Nanos::from_micros(form.of([2_000, 200])))
}

fn profile<'c>(context: &Context<'c>) -> &'c str {
    context.options.profile.as_deref().unwrap_or(SWITCHED)
}

fn config(context: &Context<'_>, run: Run) -> BenchConfig {
    let form = context.options.form;
    let spec = WorkloadSpec {
        records: Some(form.of(OBJECTS)),
        value_bytes: Some(VALUE_BYTES),
        keys: Some(1),
        read_percent: Some(0),
        zipf_percent: Some(run.zipf_percent),
        ..WorkloadSpec::named("ycsb-t")
    };
    let settings = if run.system == SYSTEMS[0] { OF_PRISM_TX } else { OF_FARM };
    let (warmup, window) = windows(form);
    let client_nodes = run.clients.min(CLIENT_NODES);
    BenchConfig {
        settings: settings.iter().map(ToString::to_string).collect(),
        nodes: 1,
        client_nodes,
        replicas: 1,
        host_engines: Some(CORES),
        nic_engines: Some(CORES),
        clients: Some(run.clients / client_nodes),
        length: Some(Length::Time(window)),
        warmup: Some(warmup),
        ..BenchConfig::new(run.system, spec, profile(context), context.options.seed)
    }
}

fn measure(context: &Context<'_>, run: Run) -> Result<Point> {
    let config = config(context, run);
    let system = systems::find(run.system)?;
    let hardware = digest(&format!("{:?}", profiles::load(&config.on)?));
    let name = format!("prism-tx figures {hardware:016x} {config:?}");
    let memory = context.options.form.of(OBJECTS) * OBJECT_MEMORY;
    context.point(&name, memory, || {
        let report = (system.run)(system, &config)?.report;
        let Run { system, clients, zipf_percent } = run;
        let what = format!("{system} with {clients} clients, zipf {zipf_percent} %");
        let violations = report.check.violations.iter();
        Ok(Point {
            throughput: report.throughput_per_s,
            mean: report.latency_us.mean,
            p50: report.latency_us.p50,
            p99: report.latency_us.p99,
            violations: violations.map(|one| format!("{what}: {one}")).collect(),
        })
    })
}

/// "We use only a single shard": one server, and clients on up to eleven other machines.
fn assume(context: &Context<'_>, table: &mut Table) -> Result<()> {
    let form = context.options.form;
    table.ran_on(&std::sync::Arc::new(profiles::load(profile(context))?));
    let (warmup, window) = windows(form);
    let span = |span: Nanos| format!("{} us", span.0 / 1_000);
    table.assume("warm-up", span(warmup), "simulated");
    table.assume("measured time", span(window), "simulated; the published length is not given");
    table.assume("objects", form.of(OBJECTS), "of 512 B each; the paper has 8 million");
    let reason = "\"short read-modify-write transactions\": the shortest";
    table.assume("objects of a transaction", 1, reason);
    table.assume("host cores of a client machine", CORES, "not published");
    let reason = "PRISM-TX: not published; as far as clocks are synchronized in a machine room";
    table.assume("clocks of clients differ", "up to 5 us", reason);
    table.assume("clients", "closed loop, spread over up to 11 machines", "as published");
    Ok(())
}

fn figure_9(context: &Context<'_>) -> Result<Table> {
    let mut runs = Vec::new();
    for system in context.systems() {
        let of = |&clients: &usize| Run { system, clients, zipf_percent: 0 };
        runs.extend(context.options.form.of(CLIENTS).iter().map(of));
    }
    let found = context.pool.map(&runs, |run| measure(context, *run))?;
    let mut table = context.table();
    assume(context, &mut table)?;
    for (run, point) in runs.iter().zip(found) {
        table.push(vec![
            json!(run.system),
            json!(run.clients),
            rounded(point.throughput, 0),
            rounded(point.mean, 3),
            rounded(point.p50, 3),
            rounded(point.p99, 3),
        ]);
        table.judge(point.violations);
    }
    Ok(table)
}

fn figure_10(context: &Context<'_>) -> Result<Table> {
    let form = context.options.form;
    let clients = form.of(CLIENTS_AT_PEAK);
    let mut runs = Vec::new();
    for system in context.systems() {
        for &zipf_percent in form.of(ZIPF) {
            runs.extend(clients.iter().map(|&clients| Run { system, clients, zipf_percent }));
        }
    }
    let found = context.pool.map(&runs, |run| measure(context, *run))?;
    let mut table = context.table();
    assume(context, &mut table)?;
    for (runs, points) in runs.chunks(clients.len()).zip(found.chunks(clients.len())) {
        let peak = points.iter().map(|point| point.throughput).fold(0.0, f64::max);
        let zipf = rounded(f64::from(runs[0].zipf_percent) / 100.0, 2);
        table.push(vec![json!(runs[0].system), zipf, rounded(peak, 0)]);
        points.iter().for_each(|point| table.judge(point.violations.clone()));
    }
    Ok(table)
}
