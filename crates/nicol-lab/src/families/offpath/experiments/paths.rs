//! Figures 3, 5, 10 and 12: the paths alone and together, batches of doorbells, and what saturates
//! the card's units. [OffPath23 3, 4.1]

use std::sync::Arc;

use anyhow::Result;
use nicol_core::engine::DoorbellBatch;
use nicol_sim::Profile;
use nicol_sim::checks::paths::{Flow, Load, Path, Verb};
use nicol_sim::checks::{Posting, posting};
use serde_json::{Value, json};

use super::Testbed;
use crate::experiments::{Chart, Context, Experiment, Scale, Table, rounded};
use nicol_bench::binding::Binding;

/// The experiments of this file.
pub(super) static ALL: [Experiment; 4] = [
    Experiment {
        id: "offpath-fig3",
        family: "offpath",
        title: "Latency and peak throughput of each path [OffPath23 fig. 3]",
        columns: &["path", "operation", "bytes", "latency_us", "throughput_mops"],
        chart: Chart::Bars {
            category: &["operation", "bytes"],
            series: &["path"],
            y: "throughput_mops",
            inside: None,
        },
        systems: &[],
        settings: &[],
        timed: true,
        run: every_path,
    },
    Experiment {
        id: "offpath-fig5",
        family: "offpath",
        title: "Bandwidth of flows in one and in both directions, 4 KB [OffPath23 fig. 5]",
        columns: &["path", "requests", "bandwidth_gbps"],
        chart: Chart::Bars {
            category: &["path"],
            series: &["requests"],
            y: "bandwidth_gbps",
            inside: None,
        },
        systems: &[],
        settings: &[],
        timed: true,
        run: directions,
    },
    Experiment {
        id: "offpath-fig10",
        family: "offpath",
        title: "Posting READs of 64 B from one core, by requests of a doorbell [OffPath23 fig. 10]",
        columns: &["path", "batch", "post_ns", "throughput_mops", "of_unbatched", "adaptive_mops"],
        chart: Chart::Lines {
            x: "batch",
            y: "of_unbatched",
            series: &["path"],
            scale: Scale::LogX,
        },
        systems: &[],
        settings: &[],
        timed: true,
        run: doorbells,
    },
    Experiment {
        id: "offpath-fig12",
        family: "offpath",
        title: "Throughput of 0 B by machines that ask [OffPath23 fig. 12]",
        columns: &["operation", "path", "machines", "throughput_mops"],
        chart: Chart::Lines {
            x: "machines",
            y: "throughput_mops",
            series: &["operation", "path"],
            scale: Scale::LogX,
        },
        systems: &[],
        settings: &[],
        timed: true,
        run: saturation,
    },
];

const VERBS: [Verb; 3] = [Verb::Read, Verb::Write, Verb::Send];
/// Machines that saturate one endpoint's units. [OffPath23 4.1]
const SATURATING: usize = 5;
/// Requests that a client's core has under way, and fewer where flows compete.
const WORKERS: usize = 16;
const COMPETING: usize = 8;

/// The paths of figure 3 by their names: on the plain NIC or not, and where requests go.
const LOADS: [(&str, bool, &[Path]); 8] = [
    ("rnic-1", true, &[Path::ToHost]),
    ("1", false, &[Path::ToHost]),
    ("2", false, &[Path::ToSoc]),
    ("3-s2h", false, &[Path::SocToHost]),
    ("3-h2s", false, &[Path::HostToSoc]),
    ("3*", false, &[Path::Dma]),
    ("1+2", false, &[Path::ToHost, Path::ToSoc]),
    ("1+3-h2s", false, &[Path::ToHost, Path::HostToSoc]),
];

