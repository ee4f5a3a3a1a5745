//! Figures 4, 9, 10 and 11: where a write's time goes, and MINOS-B beside MINOS-O.

use anyhow::Result;
use nicol_core::history::Persistency;
use serde_json::{Value, json};

use super::load::{
    BUSY_CORES, CLIENTS, Load, Point, REQUESTS, by_clients, latency, run_all, table, throughput,
};
use super::{CLUSTER, SMARTNIC};
use crate::experiments::{Chart, Context, Experiment, Table, rounded};

const BASELINE: &[&str] =
    &["minos-b:synch", "minos-b:strict", "minos-b:renf", "minos-b:event", "minos-b:scope"];
const BOTH: &[&str] = &[
    "minos-b:synch",
    "minos-b:strict",
    "minos-b:renf",
    "minos-b:event",
    "minos-b:scope",
    "minos-o:synch",
    "minos-o:strict",
    "minos-o:renf",
    "minos-o:event",
    "minos-o:scope",
];

/// The experiments of this file.
pub(super) static ALL: [Experiment; 6] = [
    Experiment {
        id: "minos-fig4",
        family: "minos",
        title: "Write latency of MINOS-B by communication and computation [MINOS24 fig. 4]",
        columns: &["model", "communication_us", "computation_us"],
        chart: Chart::Bars {
            category: &["model"],
            series: &[],
            y: "communication_us",
            inside: Some("computation_us"),
        },
        systems: BASELINE,
        settings: &[],
        timed: true,
        run: breakdown,
    },
    Experiment {
        id: "minos-fig9",
        family: "minos",
        title: "MINOS-B and MINOS-O by the share of writes [MINOS24 fig. 9]",
        columns: &[
            "protocol",
            "model",
            "write_fraction",
            "write_latency_us",
            "read_latency_us",
            "write_throughput_per_s",
            "read_throughput_per_s",
        ],
        chart: Chart::Bars {
            category: &["model", "write_fraction"],
            series: &["protocol"],
            y: "write_latency_us",
            inside: None,
        },
        systems: BOTH,
        settings: &[],
        timed: true,
        run: mixes,
    },
    Experiment {
        id: "minos-fig10",
        family: "minos",
        title: "MINOS-B and MINOS-O by the number of nodes [MINOS24 fig. 10]",
        columns: &[
            "protocol",
            "model",
            "nodes",
            "write_latency_us",
            "read_latency_us",
            "write_throughput_per_s",
            "read_throughput_per_s",
        ],
        chart: Chart::Bars {
            category: &["model", "nodes"],
            series: &["protocol"],
            y: "write_latency_us",
            inside: None,
        },
        systems: BOTH,
        settings: &[],
        timed: true,
        run: node_counts,
    },
    Experiment {
        id: "minos-clients",
        family: "minos",
        title: "MINOS-B and MINOS-O by the clients of a node: figures 9 and 10 at half writes and \
                five nodes, AMB-49 [beyond MINOS24 fig. 9]",
        columns: &[
            "protocol",
            "model",
            "clients",
            "write_latency_us",
            "read_latency_us",
            "write_throughput_per_s",
            "read_throughput_per_s",
        ],
        chart: Chart::Bars {
            category: &["model", "clients"],
            series: &["protocol"],
            y: "write_latency_us",
            inside: None,
        },
        systems: BOTH,
        settings: &[],
        timed: true,
        run: client_counts,
    },
    Experiment {
        id: "minos-fig11",
        family: "minos",
        title: "Login of two microservices on 16 nodes, 500 us apart [MINOS24 fig. 11]",
        columns: &["protocol", "model", "application", "clients", "latency_us"],
        chart: Chart::Bars {
            category: &["model", "application"],
            series: &["protocol", "clients"],
            y: "latency_us",
            inside: None,
        },
        systems: BOTH,
        settings: &[],
        timed: true,
        run: applications,
    },
    Experiment {
        id: "minos-scale",
        family: "minos",
        title: "Many nodes, three of which hold a record (not in the paper)",
        columns: &[
            "protocol",
            "model",
            "nodes",
            "write_latency_us",
            "read_latency_us",
            "write_throughput_per_s",
            "read_throughput_per_s",
        ],
        chart: Chart::Bars {
            category: &["model", "nodes"],
            series: &["protocol"],
            y: "write_latency_us",
            inside: None,
        },
        systems: &["minos-b:synch", "minos-o:synch"],
        settings: &["sharded"],
        timed: true,
        run: scale,
    },
];

/// Writes, in percent, of figure 9: the paper's shares of writes, and those of reads.
const WRITES: [u8; 5] = [20, 50, 80, 100, 0];
/// Nodes of figure 10.
pub(super) const NODES: [usize; 5] = [2, 4, 6, 8, 10];
/// Of `minos-scale`: nodes, requests of each, records per node, nodes that hold one.
pub(super) const SCALE_NODES: [usize; 2] = [1_000, 48];
const SCALE_REQUESTS: [u64; 2] = [1_000, 100];
pub(super) const SCALE_RECORDS: u64 = 100;
const SCALE_REPLICAS: usize = 3;
/// Figure 11: nodes, users of each of them, and half of the round trip.
pub(super) const APPLICATION_NODES: usize = 16;
pub(super) const USERS: [u64; 2] = [100_000, 2_000];
/// Logins of a node.
pub(super) const LOGINS: [u64; 2] = [REQUESTS[0], 40];
const HALF_OF_500_US: &str = "minos-snic:link.latency=250us";
const APPLICATIONS: [(&str, &str); 2] = [("social", "login-social"), ("media", "login-media")];

