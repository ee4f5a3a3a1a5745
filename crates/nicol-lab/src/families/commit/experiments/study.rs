//! A system under a benchmark, measured point by point: what the end-to-end figures share.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use nicol_core::units::Nanos;
use nicol_sim::Profile;
use serde::{Deserialize, Serialize};

use super::benchmarks::{Benchmark, NODES, REPLICAS};
use super::{VERBS, on_path};
use crate::experiments::{Context, Form, Ladder, Table, digest};
use nicol_bench::binding::Binding;
use nicol_bench::config::{BenchConfig, Length};
use nicol_bench::families::commit::find;
use nicol_bench::hardware::vain_offload;
use nicol_bench::last_load::LastLoad;
use nicol_bench::report::BenchReport;
use nicol_bench::system::System;

/// A system under a benchmark, with what is varied.
#[derive(Clone)]
pub(crate) struct Study<'c> {
    context: &'c Context<'c>,
    benchmark: &'static Benchmark,
    system: &'static System,
    profile: Arc<Profile>,
    /// The profile as it was named.
    on: String,
    /// What its LOG carries, as results say it. AMB-44
    log: &'static str,
    /// `--set` of the system.
    pub(super) settings: Vec<String>,
    /// Host engines per node, if not all.
    pub(super) host_engines: Option<usize>,
    /// NIC engines per node, if not all.
    pub(super) nic_engines: Option<usize>,
    /// The factor by which its runs are longer than the benchmark's.
    pub(super) length: u64,
    /// What its runs have loaded.
    last_load: Arc<LastLoad>,
}

/// The measurements of one judged run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) clients: usize,
    /// Committed transactions that the benchmark counts, per second and node.
    pub(super) throughput: f64,
    /// Median latency in microseconds.
    pub(super) p50: f64,
    /// 99th percentile of latency in microseconds.
    pub(super) p99: f64,
    /// Attempts that aborted, of all attempts; refusals of the application are none.
    pub(super) abort_fraction: f64,
    pub(super) binding: Binding,
    pub(super) violations: Vec<String>,
}

/// The systems of [Xenic21 5.1], which the public code of DrTM+H runs.
const PUBLIC_CODE: [&str; 4] = ["fasst", "drtm-r", "drtm-h", "drtm-h-nc"];
/// How that code logs: the whole write set to every backup, and a second round that acknowledges
/// it. AMB-44
const PUBLIC_LOG: [&str; 2] = ["log_content=whole", "log_acks=on"];
/// Those of them that have rows with the careful form beside it.
const BOTH_LOGS: [&str; 2] = ["fasst", "drtm-h"];
/// The careful form: each shard's part, without a second round. Xenic's and FaRM's own.
const SHARD: &str = "shard";

impl<'c> Study<'c> {
    /// `system` under `benchmark` on the hardware that the paper gave it.
    ///
    /// Errors: a system or a profile that is not there.
    pub(crate) fn new(
        context: &'c Context<'c>,
        benchmark: &'static Benchmark,
        system: &'static str,
    ) -> Result<Self> {
        // What offloads runs on the on-path SmartNIC; the others use verbs.
        let on = match find(system)?.offloads {
            true => on_path(context),
            false => VERBS,
        };
        Self::on(context, benchmark, system, on.to_owned())
    }

    /// The same with `change` made to the hardware, as [`Profile::load`] takes it.
    pub(super) fn changed(
        context: &'c Context<'c>,
        benchmark: &'static Benchmark,
        system: &'static str,
        change: &str,
    ) -> Result<Self> {
        let plain = Self::new(context, benchmark, system)?;
        Self::on(context, benchmark, system, format!("{}:{change}", plain.on))
    }

    fn on(
        context: &'c Context<'c>,
        benchmark: &'static Benchmark,
        system: &'static str,
        on: String,
    ) -> Result<Self> {
        Ok(Self {
            context,
            benchmark,
            system: find(system)?,
            profile: Arc::new(Profile::load(&on)?),
            on,
            log: SHARD,
            settings: Vec::new(),
            host_engines: None,
            nic_engines: None,
            length: 1,
            last_load: Arc::default(),
        })
    }