/// [OffPath23 3, figure 3]: each path one request at a time, and as many as it takes.
fn every_path(context: &Context<'_>) -> Result<Table> {
    const FULL: [usize; 8] = [0, 16, 32, 64, 128, 256, 512, 1_024];
    const QUICK: [usize; 3] = [16, 64, 512];
    let bed = Testbed::of(context)?;
    let mut points = Vec::new();
    for verb in VERBS {
        for &bytes in context.options.form.of([&FULL[..], &QUICK[..]]) {
            for (name, plain, paths) in LOADS {
                // DMAs are no messages, and move something.
                if paths != [Path::Dma] || verb != Verb::Send && bytes > 0 {
                    points.push((verb, bytes, name, plain, paths));
                }
            }
        }
    }
    let found = context.pool.map(&points, |&(verb, bytes, _, plain, paths)| {
        let target = if plain { &bed.rnic } else { &bed.snic };
        context.pool.run(0, || {
            let alone = match paths {
                [path] => {
                    let flow = Flow::alone(*path, verb, bytes);
                    Some(Load::new(target, &bed.client, vec![flow]).run()?.flows[0].mean_ns)
                }
                _ => None,
            };
            let workers = if paths.contains(&Path::HostToSoc) { COMPETING } else { WORKERS };
            let flow = |path: &Path| Flow::of(*path, verb, bytes, SATURATING + 1, workers);
            let load = Load::new(target, &bed.client, paths.iter().map(flow).collect());
            // Beside the host's own requests, those of other machines are what is counted.
            let together = load.run()?;
            let counted = if paths.contains(&Path::HostToSoc) && paths.len() > 1 {
                together.flows[0].mops
            } else {
                together.mops()
            };
            Ok((alone, counted, Binding::of_parts(&together.resources())))
        })
    })?;
    let mut table = context.table();
    bed.told(&mut table);
    table.assume(
        "requests under way",
        "8 or 16 a core",
        "enough to saturate; the study does not say",
    );
    let what = "throughput of the requests to the host alone";
    table.assume("1+3-h2s", what, "as the study compares it with path 1");
    for (&(verb, bytes, name, ..), (alone, mops, binding)) in points.iter().zip(found) {
        let latency = alone.map_or(Value::Null, |ns| rounded(ns / 1e3, 3));
        let measured =
            vec![json!(name), json!(verb.name()), json!(bytes), latency, rounded(mops, 2)];
        table.push_bound(measured, &binding);
    }
    Ok(table)
}

/// [OffPath23 3.1, figure 5]: 4 KB from two requesters, which ask the same or the opposite.
fn directions(context: &Context<'_>) -> Result<Table> {
    const PAGE: usize = 4 << 10;
    const ALONE: [(&str, bool, Path); 5] = [
        ("rnic-1", true, Path::ToHost),
        ("1", false, Path::ToHost),
        ("2", false, Path::ToSoc),
        ("3", false, Path::SocToHost),
        ("3*", false, Path::Dma),
    ];
    let bed = Testbed::of(context)?;
    let mut points = Vec::new();
    let mixes = [("READ", [Verb::Read; 2]), ("WRITE", [Verb::Write; 2])];
    let mixes = [mixes[0], mixes[1], ("READ+WRITE", [Verb::Read, Verb::Write])];
    for (name, plain, path) in ALONE {
        points.extend(mixes.map(|(mix, verbs)| (name, plain, mix, [path; 2], verbs)));
    }
    let mixes = [mixes[0], mixes[1], ("READ+WRITE", [Verb::Read, Verb::Write])];
    for (name, path) in [("1+2", Path::ToSoc), ("1+3", Path::SocToHost), ("1+3*", Path::Dma)] {
        points.extend(mixes.map(|(mix, verbs)| (name, false, mix, [Path::ToHost, path], verbs)));
    }
    let found = context.pool.map(&points, |&(_, plain, _, paths, verbs)| {
        let target = if plain { &bed.rnic } else { &bed.snic };
        let flows = paths.into_iter().zip(verbs);
        let flows = flows.map(|(path, verb)| Flow::of(path, verb, PAGE, 1, 4)).collect();
        context.pool.run(0, || {
            let measured = Load::new(target, &bed.rnic, flows).run()?;
            Ok((measured.gbps(), Binding::of_parts(&measured.resources())))
        })
    })?;
    let mut table = context.table();
    bed.told(&mut table);
    table.assume("requesters", "machines with the plain NIC", "a client's 100 Gbps would bind");
    for (&(name, _, mix, ..), (gbps, binding)) in points.iter().zip(found) {
        table.push_bound(vec![json!(name), json!(mix), rounded(gbps, 1)], &binding);
    }
    Ok(table)
}

