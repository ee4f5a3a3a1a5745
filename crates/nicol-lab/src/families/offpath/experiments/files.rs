//! Figures 13 and 15, and chunks: replication of files from one primary to a chain of two backups.
//! [OffPath23 5.1]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::{Result, ensure};
use nicol_core::engine::Start;
use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, NodeId, Side, TableId};
use nicol_core::key_value::{KeyValue, KeyValueNode};
use nicol_core::records::Empty;
use nicol_core::system::{NodeState, Sequential, load_nodes};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::{ReplicaSet, View};
use nicol_offpath::linefs::{Alternative, HostLoad, LineFsConfig, Node, payload_max};
use nicol_sim::{Profile, SimCluster, SimConfig, SimReport, Utilization};
use nicol_workload::key_value::Content;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{SNIC, alternative_of};
use crate::experiments::{Chart, Context, Experiment, Form, Scale, Table, digest, rounded};
use nicol_bench::binding::Binding;
use nicol_bench::families::offpath::ALTERNATIVES;
use nicol_bench::refused::refuse;

pub(super) const SYSTEMS: &[&str] =
    &[ALTERNATIVES[0].0, ALTERNATIVES[1].0, ALTERNATIVES[2].0, ALTERNATIVES[3].0];

/// The experiments of this file.
pub(super) static ALL: [Experiment; 3] = [
    Experiment {
        id: "offpath-fig13",
        family: "offpath",
        title: "Replicating files: bandwidth and host CPU by clients [OffPath23 fig. 13]",
        columns: &["alternative", "host", "clients", "bandwidth_gbps", "host_cpu_percent"],
        chart: Chart::Lines {
            x: "clients",
            y: "bandwidth_gbps",
            series: &["alternative", "host"],
            scale: Scale::LogX,
        },
        systems: SYSTEMS,
        settings: &[],
        timed: true,
        run: by_clients,
    },
    Experiment {
        id: "offpath-fig15",
        family: "offpath",
        title: "Replicating files by A2 and A3 together [OffPath23 fig. 15]",
        columns: &["choice", "a3_share", "network_utilization", "link_busy", "bandwidth_gbps"],
        chart: Chart::Bars {
            category: &["a3_share"],
            series: &["choice"],
            y: "bandwidth_gbps",
            inside: None,
        },
        systems: &[],
        settings: &[],
        timed: true,
        run: by_share,
    },
    Experiment {
        id: "offpath-chunks",
        family: "offpath",
        title: "Replicating files: size of a chunk, pieces, and what is in it [OffPath23 5.1]",
        columns: &[
            "alternative",
            "content",
            "chunk_kib",
            "piece_kib",
            "ratio",
            "bandwidth_gbps",
            "latency_us",
        ],
        chart: Chart::Bars {
            category: &["content", "chunk_kib", "piece_kib"],
            series: &["alternative"],
            y: "bandwidth_gbps",
            inside: None,
        },
        systems: &[],
        settings: &[],
        timed: true,
        run: by_chunk,
    },
];

/// Cores of the primary's host that clients may run on.
pub(super) const CORES: usize = 8;
/// Chunks of a client that wait or are on their way at most: one more than its log has slots for.
const AHEAD: usize = 1;
/// Memory of a run besides its chunks.
const BASE: u64 = 200 << 20;

/// Of every 4 KiB half random and half zeros, as fio's buffer_compress_percentage=50.
pub(super) const HALF: Content = Content::RandomPercent(50);

/// A run of `linefs`: alternative, load of the hosts, content, settings.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Load {
    pub(super) config: LineFsConfig,
    pub(super) clients: usize,
    pub(super) content: Content,
    /// Measured, after half as long.
    pub(super) window: Nanos,
}

