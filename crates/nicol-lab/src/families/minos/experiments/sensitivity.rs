//! Figures 12, 13 and 14: what each optimisation brings, and what the figures depend on.

use anyhow::Result;
use serde_json::{Value, json};

use super::SMARTNIC;
use super::load::{Load, RECORDS, by_clients, latency, run_all, table};
use crate::experiments::{Chart, Context, Experiment, Table};

/// The experiments of this file.
pub(super) static ALL: [Experiment; 3] = [
    Experiment {
        id: "minos-fig12",
        family: "minos",
        title: "Write latency between MINOS-B and MINOS-O, writes only [MINOS24 fig. 12]",
        columns: &["variant", "clients", "write_latency_us"],
        chart: Chart::Bars {
            category: &["variant"],
            series: &["clients"],
            y: "write_latency_us",
            inside: None,
        },
        systems: &["minos-b:synch"],
        settings: &["combined", "batching", "broadcast"],
        timed: true,
        run: optimisations,
    },
    Experiment {
        id: "minos-fig13",
        family: "minos",
        title: "Write latency of MINOS-O by the entries of its queues [MINOS24 fig. 13]",
        columns: &["entries", "clients", "write_latency_us"],
        chart: Chart::Bars {
            category: &["entries"],
            series: &["clients"],
            y: "write_latency_us",
            inside: None,
        },
        systems: &["minos-o:synch"],
        settings: &["queue_entries"],
        timed: true,
        run: queues,
    },
    Experiment {
        id: "minos-fig14",
        family: "minos",
        title: "Write latency by persist latency, keys and database [MINOS24 fig. 14]",
        columns: &["parameter", "value", "protocol", "clients", "write_latency_us"],
        chart: Chart::Bars {
            category: &["parameter", "value"],
            series: &["protocol", "clients"],
            y: "write_latency_us",
            inside: None,
        },
        systems: &["minos-b:synch", "minos-o:synch"],
        settings: &[],
        timed: true,
        run: parameters,
    },
];

/// The mechanisms that are on in each variant of figure 12: combined, batching, broadcast.
const VARIANTS: [(&str, [bool; 3]); 7] = [
    ("b", [false, false, false]),
    ("+broadcast", [false, false, true]),
    ("+batching", [false, true, false]),
    ("+combined", [true, false, false]),
    ("combined+broadcast", [true, false, true]),
    ("combined+batching", [true, true, false]),
    ("o", [true, true, true]),
];

/// Figure 12: the mechanisms one by one [MINOS24 VIII-D]
fn optimisations(context: &Context<'_>) -> Result<Table> {
    let load = |(_, on): &(&str, [bool; 3])| {
        let set = |name, on| format!("{name}={}", if on { "on" } else { "off" });
        let [combined, batching, broadcast] = *on;
        let settings =
            vec![set("combined", combined), set("batching", batching), set("broadcast", broadcast)];
        Load { settings, writes: 100, ..Load::new(context, "minos-b:synch", SMARTNIC) }
    };
    let (mut loads, mut variants) = (Vec::new(), Vec::new());
    for variant in &VARIANTS {
        loads.extend(by_clients(&load(variant)));
        variants.resize(loads.len(), variant.0);
    }
    let found = run_all(context, &loads)?;
    let mut table = table(context, &loads)?;
    let why = "a host that runs the algorithm itself sends its INVs to a SmartNIC that sends them on, \
               and gathers the ACKs";
    table.assume("+batching", "a relay", why);
    let why = "one message crosses PCIe, and the card sends the copies";
    table.assume("+broadcast", "by the card of a host", why);
    for ((variant, load), point) in variants.iter().zip(&loads).zip(found) {
        let measured = vec![json!(variant), json!(load.clients), latency(point.write)];
        table.push_bound(measured, &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

/// Entries of each queue in figure 13; none: as many as are asked for.
const ENTRIES: [Option<u32>; 7] = [Some(1), Some(2), Some(3), Some(4), Some(5), Some(100), None];

/// Figure 13: entries of the queues [MINOS24 VIII-E]
fn queues(context: &Context<'_>) -> Result<Table> {
    let named = |entries: &Option<u32>| {
        entries.map_or("unlimited".to_owned(), |entries| entries.to_string())
    };
    let load = |entries| Load {
        settings: vec![format!("queue_entries={}", named(entries))],
        ..Load::new(context, "minos-o:synch", SMARTNIC)
    };
    let (mut loads, mut sizes) = (Vec::new(), Vec::new());
    for entries in &ENTRIES {
        loads.extend(by_clients(&load(entries)));
        sizes.resize(loads.len(), named(entries));
    }
    let found = run_all(context, &loads)?;
    let mut table = table(context, &loads)?;
    let why = "in the order in which they came; beyond 256 that wait a SmartNIC rejects requests";
    table.assume("writes that find a queue full", "wait", why);
    for ((entries, load), point) in sizes.iter().zip(&loads).zip(found) {
        let measured = vec![json!(entries), json!(load.clients), latency(point.write)];
        table.push_bound(measured, &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

/// Nanoseconds to persist 1 KB. [MINOS24 VIII-E]
const PERSIST_NS: [u64; 4] = [100, 1_295, 10_000, 100_000];
/// Parts of the database's size, in tenths.
const TENTHS: [u64; 4] = [1, 2, 5, 10];

/// Figure 14: the parameters of the hardware [MINOS24 VIII-E]
fn parameters(context: &Context<'_>) -> Result<Table> {
    let (mut loads, mut names): (Vec<Load>, Vec<(&str, Value)>) = Default::default();
    let mut add = |load: Load, name: (&'static str, Value)| {
        loads.extend(by_clients(&load));
        names.resize(loads.len(), name);
    };
    for system in context.systems() {
        let default = || Load::new(context, system, SMARTNIC);
        for nanos in PERSIST_NS {
            let on = format!(
                "{}:persist.latency=0ns:persist.per_kib={nanos}ns:nic_queues.durable_latency=0ns:\
                 nic_queues.durable_per_kib={nanos}ns",
                default().on
            );
            add(Load { on, ..default() }, ("persist_latency_ns", json!(nanos)));
        }
        for (name, uniform) in [("zipfian", false), ("uniform", true)] {
            add(Load { uniform, ..default() }, ("key_distribution", json!(name)));
        }
        for tenths in TENTHS {
            let records = context.options.form.of(RECORDS) * tenths / 10;
            add(Load { records, ..default() }, ("database_records", json!(records)));
        }
    }
    let found = run_all(context, &loads)?;
    let mut table = table(context, &loads)?;
    let why = "the log device and the dFIFO alike; 1,295 ns is Table III's";
    table.assume("persist_latency_ns", "100 ns to 100 us for 1 KB", why);
    for ((load, (parameter, value)), point) in loads.iter().zip(names).zip(found) {
        let protocol = load.system.split(':').next().unwrap_or_default();
        let (clients, latency) = (json!(load.clients), latency(point.write));
        let measured = vec![json!(parameter), value, json!(protocol), clients, latency];
        table.push_bound(measured, &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}
