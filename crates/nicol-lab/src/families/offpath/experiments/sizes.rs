//! Figures 7, 8, 9 and 11: ranges of addresses, and payloads with the PCIe packets that they take.
//! [OffPath23 3.2, 3.3]

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Result;
use nicol_sim::Profile;
use nicol_sim::checks::paths::{Flow, Load, Path, Verb};
use serde_json::json;

use super::Testbed;
use crate::experiments::{Chart, Context, Experiment, Form, Scale, Table, rounded};
use nicol_bench::binding::Binding;

const SIZE_COLUMNS: &[&str] =
    &["path", "operation", "bytes", "bandwidth_gbps", "pcie1_mpps", "pcie0_mpps"];
const SIZE_CHART: Chart = Chart::Lines {
    x: "bytes",
    y: "bandwidth_gbps",
    series: &["path", "operation"],
    scale: Scale::LogX,
};

/// The experiments of this file.
pub(super) static ALL: [Experiment; 4] = [
    Experiment {
        id: "offpath-fig7",
        family: "offpath",
        title: "Throughput of 64 B by the range of addresses [OffPath23 fig. 7]",
        columns: &["memory", "operation", "range_bytes", "throughput_mops"],
        chart: Chart::Lines {
            x: "range_bytes",
            y: "throughput_mops",
            series: &["memory", "operation"],
            scale: Scale::LogX,
        },
        systems: &[],
        settings: &[],
        timed: true,
        run: ranges,
    },
    Experiment {
        id: "offpath-fig8",
        family: "offpath",
        title: "Bandwidth and PCIe packets to host and SoC by payload [OffPath23 fig. 8]",
        columns: SIZE_COLUMNS,
        chart: SIZE_CHART,
        systems: &[],
        settings: &[],
        timed: true,
        run: |context| payloads(context, [Path::ToHost, Path::ToSoc]),
    },
    Experiment {
        id: "offpath-fig9",
        family: "offpath",
        title: "Bandwidth and PCIe packets between host and SoC by payload [OffPath23 fig. 9]",
        columns: SIZE_COLUMNS,
        chart: SIZE_CHART,
        systems: &[],
        settings: &[],
        timed: true,
        run: |context| payloads(context, [Path::SocToHost, Path::HostToSoc]),
    },
    Experiment {
        id: "offpath-fig11",
        family: "offpath",
        title: "RDMA and DMA from the SoC to its host by payload [OffPath23 fig. 11]",
        columns: &["path", "operation", "bytes", "throughput_mops", "bandwidth_gbps"],
        chart: SIZE_CHART,
        systems: &[],
        settings: &[],
        timed: true,
        run: engines,
    },
];

/// [OffPath23 3.2, figure 7]: addresses close together, in memory with and without DDIO.
fn ranges(context: &Context<'_>) -> Result<Table> {
    const FULL: [u64; 8] =
        [1_536, 3 << 10, 6 << 10, 12 << 10, 24 << 10, 48 << 10, 1 << 20, 16 << 20];
    const QUICK: [u64; 4] = [1_536, 6 << 10, 48 << 10, 16 << 20];
    let bed = Testbed::of(context)?;
    let without = Profile::load(&with(&bed.snic.name, "card.ddio=false"))?;
    let without = Arc::new(without);
    let memories: [(&str, &Arc<Profile>, Path); 4] = [
        ("rnic-host", &bed.rnic, Path::ToHost),
        ("host", &bed.snic, Path::ToHost),
        ("host without ddio", &without, Path::ToHost),
        ("soc", &bed.snic, Path::ToSoc),
    ];
    let mut points = Vec::new();
    for verb in [Verb::Read, Verb::Write] {
        for (name, target, path) in memories {
            for &range in context.options.form.of([&FULL[..], &QUICK[..]]) {
                points.push((name, target, path, verb, range));
            }
        }
    }
    let found = context.pool.map(&points, |&(_, target, path, verb, range)| {
        let flow = Flow::of(path, verb, 64, 6, 16);
        let load = Load { range, ..Load::new(target, &bed.client, vec![flow]) };
        context.pool.run(0, || {
            let measured = load.run()?;
            Ok((measured.mops(), Binding::of_parts(&measured.resources())))
        })
    })?;
    let mut table = context.table();
    bed.told(&mut table);
    table.ran_on(&without);
    let why = "the study measured it on other machines, whose memory is not published";
    table.assume("host without ddio", "the SoC's banks", why);
    for (&(name, _, _, verb, range), (mops, binding)) in points.iter().zip(found) {
        let measured = vec![json!(name), json!(verb.name()), json!(range), rounded(mops, 2)];
        table.push_bound(measured, &binding);
    }
    Ok(table)
}