/// [OffPath23 3.3, figure 10]: one core posts READs of 64 B, alone and in batches.
fn doorbells(context: &Context<'_>) -> Result<Table> {
    const FULL: [usize; 7] = [1, 8, 16, 32, 48, 64, 80];
    const QUICK: [usize; 4] = [1, 16, 48, 80];
    let bed = Testbed::of(context)?;
    let batches = context.options.form.of([&FULL[..], &QUICK[..]]);
    let paths: [(&str, &Arc<Profile>, Path); 4] = [
        ("rnic-1", &bed.rnic, Path::ToHost),
        ("2", &bed.snic, Path::ToSoc),
        ("3-s2h", &bed.snic, Path::SocToHost),
        ("3-h2s", &bed.snic, Path::HostToSoc),
    ];
    let mut points = Vec::new();
    for (name, target, path) in paths {
        points.extend(batches.iter().map(|&batch| (name, target, path, batch)));
    }
    let found = context.pool.map(&points, |&(_, target, path, batch)| {
        context.pool.run(0, || {
            let posted = |doorbells| posting(target, &bed.client, path, batch, doorbells);
            Ok((posted(DoorbellBatch::UpTo(batch))?, posted(DoorbellBatch::Adaptive)?.mops))
        })
    })?;
    let mut table = context.table();
    bed.told(&mut table);
    table.assume("post_ns", "core time of a request", "posting and its completion");
    let reason = "where a doorbell each is sooner, requests have one each [OffPath23 advice 4]";
    table.assume("adaptive_mops", "doorbell_batch=adaptive", reason);
    let mut unbatched = 1.0;
    for (&(name, _, _, batch), (posted, adaptive)) in points.iter().zip(found) {
        let Posting { mops, core_ns, resources } = posted;
        if batch == 1 {
            unbatched = mops;
        }
        let shares = [
            rounded(core_ns, 1),
            rounded(mops, 3),
            rounded(mops / unbatched, 3),
            rounded(adaptive, 3),
        ];
        let measured = [json!(name), json!(batch)].into_iter().chain(shares).collect();
        table.push_bound(measured, &Binding::of_parts(&resources));
    }
    Ok(table)
}

/// [OffPath23 4.1, figure 12]: machines are added at one endpoint until its units are saturated,
/// and then at the other.
fn saturation(context: &Context<'_>) -> Result<Table> {
    const MOST: usize = 11;
    let bed = Testbed::of(context)?;
    let every = context.options.form.of([1, 2]);
    let mut points = Vec::new();
    for verb in [Verb::Read, Verb::Write] {
        for (name, first, second) in [
            ("1", Path::ToHost, None),
            ("2", Path::ToSoc, None),
            ("1+2", Path::ToHost, Some(Path::ToSoc)),
            ("2+1", Path::ToSoc, Some(Path::ToHost)),
        ] {
            for machines in (1..=MOST).step_by(every) {
                points.push((verb, name, first, second, machines));
            }
        }
    }
    let found = context.pool.map(&points, |&(verb, _, first, second, machines)| {
        let at_first = if second.is_some() { machines.min(SATURATING) } else { machines };
        let of = |path, machines| Flow::of(path, verb, 0, machines, WORKERS);
        let mut flows = vec![of(first, at_first)];
        let more = second.filter(|_| machines > at_first);
        flows.extend(more.map(|path| of(path, machines - at_first)));
        context.pool.run(0, || {
            let measured = Load::new(&bed.snic, &bed.client, flows).run()?;
            Ok((measured.mops(), Binding::of_parts(&measured.resources())))
        })
    })?;
    let mut table = context.table();
    bed.told(&mut table);
    table.assume("1+2, 2+1", "five machines first", "as many as saturate one endpoint");
    for (&(verb, name, _, _, machines), (mops, binding)) in points.iter().zip(found) {
        let measured = vec![json!(verb.name()), json!(name), json!(machines), rounded(mops, 1)];
        table.push_bound(measured, &binding);
    }
    Ok(table)
}