    /// What is compared of each of `systems`: those that the public code of DrTM+H runs have LOG as
    /// that code has it, and some of them as it could be beside it. [Xenic21 5.1] AMB-44
    pub(super) fn of_each(
        systems: Vec<&'static str>,
        study: impl Fn(&'static str) -> Result<Self>,
    ) -> Result<Vec<Self>> {
        let mut studies = Vec::new();
        for system in systems {
            let careful = study(system)?;
            if PUBLIC_CODE.contains(&system) {
                let settings = PUBLIC_LOG.map(str::to_owned).to_vec();
                studies.push(Self {
                    log: "whole, acknowledged",
                    settings,
                    last_load: Arc::default(),
                    ..careful.clone()
                });
            }
            if !PUBLIC_CODE.contains(&system) || BOTH_LOGS.contains(&system) {
                studies.push(careful);
            }
        }
        Ok(studies)
    }

    /// True of what the paper compared, false of what stands beside it.
    pub(super) fn is_as_compared(&self) -> bool {
        self.log != SHARD || !PUBLIC_CODE.contains(&self.system.name)
    }

    /// What its LOG carries.
    pub(super) fn log(&self) -> &'static str {
        self.log
    }

    pub(super) fn benchmark(&self) -> &'static Benchmark {
        self.benchmark
    }

    pub(super) fn system(&self) -> &'static str {
        self.system.name
    }

    /// The profile that it runs on.
    pub(super) fn profile(&self) -> &Arc<Profile> {
        &self.profile
    }

    /// Says in `table` what hardware it ran on, and what that means for a system which offloads.
    pub(crate) fn tell_hardware(&self, table: &mut Table) -> Result<()> {
        table.ran_on(&self.profile);
        if self.system.offloads
            && let Some(warning) = vain_offload(&self.profile)?
        {
            table.warn(&self.profile, self.system.name, &warning);
        }
        Ok(())
    }

    /// Whether NIC threads do a part of its work.
    pub(super) fn uses_nic_threads(&self) -> bool {
        self.system.offloads
    }

    fn config(&self, clients: usize) -> BenchConfig {
        let (warmup, window) = self.benchmark.windows(self.context.options.form);
        let workload = self.benchmark.spec(self.context.options.form);
        BenchConfig {
            settings: self.settings.clone(),
            nodes: NODES,
            replicas: REPLICAS,
            host_engines: self.host_engines,
            nic_engines: self.nic_engines,
            clients: Some(clients),
            length: Some(Length::Time(window * self.length)),
            warmup: Some(warmup * self.length),
            last_load: Some(self.last_load.clone()),
            ..BenchConfig::new(self.system.name, workload, &self.on, self.context.options.seed)
        }
    }

    /// Does `work` for each of `studies`, as many at a time as have memory for what they keep.
    /// Results are in their order.
    ///
    /// Errors: those of `work`; a scale that a workload does not take.
    pub(super) fn each<R: Send>(
        studies: &[Self],
        work: impl Fn(&Self) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let Some(Self { context: Context { options, pool, .. }, .. }) = studies.first() else {
            return Ok(Vec::new());
        };
        let mut most = 1;
        for study in studies {
            most = study.memory()?.max(most);
        }
        let at_a_time = (options.memory / most).clamp(1, options.jobs as u64) as usize;
        pool.map_few(at_a_time, studies, |study| {
            let found = work(study);
            study.last_load.clear();
            found
        })
    }

    /// About how many bytes of memory a run of it takes at most.
    fn memory(&self) -> Result<u64> {
        self.benchmark.memory(self.context.options.form, self.system)
    }

    /// Runs it with so many closed-loop clients per node, and judges the run.
    pub(super) fn at(&self, clients: usize) -> Result<Point> {
        let config = self.config(clients);
        let memory = self.memory()?;
        let hardware = digest(&format!("{:?}", self.profile));
        let run = format!("{} {hardware:016x} {config:?}", self.benchmark.name);
        self.context
            .point(&run, memory, || self.point(&(self.system.run)(self.system, &config)?.report))
    }

    fn point(&self, report: &BenchReport) -> Result<Point> {
        let what = format!("{} with {} clients", self.system.name, report.clients_per_node);
        let committed: u64 = report.kinds.iter().map(|kind| kind.committed).sum();
        let (counted, latency) = match self.benchmark.counted {
            None => (committed, report.latency_us),
            Some(kind) => {
                let kind = report.kinds.iter().find(|known| known.name == kind);
                let kind = kind.with_context(|| format!("{what}: no such transaction type"))?;
                (kind.committed, kind.latency_us)
            }
        };
        ensure!(counted > 0, "{what}: nothing was committed in the measured time");
        let share = counted as f64 / committed as f64;
        let attempts = report.due_committed + report.aborted + report.refused;
        Ok(Point {
            clients: report.clients_per_node,
            throughput: report.throughput_per_node_per_s * share,
            p50: latency.p50,
            p99: latency.p99,
            abort_fraction: report.aborted as f64 / attempts as f64,
            binding: report.binding.clone(),
            violations: report
                .check
                .violations
                .iter()
                .map(|one| format!("{what}: {one}"))
                .collect(),
        })
    }

    /// Raises the load until throughput stops growing; in the full form then measures midway
    /// between the peak and its neighbours. Points are in the order of their clients.
    pub(super) fn saturate(&self) -> Result<Vec<Point>> {
        let form = self.context.options.form;
        let ladder = self.benchmark.ladder(form);
        let climbed = ladder.climb(|point: &Point| point.throughput, |at| self.at(at))?;
        let mut points: Vec<Point> = climbed.into_iter().map(|(_, point)| point).collect();
        if form == Form::Full {
            let between: Vec<usize> = around_the_peak(&points);
            points.extend(self.context.pool.map(&between, |clients| self.at(*clients))?);
            points.sort_by_key(|point| point.clients);
        }
        Ok(points)
    }
}