/// The result of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Point {
    gbps: f64,
    /// Of one core of the primary's host.
    cpu_percent: f64,
    /// Share of the time in which the primary's link carries something away.
    link_busy: f64,
    /// Bytes of chunks that the primary sent, against those of its files. [OffPath23 figure 15]
    network: f64,
    /// Of its chunks those that A3 took.
    a3_share: f64,
    /// Bytes after compression of one before; 1 where nothing is compressed.
    ratio: f64,
    /// From the beginning of a write until it is acknowledged.
    latency_us: f64,
    /// Mean time of a part of a chunk, on the primary and on the first backup, in microseconds.
    pub(super) parts: [BTreeMap<String, f64>; 2],
    /// Time of all hosts' cores for 8 MB, by what it went to, in microseconds.
    pub(super) host_us: BTreeMap<String, f64>,
    pub(super) binding: Binding,
    pub(super) violations: Vec<String>,
}

/// Writers on the primary's host, each with blocks of its own that it writes again and again.
struct Writers {
    load: Load,
    nodes: Vec<Arc<Node>>,
    seed: u64,
    stop: AtomicBool,
    /// Writers that have not stopped.
    running: AtomicU64,
    bytes: AtomicU64,
    writes: AtomicU64,
    waited_ns: AtomicU64,
    failed: AtomicU64,
}

/// The writers, as every engine of the cluster starts them.
struct Started(Arc<Writers>);

impl Start for Started {
    fn start<F: Fabric>(&self, fabric: &F) {
        let (writers, here) = (&self.0, fabric.here());
        let Some(client) = writers.nodes[here.node.index()].start(fabric) else { return };
        if here.node != NodeId(0) || usize::from(here.core) >= writers.load.clients {
            return;
        }
        for number in 0..usize::from(writers.load.config.slots) + AHEAD {
            writers.running.fetch_add(1, Ordering::Relaxed);
            let row = (usize::from(here.core) << 8 | number) as u64;
            fabric.spawn(write(fabric.clone(), client.clone(), writers.clone(), row));
        }
    }
}

/// Writes a block of a chunk's size until it is stopped.
async fn write<F: Fabric>(fabric: F, client: impl KeyValue, writers: Arc<Writers>, row: u64) {
    let mut block = vec![0; payload_max(writers.load.config.chunk) as usize];
    writers.load.content.fill(writers.seed ^ row << 32, &mut block);
    let mut count = 0_u64;
    // Every engine has registered its memory before this runs on.
    fabric.yield_now().await;
    while !writers.stop.load(Ordering::Relaxed) {
        count += 1;
        block[..8].copy_from_slice(&count.to_le_bytes());
        let began = fabric.now();
        let done = client.put(Key::new(TableId(1), row), &block).await;
        writers.failed.fetch_add(u64::from(done.is_err()), Ordering::Relaxed);
        writers.bytes.fetch_add(block.len() as u64, Ordering::Relaxed);
        writers.writes.fetch_add(1, Ordering::Relaxed);
        writers.waited_ns.fetch_add(fabric.now().since(began).0, Ordering::Relaxed);
    }
    writers.running.fetch_sub(1, Ordering::Relaxed);
}

impl Writers {
    /// Bytes and writes that were acknowledged, and how long these took together.
    fn counts(&self) -> [u64; 3] {
        [&self.bytes, &self.writes, &self.waited_ns].map(|count| count.load(Ordering::Relaxed))
    }

    /// A counter of the primary's, or of all nodes.
    fn counter(&self, name: &str) -> u64 {
        let counters = self.nodes[0].counters();
        counters.iter().find(|one| one.name == name).map_or(0, |one| one.value)
    }

    /// The time of the primary's and of the first backup's chunks together, by part.
    fn times(&self) -> [BTreeMap<&'static str, u64>; 2] {
        [0, 1].map(|node| {
            let counters = self.nodes[node].counters().into_iter();
            let times = counters.filter(|one| one.group == "linefs_times");
            times.map(|one| (one.name, one.value)).collect()
        })
    }

