//! Figures 17 and 18: DrTM-KV's alternatives on YCSB C, and beside them two of the alternatives in
//! another form. [OffPath23 5.2]

use anyhow::{Result, ensure};
use nicol_core::units::Nanos;
use nicol_sim::Profile;
use nicol_workload::ycsb::{Mix, Popularity, SKEW};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{CLIENT, RNIC, SNIC, alternative_of};

use crate::binding::Binding;
use crate::config::{BenchConfig, Length};
use crate::experiments::{Chart, Context, Experiment, Scale, Table, digest, rounded};
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
/// Those that are compared in other forms.
const OF_MITIGATIONS: &[&str] = &["drtm-kv:a4", "drtm-kv:a5"];
/// Their settings: copies of what clients READ there, so that hot keys are in several banks
/// (advice 1), and values that clients READ instead of asking for them (AMB-30).
const FORMS: [(&str, &[&str]); 5] = [
    ("drtm-kv:a4", &[]),
    ("drtm-kv:a4", &["copies=4"]),
    ("drtm-kv:a5", &[]),
    ("drtm-kv:a5", &["kept_by=read"]),
    ("drtm-kv:a5", &["kept_by=read", "copies=4"]),
];

/// The experiments of this file.
pub(super) static ALL: [Experiment; 3] = [
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
    Experiment {
        id: "offpath-mitigations",
        family: "offpath",
        title: "DrTM-KV's A4 and A5 with copies of hot keys, and with values READ of the SoC",
        columns: &["alternative", "setting", "latency_us", "throughput_mops"],
        chart: Chart::Bars {
            category: &["alternative", "setting"],
            series: &[],
            y: "throughput_mops",
            inside: Some("latency_us"),
        },
        systems: OF_MITIGATIONS,
        settings: &[],
        timed: true,
        run: mitigations,
    },
];

/// Machines that ask, at most, and clients of each: what their cores have under way. [OffPath23
/// 5.2]
pub(super) const MACHINES: usize = 11;
pub(super) const PER_MACHINE: usize = 24 * 3;
/// Bytes of a value. [OffPath23 5.2]
pub(super) const VALUE_BYTES: u32 = 64;
/// Records: the study does not say how many; in its 10 GB range many.
pub(super) const RECORDS: [u64; 2] = [1_000_000, 10_000];
/// The measured time, and the part before it: of the slowest alternative, with most clients, a
/// request takes 100 us.
const WINDOW: [Nanos; 2] = [Nanos::from_millis(2), Nanos::from_millis(1)];
const WARM_UP: [Nanos; 2] = [Nanos::from_micros(500), Nanos::from_micros(300)];
/// Bytes of memory of a record, and of what a run needs besides.
const FOOTPRINT: u64 = 1_000;
const BASE: u64 = 500 << 20;

/// What one judged run measured.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Point {
    throughput: f64,
    mean: f64,
    binding: Binding,
    violations: Vec<String>,
}

/// Runs `system` with `settings` and so many clients on each of so many machines.
fn run(
    context: &Context<'_>,
    (system, settings): (&str, &[&str]),
    machines: usize,
    clients: usize,
) -> Result<Point> {
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
        settings: settings.iter().map(|&one| one.to_owned()).collect(),
        ..BenchConfig::new(
            system,
            spec,
            &format!("server={server},client={CLIENT}"),
            context.options.seed,
        )
    };
    let hardware = [server, CLIENT].map(Profile::load);
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
            binding: report.binding.clone(),
            violations: violations.map(|one| format!("{}: {one}", system.name)).collect(),
        })
    })
}

fn assume(context: &Context<'_>, table: &mut Table) -> Result<()> {
    let snic = context.options.profile.as_deref().unwrap_or(SNIC);
    for name in [snic, RNIC, CLIENT] {
        table.ran_on(&std::sync::Arc::new(Profile::load(name)?));
    }
    let form = context.options.form;
    table.assume("records", form.of(RECORDS), "the study does not say");
    let reason = "simulated; the published length is not given";
    table.assume("measured time", format!("{} us", form.of(WINDOW).0 / 1_000), reason);
    table.assume("clients of a machine", PER_MACHINE, "3 under way on each of 24 cores");
    let reason = "what clients ask for is always there, as the study restricts them";
    table.assume("a5", "every value is cached", reason);
    let reason = "figure 17 of the study may mean READ as well [AMB-30]";
    table.assume("a5 asks", "by SEND, unless a setting says otherwise", reason);
    if context.experiment.systems.contains(&"drtm-kv:a4+a5") {
        table.assume("a4+a5", "an eighth of the values is cached", "the study does not say");
    }
    Ok(())
}

/// The bars of an alternative.
struct Bars {
    /// The latency of one client alone, and the throughput of as many as there are.
    rates: [serde_json::Value; 2],
    /// The binding of the latter.
    binding: Binding,
    violations: Vec<String>,
}

fn measured(context: &Context<'_>, forms: &[(&str, &[&str])]) -> Result<Vec<Bars>> {
    context.pool.map(forms, |&form| {
        let alone = run(context, form, 1, 1)?;
        let most = run(context, form, MACHINES, PER_MACHINE)?;
        let rates = [rounded(alone.mean, 2), rounded(most.throughput / 1e6, 2)];
        let violations = alone.violations.into_iter().chain(most.violations).collect();
        Ok(Bars { rates, binding: most.binding, violations })
    })
}

/// [OffPath23 figure 17]: one client alone, and as many as there are.
fn latency_and_throughput(context: &Context<'_>) -> Result<Table> {
    let forms: Vec<_> = context.systems().into_iter().map(|system| (system, &[][..])).collect();
    let mut table = context.table();
    assume(context, &mut table)?;
    for ((system, _), found) in forms.iter().zip(measured(context, &forms)?) {
        let Bars { rates, binding, violations } = found;
        let measured = [json!(alternative_of(system))].into_iter().chain(rates).collect();
        table.push_bound(measured, &binding);
        table.judge(violations);
    }
    Ok(table)
}

/// The same of two alternatives, by settings. Beyond the figure.
fn mitigations(context: &Context<'_>) -> Result<Table> {
    let systems = context.systems();
    let mut forms = FORMS.to_vec();
    forms.retain(|(system, _)| systems.contains(system));
    let mut table = context.table();
    assume(context, &mut table)?;
    table.assume("copies", "4", "the study: a few hot keys, several times (advice 1)");
    for ((system, settings), found) in forms.iter().zip(measured(context, &forms)?) {
        let Bars { rates, binding, violations } = found;
        let names = [json!(alternative_of(system)), json!(settings.join(" "))];
        table.push_bound(names.into_iter().chain(rates).collect(), &binding);
        table.judge(violations);
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
        points.extend(machines.iter().map(|&machines| (system, machines)));
    }
    let found = context
        .pool
        .map(&points, |&(system, machines)| run(context, (system, &[]), machines, PER_MACHINE))?;
    let mut table = context.table();
    assume(context, &mut table)?;
    for (&(system, machines), point) in points.iter().zip(found) {
        let throughput = rounded(point.throughput / 1e6, 2);
        let measured = vec![json!(alternative_of(system)), json!(machines), throughput];
        table.push_bound(measured, &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}