/// `minos-o:renf` as its protocol and its model.
fn parts(system: &str) -> (&str, &str) {
    system.split_once(':').unwrap_or((system, Persistency::Synch.name()))
}

/// [MINOS24 IV]: the average write.
fn breakdown(context: &Context<'_>) -> Result<Table> {
    let systems = context.systems();
    let load = |system: &&str| {
        let default = Load::new(context, system, CLUSTER);
        Load { clients: BUSY_CORES, ..default }
    };
    let loads: Vec<Load> = systems.iter().map(load).collect();
    let found = run_all(context, &loads)?;
    let mut table = table(context, &loads)?;
    let why = "from the first INV to the last ACK that the write waits for, less the mean time in \
               which a follower handles an INV; computation is the rest of the latency";
    table.assume("communication_us", "a mean", why);
    for (system, point) in systems.iter().zip(found) {
        let whole = point.write.map_or(0.0, |(latency, _)| latency);
        let communication = point.communication_us;
        let measured = vec![
            json!(parts(system).1),
            rounded(communication, 3),
            rounded(whole - communication, 3),
        ];
        table.push_bound(measured, &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

/// Runs `loads` and prints both kinds of operations of each.
fn reads_and_writes(context: &Context<'_>, loads: &[Load], varied: &[Value]) -> Result<Table> {
    let found = run_all(context, loads)?;
    let mut table = table(context, loads)?;
    for ((load, varied), point) in loads.iter().zip(varied).zip(found) {
        let (protocol, model) = parts(&load.system);
        let Point { write, read, .. } = point;
        let measured = vec![
            json!(protocol),
            json!(model),
            varied.clone(),
            latency(write),
            latency(read),
            throughput(write),
            throughput(read),
        ];
        table.push_bound(measured, &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

/// A point for each system at each of `values`, which `vary` applies to the default.
fn by<T: Copy + Into<Value>>(
    context: &Context<'_>,
    values: &[T],
    vary: impl Fn(Load, T) -> Load,
) -> Result<Table> {
    let (mut loads, mut varied) = (Vec::new(), Vec::new());
    for system in context.systems() {
        for &value in values {
            loads.push(vary(Load::new(context, system, SMARTNIC), value));
            varied.push(value.into());
        }
    }
    reads_and_writes(context, &loads, &varied)
}

/// [MINOS24 VIII-A]
fn mixes(context: &Context<'_>) -> Result<Table> {
    by(context, &WRITES, |load, writes| Load { writes, ..load })
}

/// [MINOS24 VIII-B]
fn node_counts(context: &Context<'_>) -> Result<Table> {
    by(context, &NODES, |load, nodes| Load { nodes, ..load })
}

/// AMB-49
fn client_counts(context: &Context<'_>) -> Result<Table> {
    let clients = CLIENTS.map(|clients| clients as u64);
    by(context, &clients, |load, clients| Load { clients: clients as usize, ..load })
}

/// Requests are issued at a node that holds the record, which departs from the paper: there every
/// node holds every record [MINOS24 II].
fn scale(context: &Context<'_>) -> Result<Table> {
    let form = context.options.form;
    let requests = form.of(SCALE_REQUESTS);
    by(context, &[form.of(SCALE_NODES)], |load, nodes| Load {
        nodes,
        requests,
        records: nodes as u64 * SCALE_RECORDS,
        replicas: Some(SCALE_REPLICAS),
        uniform: true,
        ..load
    })
}

/// [MINOS24 VIII-C], AMB-27
fn applications(context: &Context<'_>) -> Result<Table> {
    let mut loads = Vec::new();
    for system in context.systems() {
        for (_, workload) in APPLICATIONS {
            let default = Load::new(context, system, HALF_OF_500_US);
            let records = context.options.form.of(USERS);
            let requests = context.options.form.of(LOGINS);
            let load = Load { workload, nodes: APPLICATION_NODES, records, requests, ..default };
            loads.extend(by_clients(&load));
        }
    }
    let found = run_all(context, &loads)?;
    let mut table = table(context, &loads)?;
    table.assume("link.latency", "250 us", "half of the round trip of 500 us between nodes, C5.06");
    let why = "a write waits for one round trip between nodes, beside which what MINOS-O saves is about \
               one percent; to tell more it takes a number that is not published: which messages of \
               a Login cross the 500 us, or what one takes without it";
    table.assume("which messages are 500 us away", "all between nodes", why);
    let why = "those of the functions' sources for a user who is not cached: the social network's \
               has two gets and a set, the media service's four gets and three sets; each is a \
               record of 1 KB";
    table.assume("gets and sets of a Login", "workloads login-social, login-media", why);
    table.assume("users", context.options.form.of(USERS), "not published; drawn uniformly");
    for (load, point) in loads.iter().zip(found) {
        let (protocol, model) = parts(&load.system);
        let named = APPLICATIONS.iter().find(|(_, workload)| *workload == load.workload);
        let application = named.map_or("", |(name, _)| name);
        let names = [json!(protocol), json!(model), json!(application), json!(load.clients)];
        let measured = names.into_iter().chain([latency(point.login)]).collect();
        table.push_bound(measured, &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}