    /// Violations at the end: the replicas must be equal, byte by byte.
    fn judge(&self) -> Vec<String> {
        let mut wrong = Vec::new();
        let failed = self.failed.load(Ordering::Relaxed);
        if failed > 0 {
            wrong.push(format!("{failed} writes failed where nothing fails"));
        }
        if self.running.load(Ordering::Relaxed) > 0 || !self.nodes.iter().all(|n| n.is_settled()) {
            wrong.push("the cluster did not become quiet: work is stuck".to_owned());
        }
        let digests: Vec<_> = self.nodes.iter().map(|node| node.audit().digests).collect();
        if digests.windows(2).any(|pair| pair[0] != pair[1]) {
            wrong.push("the replicas of the files differ".to_owned());
        }
        wrong
    }
}

pub(super) fn run(context: &Context<'_>, load: &Load) -> Result<Point> {
    let profile = Arc::new(Profile::load(snic(context))?);
    let name = format!("linefs {:016x} {load:?}", digest(&format!("{profile:?}")));
    // Three replicas, logs, copies, and what is on its way.
    let memory = BASE + load.blocks() as u64 * load.config.chunk.0 * 24;
    context.point(&name, memory, || simulate(&profile, load, context.options.seed))
}

impl Load {
    /// Blocks that are written.
    fn blocks(&self) -> usize {
        self.clients * (usize::from(self.config.slots) + AHEAD)
    }
}

fn simulate(profile: &Arc<Profile>, load: &Load, seed: u64) -> Result<Point> {
    let fits = |side| profile.engines(side).min(CORES);
    ensure!(
        fits(Side::Nic) > 0,
        refuse(
            "profile",
            &profile.name,
            "these alternatives need cores on the card",
            format!("choose {SNIC}")
        )
    );
    let view = View::new(3, 3, fits(Side::Host), fits(Side::Nic))?;
    // One primary, and a chain of two backups.
    let view = view.with_placement(vec![ReplicaSet::new((0..3).map(NodeId))])?;
    let mut config = SimConfig::mixed(view.clone(), vec![profile.clone(); 3], seed);
    config.tuning.aggregation = false;
    let source = Empty { capacity_per_shard: load.blocks() as u64 };
    let writers = Arc::new(Writers {
        load: load.clone(),
        nodes: load_nodes::<Node>(&view, &load.config, &source, &Sequential)?,
        seed,
        stop: AtomicBool::new(false),
        running: AtomicU64::new(0),
        bytes: AtomicU64::new(0),
        writes: AtomicU64::new(0),
        waited_ns: AtomicU64::new(0),
        failed: AtomicU64::new(0),
    });
    Ok(measure(&SimCluster::new(config), &writers))
}