/// The name of the load that a ladder raises.
pub(super) const LOAD: &str = "clients per node";

fn around_the_peak(points: &[Point]) -> Vec<usize> {
    let Some(at) = points.iter().position(|point| std::ptr::eq(point, peak(points))) else {
        return Vec::new();
    };
    let peak = points[at].clients;
    let neighbours = [at.checked_sub(1), Some(at + 1)];
    let clients = |at: Option<usize>| points.get(at?).map(|point| point.clients);
    let midway = neighbours.into_iter().filter_map(clients).map(|other| (peak + other) / 2);
    midway.filter(|clients| points.iter().all(|point| point.clients != *clients)).collect()
}

/// The point of the highest throughput; of equals the first, which has fewer clients.
///
/// # Panics
/// If there is none: a sweep has at least one.
pub(super) fn peak(points: &[Point]) -> &Point {
    let higher = |most: &'_ Point, point: &'_ Point| point.throughput > most.throughput;
    let mut points = points.iter();
    let Some(first) = points.next() else { panic!("a sweep has at least one point") };
    points.fold(first, |most, point| if higher(most, point) { point } else { most })
}

/// Notes the assumptions of every figure of this kind.
pub(super) fn assume(table: &mut Table, form: Form, benchmarks: &[&Benchmark]) {
    let span = |span: Nanos| format!("{} us", span.0 / 1_000);
    for benchmark in benchmarks {
        let (warmup, window) = benchmark.windows(form);
        let key = |what| format!("{} {what}", benchmark.name);
        table.assume(&key("warm-up"), span(warmup), "simulated");
        let reason = "simulated; the published length is not given";
        table.assume(&key("measured time"), span(window), reason);
        benchmark.assume(table, form);
    }
    let reason = "as after a long run: NIC indexes know what their memory holds (C1.02), DrTM+H's \
                  coordinators know every address";
    table.assume("caches", "warm", reason);
    let reason = "a table of Xenic's that is 90 % full begins to double; more room was worth 1.2 % to \
                  a baseline at most";
    table.assume("table occupancy", "80 % for xenic, 90 % for the others", reason);
}

/// Which of its two forms LOG has where the RDMA systems are compared. AMB-44
pub(super) fn assume_log_form(table: &mut Table) {
    let reason = "what was compared is the public code of DrTM+H, whose LOG carries the whole write set \
                  to every backup and is acknowledged by a second round; rows \"shard\" have each \
                  shard's part and no second round, as Xenic and FaRM have";
    table.assume("log of FaSST, DrTM+R, DrTM+H and DrTM+H NC", PUBLIC_LOG.join(", "), reason);
}

/// The same for figures that look for the peak.
pub(super) fn assume_sweeps(table: &mut Table, form: Form, benchmarks: &[&Benchmark]) {
    assume(table, form, benchmarks);
    // Benchmarks that are shown together have their loads told together.
    let ladders: Vec<Ladder> = benchmarks.iter().map(|one| one.ladder(form)).collect();
    ladders.first().into_iter().for_each(|ladder| ladder.assume(table, LOAD));
    if form == Form::Full {
        let reason = "midway between the peak and its neighbours";
        table.assume("points beside the peak", "2", reason);
    }
}
