//! Figures 17 and 18: DrTM-KV's alternatives on YCSB C, and beside them two of the alternatives in
//! another form. [OffPath23 5.2]

use anyhow::{Result, ensure};
use nicol_core::units::Nanos;
use nicol_sim::Profile;
use nicol_workload::ycsb::{Mix, Popularity, SKEW};
use nicol_workload::zipf::Theta;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{CLIENT, RNIC, SNIC, alternative_of};

use crate::experiments::{Chart, Context, Experiment, Scale, Table, digest, rounded};
use nicol_bench::binding::Binding;
use nicol_bench::config::{BenchConfig, Length};
use nicol_bench::systems;
use nicol_bench::workloads::WorkloadSpec;

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
/// What is changed in a card on which packets alone bind READs. (AMB-56)
const BY_PACKETS: &str = ":card.suspected.read_limit_permille=400";
/// Alternatives whose gets are READs, which figure 17 shows under both readings.
const OF_READS: [&str; 4] = ["drtm-kv:rnic", "drtm-kv:a1", "drtm-kv:a4", BOTH];
/// A4 and A5 together.
const BOTH: &str = "drtm-kv:a4+a5";
/// Those that keep values on the SoC.
const OF_CACHED: &[&str] = &["drtm-kv:a5", "drtm-kv:a4+a5"];
/// Parts of a thousand values that the SoC keeps.
const CACHED_PERMILLE: [&[u64]; 2] = [&[1, 8, 64, 125, 500, 1_000], &[8, 125, 1_000]];
/// Zipf parameters, times 1,000.
const SKEWS: [&[u16]; 2] = [&[0, 500, 900, 990, 1_200], &[0, 990]];
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
pub(super) static ALL: [Experiment; 4] = [
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
    Experiment {
        id: "offpath-cached",
        family: "offpath",
        title: "DrTM-KV's A5 and A4 + A5 by the share of values that the SoC keeps, and by skew",
        columns: &[
            "alternative",
            "cached_share",
            "zipf",
            "hit_share",
            "latency_us",
            "throughput_mops",
        ],
        chart: Chart::Lines {
            x: "cached_share",
            y: "throughput_mops",
            series: &["alternative", "zipf"],
            scale: Scale::LogX,
        },
        systems: OF_CACHED,
        settings: &["cached"],
        timed: true,
        run: by_cached,
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

/// The measurements of one judged run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Point {
    throughput: f64,
    mean: f64,
    /// Of the gets that asked the SoC or looked for a value there, those that found it kept.
    hits: f64,
    binding: Binding,
    violations: Vec<String>,
}

/// The operations of the clients, and the system.
#[derive(Clone, Debug)]
struct Asked<'s> {
    system: &'s str,
    settings: Vec<String>,
    skew: Theta,
    /// Does nothing but packets bind READs on the server's card? (AMB-56)
    by_packets: bool,
}

impl<'s> Asked<'s> {
    /// A system as the study has it, but for these settings.
    fn of(system: &'s str, settings: &[&str]) -> Self {
        let settings = settings.iter().map(ToString::to_string).collect();
        Self { system, settings, skew: SKEW, by_packets: false }
    }
}