fn measure(cluster: &SimCluster, writers: &Arc<Writers>) -> Point {
    let window = writers.load.window;
    cluster.start(Arc::new(Started(writers.clone())));
    cluster.run_until(&mut |_| false, window / 2);
    let (before, first) = (writers.counts(), cluster.report());
    let (elsewhere, times) = (writers.counter("elsewhere_ns"), writers.times());
    cluster.run_until(&mut |_| false, window / 2 + window);
    let (after, last) = (writers.counts(), cluster.report());
    let elsewhere = writers.counter("elsewhere_ns") - elsewhere;
    let times_after = writers.times();
    writers.stop.store(true, Ordering::Relaxed);
    let mut settled = |_| {
        writers.running.load(Ordering::Relaxed) == 0
            && writers.nodes.iter().all(|node| node.is_settled())
    };
    cluster.run_until(&mut settled, window * 20);
    let [bytes, writes, waited_ns]: [u64; 3] = std::array::from_fn(|at| after[at] - before[at]);
    let (span, report) = (window.0 as f64, last.since(&first));
    // A block is a chunk.
    let chunks = writes.max(1) as f64;
    let parts = [0, 1].map(|node| {
        let part = |(name, now): (&&'static str, &u64)| {
            let spent = (now - times[node].get(name).copied().unwrap_or_default()) as f64;
            (name.trim_end_matches("_ns").to_owned(), spent / chunks / 1e3)
        };
        times_after[node].iter().map(part).collect()
    });
    let of_hosts = report.spent.iter().filter(|one| one.side == Side::Host);
    let for_8_mb = 8e6 / bytes.max(1) as f64 / 1e3;
    let host_us = of_hosts.map(|one| (one.on.to_owned(), one.time.0 as f64 * for_8_mb)).collect();
    let busy = |name: &str| busy(&report, name);
    let cores = busy("n0.host_cores") * CORES as f64 - elsewhere as f64 / span;
    let (raw, packed) = (writers.counter("raw_bytes"), writers.counter("packed_bytes"));
    let by_host = writers.counter("chunks_by_host");
    let sealed = (writers.counter("chunks_by_soc") + by_host).max(1);
    let chunk_bytes = writers.load.config.chunk.0;
    Point {
        gbps: bytes as f64 * 8.0 / span,
        cpu_percent: cores.max(0.0) * 100.0,
        link_busy: busy("n0.link_out"),
        network: 1.0 - (raw.saturating_sub(packed)) as f64 / (sealed * chunk_bytes) as f64,
        a3_share: by_host as f64 / sealed as f64,
        ratio: if raw > 0 { packed as f64 / raw as f64 } else { 1.0 },
        latency_us: waited_ns as f64 / writes.max(1) as f64 / 1e3,
        parts,
        host_us,
        binding: Binding::of_parts(&report.resources),
        violations: writers.judge(),
    }
}

fn busy(report: &SimReport, name: &str) -> f64 {
    report.resources.iter().find(|one| one.name == name).map_or(0.0, Utilization::busy)
}

fn snic<'a>(context: &Context<'a>) -> &'a str {
    context.options.profile.as_deref().unwrap_or(SNIC)
}

pub(super) fn assume(context: &Context<'_>, table: &mut Table, content: &str) -> Result<()> {
    table.ran_on(&Arc::new(Profile::load(snic(context))?));
    table.assume("content", content, "the study does not say");
    let reason = "LZ4 in software, measured on another core and scaled to these";
    table.assume("compression", "130 ps a byte and 47 ns a sequence", reason);
    Ok(())
}

/// The meaning of [`HALF`].
pub(super) const HALF_TOLD: &str = "of every 4 KiB half is random and half zeros";

