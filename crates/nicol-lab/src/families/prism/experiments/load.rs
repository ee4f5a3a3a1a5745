//! A system of PRISM under closed-loop clients of their own nodes: what the end-to-end figures
//! share.

use anyhow::{Result, anyhow, ensure};
use nicol_core::units::Nanos;
use nicol_workload::ycsb::Popularity;
use serde::{Deserialize, Serialize};

use super::steady::{self, Windows};
use super::testbed::Testbed;
use crate::experiments::{Context, Form, Table};
use nicol_bench::binding::Binding;
use nicol_bench::config::{BenchConfig, Length};
use nicol_bench::report::BenchReport;
use nicol_bench::systems;
use nicol_bench::workloads::WorkloadSpec;

/// Machines that run clients, at most. [PRISM21 6.2]
const CLIENT_NODES_MAX: usize = 11;
/// Bytes of an object. [PRISM21 7.4, 8.3]
const VALUE_BYTES: u32 = 512;
/// The measured time at least.
const WINDOW: [Nanos; 2] = [Nanos::from_millis(10), Nanos::from_micros(500)];
/// Bytes of memory per object and copy, rounded up, and what a run needs besides.
const FOOTPRINT: u64 = 1_200;
const BASE: u64 = 600 << 20;

/// The records, and how clients ask for them.
#[derive(Clone, Copy)]
pub(super) struct Load {
    pub(super) workload: &'static str,
    /// Servers; every one has a copy of everything.
    pub(super) servers: usize,
    /// Objects: in the full form, and in the quick one.
    pub(super) objects: [u64; 2],
    /// Settings of the system.
    pub(super) settings: &'static [&'static str],
    /// Zipf parameter times 100; 0 is uniform.
    pub(super) zipf_percent: u8,
    /// Clients of the whole experiment.
    pub(super) clients: usize,
}

/// The measurements of one judged run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) throughput: f64,
    pub(super) mean: f64,
    pub(super) p50: f64,
    pub(super) p99: f64,
    pub(super) binding: Binding,
    pub(super) violations: Vec<String>,
}

impl Load {
    fn spec(&self, form: Form) -> WorkloadSpec {
        let ycsb = self.workload == "ycsb";
        let uniform = self.zipf_percent == 0;
        let zipfian = || Popularity::Zipfian(nicol_workload::ycsb::SKEW);
        let popularity = if uniform { Popularity::Uniform } else { zipfian() };
        WorkloadSpec {
            records: Some(form.of(self.objects) / self.servers as u64),
            value_bytes: Some(VALUE_BYTES),
            zipf_percent: (!ycsb || !uniform).then_some(self.zipf_percent),
            popularity: ycsb.then_some(popularity),
            ..WorkloadSpec::named(self.workload)
        }
    }

    fn config(&self, context: &Context<'_>, system: &str, on: &Testbed) -> Result<BenchConfig> {
        let form = context.options.form;
        let nodes = self.clients.min(CLIENT_NODES_MAX);
        let nodes = (1..=nodes).rev().find(|nodes| self.clients.is_multiple_of(*nodes));
        let client_nodes = nodes.unwrap_or(1);
        let per_node = self.clients / client_nodes;
        ensure!(per_node * client_nodes == self.clients, "{} clients", self.clients);
        Ok(BenchConfig {
            settings: self.settings.iter().map(ToString::to_string).collect(),
            nodes: self.servers,
            replicas: self.servers,
            client_nodes,
            clients: Some(per_node),
            length: Some(Length::Time(form.of(WINDOW))),
            ..BenchConfig::new(system, self.spec(form), &on.name, context.options.seed)
        })
    }

    /// Runs `system` so, and judges the run.
    pub(super) fn run(&self, context: &Context<'_>, system: &str, on: &Testbed) -> Result<Point> {
        let config = self.config(context, system, on)?;
        let objects = context.options.form.of(self.objects);
        let memory = objects * self.servers as u64 * FOOTPRINT + BASE;
        let run = format!("prism steady {:016x} {config:?}", on.digest());
        let system = systems::find(system)?;
        let least = context.options.form.of(WINDOW);
        context.point(&run, memory, || {
            let run = |windows: Windows| Ok((system.run)(system, &windows.of(&config))?.report);
            let report = steady::measure(self.clients, least, run)?;
            let what = format!("{} with {} clients a node", report.system, report.clients_per_node);
            Ok(Point::of(&report, &what))
        })
    }
}

impl Point {
    /// The run of `report`, which is called `what`.
    pub(super) fn of(report: &BenchReport, what: &str) -> Self {
        let violations = report.check.violations.iter().map(|one| format!("{what}: {one}"));
        Self {
            throughput: report.throughput_per_s,
            mean: report.latency_us.mean,
            p50: report.latency_us.p50,
            p99: report.latency_us.p99,
            binding: report.binding.clone(),
            violations: violations.collect(),
        }
    }

    /// The point of the highest throughput among those of all loads; of equals the first. What is
    /// wrong with any of them is wrong with it.
    ///
    /// Errors: there is none.
    pub(super) fn peak_of(climbed: Vec<(usize, Self)>) -> Result<Self> {
        let mut points: Vec<Self> = climbed.into_iter().map(|(_, point)| point).collect();
        let wrong = points.iter_mut().flat_map(|point| point.violations.split_off(0));
        let violations: Vec<String> = wrong.collect();
        let higher = |most: Self, one: Self| match one.throughput > most.throughput {
            true => one,
            false => most,
        };
        let peak = points.into_iter().reduce(higher);
        let peak = peak.ok_or_else(|| anyhow!("a peak is looked for among some"))?;
        Ok(Self { violations, ..peak })
    }
}

/// For how long it is measured.
pub(super) fn measured(form: Form) -> String {
    steady::words(form.of(WINDOW))
}

/// Says in `table` what these figures assume.
pub(super) fn assume(context: &Context<'_>, table: &mut Table, load: &Load) {
    let form = context.options.form;
    steady::assume(table, form.of(WINDOW));
    let reason = "of 512 B each; the paper has 8 million, which as many simulated servers with a \
                  copy each do not hold on one machine";
    table.assume("objects", form.of(load.objects), reason);
    let reason = "the most of up to 11 that divide the clients evenly";
    table.assume("client nodes", "up to 11", reason);
}
