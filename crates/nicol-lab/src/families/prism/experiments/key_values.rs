//! Figures 3 and 4 of PRISM: PRISM-KV and Pilaf under a growing load. [PRISM21 6.2]

use anyhow::Result;
use nicol_core::units::Nanos;
use nicol_workload::ycsb::{Mix, Popularity};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::SWITCHED;
use crate::config::{BenchConfig, Length};
use crate::experiments::{Chart, Context, Experiment, Form, Scale, Table, digest, rounded};
use crate::profiles;
use crate::systems;
use crate::workloads::WorkloadSpec;

const SYSTEMS: &[&str] = &["prism-kv", "pilaf", "pilaf-software"];
const COLUMNS: &[&str] = &[
    "system",
    "clients",
    "throughput_per_s",
    "latency_mean_us",
    "latency_p50_us",
    "latency_p99_us",
];
const CHART: Chart = Chart::Lines {
    x: "throughput_per_s",
    y: "latency_mean_us",
    series: &["system"],
    scale: Scale::LogY,
};

/// The experiments of this file.
pub(super) static ALL: [Experiment; 2] = [
    Experiment {
        id: "prism-fig3",
        family: "prism",
        title: "PRISM-KV and Pilaf, YCSB C: reads [PRISM21 fig. 3]",
        columns: COLUMNS,
        chart: CHART,
        systems: SYSTEMS,
        settings: &["hash"],
        timed: true,
        run: |context| throughput_and_latency(context, Mix::C),
    },
    Experiment {
        id: "prism-fig4",
        family: "prism",
        title: "PRISM-KV and Pilaf, YCSB A: half writes [PRISM21 fig. 4]",
        columns: COLUMNS,
        chart: CHART,
        systems: SYSTEMS,
        settings: &["hash"],
        timed: true,
        run: |context| throughput_and_latency(context, Mix::A),
    },
];

/// Client machines at most, and cores of the server that serve. [PRISM21 6.2]
const CLIENT_NODES: usize = 11;
const CORES: usize = 16;
/// Bytes of a value. [PRISM21 6.2]
const VALUE_BYTES: u32 = 512;

/// Clients of the whole experiment: one, then as many on each of the client machines.
const CLIENTS: [&[usize]; 2] = [&[1, 11, 22, 44, 88, 176, 352, 704, 1_408], &[1, 22, 88, 352]];
/// Records: the paper has 8 million.
const RECORDS: [u64; 2] = [1_000_000, 20_000];
/// Bytes of memory that a record takes at most, in a buffer and slots.
const RECORD_MEMORY: u64 = 2_400;

/// One judged run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Point {
    throughput: f64,
    mean: f64,
    p50: f64,
    p99: f64,
    violations: Vec<String>,
}

fn windows(form: Form) -> (Nanos, Nanos) {
    (Nanos::from_micros(form.of([200, 50])), Nanos::from_micros(form.of([2_000, 200])))
}

fn config(context: &Context<'_>, system: &str, mix: Mix, clients: usize) -> BenchConfig {
    let form = context.options.form;
    let spec = WorkloadSpec {
        mix: Some(mix),
        records: Some(form.of(RECORDS)),
        value_bytes: Some(VALUE_BYTES),
        popularity: Some(Popularity::Uniform),
        ..WorkloadSpec::named("ycsb")
    };
    let (warmup, window) = windows(form);
    let client_nodes = clients.min(CLIENT_NODES);
    let on = context.options.profile.as_deref().unwrap_or(SWITCHED);
    BenchConfig {
        settings: vec!["hash=collision-free".to_owned()],
        nodes: 1,
        client_nodes,
        replicas: 1,
        host_engines: Some(CORES),
        nic_engines: Some(CORES),
        clients: Some(clients / client_nodes),
        length: Some(Length::Time(window)),
        warmup: Some(warmup),
        ..BenchConfig::new(system, spec, on, context.options.seed)
    }
}

fn measure(context: &Context<'_>, name: &str, mix: Mix, clients: usize) -> Result<Point> {
    let config = config(context, name, mix, clients);
    let system = systems::find(name)?;
    let hardware = digest(&format!("{:?}", profiles::load(&config.on)?));
    let run = format!("prism-kv figures {hardware:016x} {config:?}");
    let memory = context.options.form.of(RECORDS) * RECORD_MEMORY;
    context.point(&run, memory, || {
        let report = (system.run)(system, &config)?.report;
        let what = format!("{name} with {clients} clients");
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

/// [PRISM21 6.2]: one server, and clients on up to eleven other machines.
fn throughput_and_latency(context: &Context<'_>, mix: Mix) -> Result<Table> {
    let form = context.options.form;
    let mut points = Vec::new();
    for system in context.systems() {
        points.extend(form.of(CLIENTS).iter().map(|&clients| (system, clients)));
    }
    let found =
        context.pool.map(&points, |&(system, clients)| measure(context, system, mix, clients))?;
    let mut table = context.table();
    let on = context.options.profile.as_deref().unwrap_or(SWITCHED);
    table.ran_on(&std::sync::Arc::new(profiles::load(on)?));
    let (warmup, window) = windows(form);
    let span = |span: Nanos| format!("{} us", span.0 / 1_000);
    table.assume("warm-up", span(warmup), "simulated");
    table.assume("measured time", span(window), "simulated; the published length is not given");
    table.assume("records", form.of(RECORDS), "the paper has 8 million; accesses are uniform");
    table.assume("host cores of a client machine", CORES, "not published");
    table.assume("clients", "closed loop, spread over up to 11 machines", "as published");
    for ((system, clients), point) in points.iter().zip(found) {
        table.push(vec![
            json!(system),
            json!(clients),
            rounded(point.throughput, 0),
            rounded(point.mean, 3),
            rounded(point.p50, 3),
            rounded(point.p99, 3),
        ]);
        table.judge(point.violations);
    }
    Ok(table)
}