/// [OffPath23 figure 13]: more and more clients, on idle and on busy hosts.
fn by_clients(context: &Context<'_>) -> Result<Table> {
    const FULL: [usize; 5] = [1, 2, 4, 6, 8];
    const QUICK: [usize; 3] = [1, 2, 8];
    let form = context.options.form;
    let mut points = Vec::new();
    for system in context.systems() {
        let of = |known: &&(&str, Alternative)| known.0 == system;
        let Some(&(name, alternative)) = ALTERNATIVES.iter().find(of) else { continue };
        for (told, host) in [("idle", HostLoad::Idle), ("busy", HostLoad::Busy)] {
            for &clients in form.of([&FULL[..], &QUICK[..]]) {
                // [OffPath23 figure 13 (b), (c)] The file is not compressed there.
                let paper = LineFsConfig::paper(alternative);
                let config = LineFsConfig { host, soc_compresses: false, ..paper };
                let window = form.of([Nanos::from_millis(10), Nanos::from_millis(4)]);
                let load = Load { config, clients, content: Content::Random, window };
                points.push((name, told, load));
            }
        }
    }
    let found = context.pool.map(&points, |(_, _, load)| run(context, load))?;
    let mut table = context.table();
    table.ran_on(&Arc::new(Profile::load(snic(context))?));
    table.assume("compression", "none", "the file is not compressed in figure 13 (b) and (c)");
    let reason = "A2 takes each chunk for which the SoC has space, A3 the others [OffPath23 4.2]";
    table.assume("a2+a3", "greedy", reason);
    let reason = "of one core; of all that share the primary's host, without the busy program";
    table.assume("host_cpu_percent", "time of the primary's host cores", reason);
    let reason = "each host core is another program's half of the time, 100 us at a time";
    table.assume("busy", "streamcluster on every core", reason);
    table.assume("clients", "a core each, 8 chunks on their way", "the study does not say");
    for ((name, told, load), point) in points.iter().zip(found) {
        let found = [rounded(point.gbps, 1), rounded(point.cpu_percent, 1)];
        let row = [json!(alternative_of(name)), json!(told), json!(load.clients)]
            .into_iter()
            .chain(found);
        table.push_bound(row.collect(), &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

/// [OffPath23 figure 15]: from all chunks by A2 to all by A3; and A2 as far as the SoC goes.
fn by_share(context: &Context<'_>) -> Result<Table> {
    let form = context.options.form;
    let step = form.of([50, 125]);
    let shares = (0..=1_000).step_by(step).map(Some);
    let choices: Vec<Option<u16>> = shares.chain([None]).collect();
    let found = context.pool.map(&choices, |&a3_permille| {
        let paper = LineFsConfig::paper(Alternative::A2AndA3);
        let config = LineFsConfig { a3_permille, ..paper };
        // Of the way with the smaller share there are enough chunks too.
        let window = form.of([Nanos::from_millis(20), Nanos::from_millis(12)]);
        run(context, &Load { config, clients: CORES, content: HALF, window })
    })?;
    let mut table = context.table();
    assume(context, &mut table, HALF_TOLD)?;
    table.assume("clients", CORES, "as many as figure 13 has; 8 chunks of each are on their way");
    let reason = "bytes of chunks on the primary's link, against those of the files [figure 15]";
    table.assume("network_utilization", "a share", reason);
    let reason = "fixed: a share of all chunks; greedy: A2 while the SoC has space [OffPath23 4.2]";
    table.assume("choice", "fixed or greedy", reason);
    for (share, point) in choices.iter().zip(found) {
        let measured = vec![
            json!(if share.is_some() { "fixed" } else { "greedy" }),
            rounded(point.a3_share, 3),
            rounded(point.network, 3),
            rounded(point.link_busy, 3),
            rounded(point.gbps, 1),
        ];
        table.push_bound(measured, &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

/// [OffPath23 5.1]: the chunk that LineFS has by default, the one that advice 3 suggests, and large
/// ones in pieces.
fn by_chunk(context: &Context<'_>) -> Result<Table> {
    const SMALL: u64 = 256 << 10;
    const LARGE: u64 = 16 << 20;
    let form = context.options.form;
    let mut points = Vec::new();
    for (name, alternative) in &ALTERNATIVES[..3] {
        for (content, chunk, segment) in [
            (HALF, SMALL, None),
            (Content::Text, SMALL, None),
            (HALF, LARGE, None),
            (HALF, LARGE, Some(SMALL)),
        ] {
            // Large ones take memory and time: the quick form shows the one that advice 3 is about.
            if chunk == LARGE && *alternative != Alternative::A1 && form == Form::Quick {
                continue;
            }
            let (chunk, segment) = (Bytes(chunk), segment.map(Bytes));
            let (slots, millis) = match (chunk.0, content) {
                (LARGE, _) => (2, form.of([120, 18])),
                (_, Content::Text) => (8, form.of([60, 24])),
                _ => (8, form.of([10, 4])),
            };
            let paper = LineFsConfig::paper(*alternative);
            let config = LineFsConfig { chunk, segment, slots, ..paper };
            let (clients, window) = (1, Nanos::from_millis(millis));
            points.push((*name, Load { config, clients, content, window }));
        }
    }
    let found = context.pool.map(&points, |(_, load)| run(context, load))?;
    let mut table = context.table();
    assume(context, &mut table, &format!("50: {HALF_TOLD}; text: words and numbers"))?;
    table.assume("chunks on their way", "2 of 16 MiB, 8 of 256 KiB", "of one client");
    for ((name, load), point) in points.iter().zip(found) {
        let segment = load.config.segment.map_or(load.config.chunk, |most| most);
        let measured = vec![
            json!(alternative_of(name)),
            json!(load.content.to_string()),
            json!(load.config.chunk.0 >> 10),
            json!(segment.0 >> 10),
            rounded(point.ratio, 3),
            rounded(point.gbps, 1),
            rounded(point.latency_us, 1),
        ];
        table.push_bound(measured, &point.binding);
        table.judge(point.violations);
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicol_planner::{Description, plan};

    /// [OffPath23 4.2] A2 first, and A3 for what is left: at no load less than either alone.
    #[test]
    fn the_greedy_combination_gives_no_less_than_its_parts_at_any_load() {
        let profile = Arc::new(Profile::load(SNIC).unwrap());
        for (host, soc_compresses) in
            [(HostLoad::Idle, true), (HostLoad::Idle, false), (HostLoad::Busy, true)]
        {
            for clients in [1, 2, 4, CORES] {
                let gbps = |alternative| {
                    let paper = LineFsConfig::paper(alternative);
                    let config = LineFsConfig { host, soc_compresses, ..paper };
                    let window = Nanos::from_millis(4);
                    let load = Load { config, clients, content: HALF, window };
                    let point = simulate(&profile, &load, 1).unwrap();
                    assert!(point.violations.is_empty(), "{:?}", point.violations);
                    point.gbps
                };
                let both = gbps(Alternative::A2AndA3);
                for alone in [Alternative::A2, Alternative::A3] {
                    let part = gbps(alone);
                    assert!(
                        both > 0.97 * part,
                        "{host:?}, {clients} clients, compressed {soc_compresses}: {both} Gbps, \
                         {alone:?} alone {part} Gbps"
                    );
                }
            }
        }
    }

    /// What the planner says of a chunk holds for the system that replicates chunks, with its
    /// chain, its logs and their acknowledgements: each bound within 15 %, and the share that it
    /// recommends of the best share within 10 %.
    #[test]
    fn the_plan_of_linefs_holds_for_the_system() {
        let text = include_str!("../../../../../../docs/plans/linefs.toml");
        let description = Description::parse("linefs.toml", text).unwrap();
        let plan = plan(&description, false).unwrap();
        let profile = Arc::new(Profile::load(SNIC).unwrap());
        let gbps = |config: LineFsConfig| {
            let window = Nanos::from_millis(4);
            let load = Load { config, clients: CORES, content: HALF, window };
            let point = simulate(&profile, &load, 1).unwrap();
            assert!(point.violations.is_empty(), "{:?}", point.violations);
            point.gbps
        };
        let bits = description.bytes.unwrap() as f64 * 8.0 / 1e3;
        for (candidate, (name, alternative)) in plan.candidates.iter().zip(ALTERNATIVES) {
            assert!(name.ends_with(&candidate.name), "{name}: {}", candidate.name);
            let (planned, found) = (candidate.mops * bits, gbps(LineFsConfig::paper(alternative)));
            assert!((planned / found - 1.0).abs() < 0.15, "{name}: {planned} and {found} Gbps");
        }
        let paper = LineFsConfig::paper(Alternative::A2AndA3);
        let at = |share| gbps(LineFsConfig { a3_permille: Some(share), ..paper.clone() });
        // Of A2 and A3 alone, as the study combines them.
        let mut of_two = description;
        of_two.alternatives.retain(|one| one.name != "a1");
        let both = nicol_planner::plan(&of_two, false).unwrap();
        let rate = |name: &str| {
            let found = both.candidates.iter().position(|one| one.name == name);
            both.best.mops[found.unwrap()]
        };
        let (a2, a3) = (rate("a2"), rate("a3"));
        let recommended = at((1e3 * a3 / (a2 + a3)).round() as u16);
        let best = (0..=1_000).step_by(125).map(at).fold(0.0, f64::max);
        assert!(recommended >= best * 0.9, "{recommended} of {best} Gbps");
    }
}