/// Runs it with so many clients on each of so many machines.
fn run(
    context: &Context<'_>,
    Asked { system, settings, skew, by_packets }: &Asked<'_>,
    machines: usize,
    clients: usize,
) -> Result<Point> {
    let system = *system;
    let form = context.options.form;
    let records = form.of(RECORDS);
    let snic = context.options.profile.as_deref().unwrap_or(SNIC);
    let card = if system == SYSTEMS[0] { RNIC } else { snic };
    let server = &if *by_packets { format!("{card}{BY_PACKETS}") } else { card.to_owned() };
    let spec = WorkloadSpec {
        records: Some(records),
        value_bytes: Some(VALUE_BYTES),
        mix: Some(Mix::C),
        popularity: Some(Popularity::Zipfian(*skew)),
        zipf_percent: Some((skew.0 / 10) as u8),
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
        settings: settings.clone(),
        ..BenchConfig::new(
            system,
            spec,
            &format!("server={server},client={CLIENT}"),
            context.options.seed,
        )
    };
    let hardware = [server.as_str(), CLIENT].map(Profile::load);
    let hardware = digest(&format!("{hardware:?}"));
    let name = format!("drtm-kv {hardware:016x} {config:?}");
    let system = systems::find(system)?;
    context.point(&name, records * FOOTPRINT + BASE, || {
        let report = (system.run)(system, &config)?.report;
        ensure!(report.committed > 0, "{}: nothing was read in the measured time", system.name);
        let violations = report.check.violations.iter();
        let counted = |name| report.counters.get("drtm-kv").and_then(|group| group.get(name));
        let [hits, misses] =
            ["hits", "misses"].map(|name| counted(name).copied().unwrap_or(0) as f64);
        Ok(Point {
            hits: if hits > 0.0 { hits / (hits + misses) } else { 0.0 },
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

fn measured(context: &Context<'_>, forms: &[Asked<'_>]) -> Result<Vec<Bars>> {
    context.pool.map(forms, |form| {
        let alone = run(context, form, 1, 1)?;
        let most = run(context, form, MACHINES, PER_MACHINE)?;
        let rates = [rounded(alone.mean, 2), rounded(most.throughput / 1e6, 2)];
        let violations = alone.violations.into_iter().chain(most.violations).collect();
        Ok(Bars { rates, binding: most.binding, violations })
    })
}

/// [OffPath23 figure 17]: one client alone, and as many as there are.
fn latency_and_throughput(context: &Context<'_>) -> Result<Table> {
    let systems = context.systems();
    let other = systems.iter().filter(|system| OF_READS.contains(system));
    let other = other.map(|system| Asked { by_packets: true, ..Asked::of(system, &[]) });
    let forms: Vec<_> = systems.iter().map(|system| Asked::of(system, &[])).chain(other).collect();
    let mut table = context.table();
    assume(context, &mut table)?;
    let reason = "READ rates are those of figure 7, for which the card sat in other machines; the other reading: \
                  only packets bind (AMB-56)";
    table.assume("READs by packets", "read_limit_permille=400", reason);
    for (asked, found) in forms.iter().zip(measured(context, &forms)?) {
        let Bars { rates, binding, violations } = found;
        let reading = if asked.by_packets { ", READs by packets" } else { "" };
        let name = format!("{}{reading}", alternative_of(asked.system));
        table.push_bound([json!(name)].into_iter().chain(rates).collect(), &binding);
        table.judge(violations);
    }
    Ok(table)
}

/// The same of two alternatives, by settings. Beyond the figure.
fn mitigations(context: &Context<'_>) -> Result<Table> {
    let systems = context.systems();
    let compared = FORMS.iter().filter(|(system, _)| systems.contains(system));
    let forms: Vec<_> = compared.map(|(system, settings)| Asked::of(system, settings)).collect();
    let mut table = context.table();
    assume(context, &mut table)?;
    table.assume("copies", "4", "the study: a few hot keys, several times (advice 1)");
    for (asked, found) in forms.iter().zip(measured(context, &forms)?) {
        let Bars { rates, binding, violations } = found;
        let names = [json!(alternative_of(asked.system)), json!(asked.settings.join(" "))];
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
        let mut choices = vec![(alternative_of(system).to_owned(), Asked::of(system, &[]))];
        if system == BOTH {
            let asked = Asked::of(system, &["asks=one-machine"]);
            choices.push((format!("{}, one machine asks", alternative_of(system)), asked));
        }
        for choice in choices {
            points.extend(machines.iter().map(|&machines| (choice.clone(), machines)));
        }
    }
    let found = context
        .pool
        .map(&points, |((_, asked), machines)| run(context, asked, *machines, PER_MACHINE))?;
    let mut table = context.table();
    assume(context, &mut table)?;
    let reason = "a get asks the SoC if that is faster at the time, which it is once READs are queued \
                  [OffPath23 4.2]; the study's clients of one machine ask, those of others READ";
    table.assume("a4+a5", "greedy", reason);
    for (((name, _), machines), point) in points.iter().zip(found) {
        let throughput = rounded(point.throughput / 1e6, 2);
        let measured = vec![json!(name), json!(machines), throughput];
        table.push_bound(measured, &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

/// Beyond the figures: from few values that the SoC keeps to all, and from keys that are all as hot
/// to a few that are.
fn by_cached(context: &Context<'_>) -> Result<Table> {
    let form = context.options.form;
    let mut points = Vec::new();
    for system in context.systems() {
        for &permille in form.of(CACHED_PERMILLE) {
            let cached = (form.of(RECORDS) * permille / 1_000).max(1);
            for &skew in form.of(SKEWS) {
                let asked = Asked::of(system, &[&format!("cached={cached}")]);
                points.push((permille, Asked { skew: Theta(skew), ..asked }));
            }
        }
    }
    let found =
        context.pool.map(&points, |(_, asked)| run(context, asked, MACHINES, PER_MACHINE))?;
    let mut table = context.table();
    assume(context, &mut table)?;
    let reason = "values come to the SoC as they are asked for: one miss in a few brings its own, and \
                  any other one makes way; the run begins with the first records";
    table.assume("cached", "by use", reason);
    for ((permille, asked), point) in points.iter().zip(found) {
        let measured = vec![
            json!(alternative_of(asked.system)),
            rounded(*permille as f64 / 1e3, 3),
            rounded(f64::from(asked.skew.0) / 1e3, 2),
            rounded(point.hits, 3),
            rounded(point.mean, 2),
            rounded(point.throughput / 1e6, 2),
        ];
        table.push_bound(measured, &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicol_bench::bench;

    /// [OffPath23 4.2] With one machine as with eleven, and whether the SoC keeps all values or an
    /// eighth: no less than READs or asking alone.
    #[test]
    fn the_greedy_combination_gives_no_less_than_its_parts_at_any_load() {
        let mops = |system: &str, kept: &str, machines, clients| {
            // One machine does few gets, of which some take twice as long as others.
            let micros = if machines > 1 { 250 } else { 8_000 };
            let spec = WorkloadSpec {
                records: Some(2_000),
                value_bytes: Some(VALUE_BYTES),
                mix: Some(Mix::C),
                ..WorkloadSpec::named("ycsb")
            };
            let config = BenchConfig {
                nodes: 1,
                replicas: 1,
                client_nodes: machines,
                host_engines: Some(24),
                nic_engines: Some(8),
                clients: Some(clients),
                length: Some(Length::Time(Nanos::from_micros(micros))),
                warmup: Some(Nanos::from_micros(500)),
                settings: (system != "drtm-kv:a4").then(|| kept.to_owned()).into_iter().collect(),
                ..BenchConfig::new(system, spec, &format!("server={SNIC},client={CLIENT}"), 1)
            };
            let report = bench::run(&config).unwrap().report;
            assert!(report.check.held(), "{:?}", report.check.violations);
            report.throughput_per_s / 1e6
        };
        for kept in ["cached=2000", "cached=250"] {
            for (machines, clients) in [(1, 1), (1, 24), (2, PER_MACHINE), (MACHINES, PER_MACHINE)]
            {
                let both = mops(BOTH, kept, machines, clients);
                for alone in ["drtm-kv:a4", "drtm-kv:a5"] {
                    let part = mops(alone, kept, machines, clients);
                    assert!(
                        both > 0.97 * part,
                        "{kept}, {machines} machines of {clients}: {both} M/s, {alone} alone \
                         {part} M/s"
                    );
                }
            }
        }
    }
}