/// A profile with a value changed.
fn with(name: &str, change: &str) -> String {
    format!("{name}:{change}")
}

/// Payloads of figures 8, 9 and 11.
pub(super) fn payload_sizes(form: Form) -> Vec<usize> {
    match form {
        Form::Full => (8..=24).map(|power| 1 << power).collect(),
        Form::Quick => vec![512, 4 << 10, 64 << 10, 1 << 20, 8 << 20, 16 << 20],
    }
}

/// A few requests at a time, fewer of those that are large.
fn flow(path: Path, verb: Verb, bytes: usize) -> Flow {
    let cores = if bytes >= 1 << 20 { 1 } else { 8 };
    Flow { cores, ..Flow::of(path, verb, bytes, 1, if bytes < 4 << 10 { 16 } else { 4 }) }
}

/// [OffPath23 3.2, 3.3, figures 8 and 9].
fn payloads(context: &Context<'_>, paths: [Path; 2]) -> Result<Table> {
    let bed = Testbed::of(context)?;
    let mut points = Vec::new();
    for path in paths {
        for verb in [Verb::Read, Verb::Write] {
            points.extend(
                payload_sizes(context.options.form).into_iter().map(|bytes| (path, verb, bytes)),
            );
        }
    }
    let found = context.pool.map(&points, |&(path, verb, bytes)| {
        let load = Load::new(&bed.snic, &bed.rnic, vec![flow(path, verb, bytes)]);
        context.pool.run(bytes as u64 * 16, || {
            let measured = load.run()?;
            let binding = Binding::of_parts(&measured.resources());
            Ok((measured.gbps(), measured.packets(), binding))
        })
    })?;
    let mut table = context.table();
    bed.told(&mut table);
    table.assume("packets", "with data and control", "control: requests to read and completions");
    table.assume("requests under way", "32 to 128, 4 from 1 MiB on", "enough to fill a path");
    for (&(path, verb, bytes), (gbps, packets, binding)) in points.iter().zip(found) {
        let [inner, control, outer, outer_control] = packets;
        let rates = [gbps, inner + control, outer + outer_control].map(|rate| rounded(rate, 1));
        let names = [json!(path.name()), json!(verb.name()), json!(bytes)];
        table.push_bound(names.into_iter().chain(rates).collect(), &binding);
    }
    Ok(table)
}

/// [OffPath23 3.3, figure 11].
fn engines(context: &Context<'_>) -> Result<Table> {
    let bed = Testbed::of(context)?;
    let mut points = Vec::new();
    for path in [Path::SocToHost, Path::Dma] {
        for verb in [Verb::Read, Verb::Write] {
            let every: BTreeSet<usize> =
                [64, 256].into_iter().chain(payload_sizes(context.options.form)).collect();
            points.extend(every.into_iter().map(|bytes| (path, verb, bytes)));
        }
    }
    let found = context.pool.map(&points, |&(path, verb, bytes)| {
        let load = Load::new(&bed.snic, &bed.rnic, vec![flow(path, verb, bytes)]);
        context.pool.run(bytes as u64 * 16, || {
            let measured = load.run()?;
            let binding = Binding::of_parts(&measured.resources());
            Ok((measured.mops(), measured.gbps(), binding))
        })
    })?;
    let mut table = context.table();
    bed.told(&mut table);
    for (&(path, verb, bytes), (mops, gbps, binding)) in points.iter().zip(found) {
        let names = [json!(path.name()), json!(verb.name()), json!(bytes)];
        let rates = [rounded(mops, 3), rounded(gbps, 1)];
        table.push_bound(names.into_iter().chain(rates).collect(), &binding);
    }
    Ok(table)
}
