//! A run of an engine behind a scheduler: what the figures share.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::{Result, ensure};
use nicol_core::history::{End, History};
use nicol_core::units::Nanos;
use nicol_schedule::Kind;
use nicol_sim::Profile;
use nicol_workload::tpcc::Chopping;
use serde::{Deserialize, Serialize};

use crate::experiments::{Context, Form, Table, digest};
use nicol_bench::binding::Binding;
use nicol_bench::config::{BenchConfig, Length};
use nicol_bench::families::SCHEDULERS;
use nicol_bench::report::BenchRun;
use nicol_bench::systems;
use nicol_bench::workloads::WorkloadSpec;

/// The testbed. [AlNiCo22, setup]
pub(super) const TESTBED: &str = "innova2";
/// Cores of the server: "20 workers for normal transactions, 2 for long running ones".
pub(super) const WORKERS: usize = 22;
/// Machines with clients, and clients of each: 24 threads with up to 4 requests under way.
pub(super) const CLIENT_NODES: usize = 2;
pub(super) const CLIENTS: [usize; 2] = [96, 48];
/// The measured time, and the part before it, of TPC-C and of YCSB-T.
const WINDOW: [[Nanos; 2]; 2] = [
    [Nanos::from_millis(60), Nanos::from_millis(8)],
    [Nanos::from_millis(60), Nanos::from_millis(3)],
];
const WARM_UP: [[Nanos; 2]; 2] = [
    [Nanos::from_millis(60), Nanos::from_millis(14)],
    [Nanos::from_millis(60), Nanos::from_millis(6)],
];
/// Interval at which the engine's epoch moves on and deleted records are taken out [Silo13 4.1]; a
/// twentieth in the quick form.
const EPOCH_US: [u64; 2] = [40_000, 2_000];
/// The feedback epoch (C2.03) and the time of a batch of Strife [AlNiCo22, setup]; in the quick
/// form a twentieth of them, so that a short run has several. The warm-up is long enough for
/// contended features to get a weight, which takes an abort for each worker on average.
const FEEDBACK_US: [u64; 2] = [20_000, 1_000];
const BATCH_US: [u64; 2] = [5_000, 250];
/// The batch itself, in requests.
const BATCH: [usize; 2] = [10_000, 500];
/// Records of YCSB, of which the paper has 10 million.
pub(super) const RECORDS: [u64; 2] = [10_000_000, 200_000];
/// Tables of YCSB, of which a transaction uses one. (AMB-39)
const TABLES: u8 = 20;
/// Items and customers of TPC-C: the specification's, and fewer.
pub(super) const ITEMS: [u32; 2] = [100_000, 10_000];
pub(super) const CUSTOMERS: [u16; 2] = [3_000, 300];
/// Records of TPC-C by the customers of a district: ten districts, and for each customer its row,
/// its index entries and an order of about ten lines.
const PER_CUSTOMER: u64 = 10 * 15;
/// Bytes of memory of a record, measured and rounded up, and what a run needs besides.
const FOOTPRINT: u64 = 150;
const BASE: u64 = 400 << 20;
/// Attempts in a microsecond, about, and bytes that each takes in the history and in the judge's
/// index of it: 16 reads and 16 writes, measured with 91,266 attempts in 24 ms.
const ATTEMPTS_PER_US: u64 = 4;
const JUDGED: u64 = 5_500;

/// The scheduler of a row of a figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Scheduler {
    /// As the row calls it.
    pub(super) row: &'static str,
    /// As `--set scheduler` calls it.
    name: &'static str,
    /// Settings besides.
    settings: &'static [&'static str],
    /// Has it as many clients as fill one batch while another one is executed?
    fills_batches: bool,
}

impl Scheduler {
    const fn published(name: &'static str) -> Self {
        Self { row: name, name, settings: &[], fills_batches: false }
    }
}

pub(super) const ROUND_ROBIN: Scheduler = Scheduler::published("round-robin");
pub(super) const STATIC_PARTITION: Scheduler = Scheduler::published("static-partition");
/// With the clients of the other rows, who never fill a batch: its timer ends each.
pub(super) const STRIFE: Scheduler = Scheduler::published("strife");
/// With the clients that its batch needs.
pub(super) const STRIFE_FULL: Scheduler =
    Scheduler { row: "strife-full-batches", fills_batches: true, ..STRIFE };
pub(super) const ALNICO: Scheduler = Scheduler::published("alnico");
/// The shortest queue alone: what the weights add is the distance from this row.
pub(super) const UNWEIGHED: Scheduler =
    Scheduler { row: "alnico-unweighed", settings: &["publish=never"], ..ALNICO };
/// Data and vector in one message through the card, the other reading of its RPC.
pub(super) const ONE_MESSAGE: Scheduler =
    Scheduler { row: "alnico-one-message", settings: &["rpc=one-message"], ..ALNICO };
pub(super) const ALNICO_CPU_2: Scheduler = Scheduler::published("alnico-cpu-2");
pub(super) const ALNICO_CPU_N: Scheduler = Scheduler::published("alnico-cpu-n");

/// One run of a figure: engine, scheduler, workload, cores.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) engine: &'static str,
    pub(super) scheduler: Scheduler,
    pub(super) workload: WorkloadSpec,
    pub(super) settings: Vec<String>,
    /// Clients of a machine; `None`: as in the paper.
    pub(super) clients: Option<usize>,
    /// The factor by which the measured time is longer than usual.
    pub(super) longer: u64,
    /// Interval at which alnico's software computes vectors; `None`: as in the other figures.
    pub(super) feedback_us: Option<u64>,
}

/// The measurements of one judged run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Point {
    pub(super) throughput: f64,
    pub(super) p50: f64,
    /// By kind: the median and the 99th percentile of the latency.
    pub(super) kinds: BTreeMap<String, (f64, f64)>,
    /// Aborted attempts among all.
    pub(super) abort_fraction: f64,
    /// Aborts on features that weigh anything among those since vectors were published.
    pub(super) accuracy: f64,
    /// Commits by slice of time.
    pub(super) series: Vec<u64>,
    pub(super) binding: Binding,
    pub(super) violations: Vec<String>,
}

/// Slices of a series.
pub(super) const SLICES: u64 = 30;

impl Run {
    /// TPC-C on so many warehouses.
    pub(super) fn tpcc(form: Form, warehouses: u16) -> WorkloadSpec {
        WorkloadSpec {
            warehouses: Some(warehouses),
            items: Some(form.of(ITEMS)),
            customers: Some(form.of(CUSTOMERS)),
            chopping: Some(Chopping::Whole),
            ..WorkloadSpec::named("tpcc")
        }
    }

    /// YCSB-T: 16 keys of one table, of which so many in a hundred are written.
    pub(super) fn ycsb(form: Form, writes: u8, zipf_percent: u8) -> WorkloadSpec {
        WorkloadSpec {
            records: Some(form.of(RECORDS)),
            tables: Some(TABLES),
            keys: Some(16),
            read_percent: Some(100 - writes),
            zipf_percent: Some(zipf_percent),
            ..WorkloadSpec::named("ycsb-t")
        }
    }

    /// The engine behind the scheduler, under the workload.
    pub(super) fn new(engine: &'static str, scheduler: Scheduler, workload: WorkloadSpec) -> Self {
        Self {
            engine,
            scheduler,
            workload,
            settings: Vec::new(),
            clients: None,
            longer: 1,
            feedback_us: None,
        }
    }

    fn config(&self, context: &Context<'_>) -> BenchConfig {
        let form = context.options.form;
        let (warmup, window) = self.times(form);
        let mut settings = vec![
            format!("scheduler={}", self.scheduler.name),
            format!("epoch_us={}", form.of(EPOCH_US)),
        ];
        let kind =
            SCHEDULERS.iter().find(|(name, _)| *name == self.scheduler.name).map(|found| found.1);
        let weighs_features = kind.is_some_and(Kind::weighs_features);
        if weighs_features {
            let feedback_us = self.feedback_us.unwrap_or(form.of(FEEDBACK_US));
            settings.push(format!("feedback_us={feedback_us}"));
        }
        if kind.is_some_and(Kind::batches) {
            settings.push(format!("batch_us={}", form.of(BATCH_US)));
            settings.push(format!("batch={}", form.of(BATCH)));
        }
        // The others spread long transactions over all workers, "for fair reserved core"
        // (artifact).
        if self.workload.is_tpcc() && weighs_features {
            settings.push("reserved=2".to_owned());
        }
        settings.extend(self.scheduler.settings.iter().map(ToString::to_string));
        settings.extend(self.settings.iter().cloned());
        // One batch is gathered while another one is executed.
        let batches = 2 * form.of(BATCH) / CLIENT_NODES;
        let clients = if self.scheduler.fills_batches { batches } else { form.of(CLIENTS) };
        let mut spec = self.workload.clone();
        // Capacity for what the run inserts, beyond what it can commit.
        spec.transactions = spec.is_tpcc().then(|| (warmup + window).0 / 1_000);
        BenchConfig {
            nodes: 1,
            replicas: 1,
            client_nodes: CLIENT_NODES,
            host_engines: Some(WORKERS),
            clients: Some(self.clients.unwrap_or(clients)),
            length: Some(Length::Time(window)),
            warmup: Some(warmup),
            settings,
            ..BenchConfig::new(self.engine, spec, testbed(context), context.options.seed)
        }
    }

    /// The warm-up and the measured time.
    fn times(&self, form: Form) -> (Nanos, Nanos) {
        let (warmup, window) = times(form, self.workload.is_tpcc());
        (warmup, window * self.longer)
    }

    /// Records that are loaded, about.
    fn records(&self) -> u64 {
        let WorkloadSpec { warehouses, items, customers, records, .. } = &self.workload;
        let (items, customers) = (items.unwrap_or_default(), customers.unwrap_or_default());
        let warehouse = u64::from(items) + u64::from(customers) * PER_CUSTOMER;
        records.unwrap_or(u64::from(warehouses.unwrap_or_default()) * warehouse)
    }

    /// Runs it, and judges the run.
    pub(super) fn run(&self, context: &Context<'_>) -> Result<Point> {
        let config = self.config(context);
        let (warmup, window) = self.times(context.options.form);
        let attempts = (warmup + window).0 / 1_000 * ATTEMPTS_PER_US;
        let memory = self.records() * FOOTPRINT + attempts * JUDGED + BASE;
        let hardware = digest(&format!("{:?}", Profile::load(testbed(context))?));
        let run = format!("alnico {hardware:016x} {config:?}");
        let system = systems::find(self.engine)?;
        context.point(&run, memory, || {
            let ran = (system.run)(system, &config)?;
            point(&ran, self, self.times(context.options.form))
        })
    }
}

/// The warm-up and the measured time.
pub(super) fn times(form: Form, tpcc: bool) -> (Nanos, Nanos) {
    let which = usize::from(!tpcc);
    (form.of(WARM_UP[which]), form.of(WINDOW[which]))
}

/// Commits by slice of the measured `window`, which begins at `from`.
fn series(history: &History, (from, window): (Nanos, Nanos)) -> Vec<u64> {
    let mut slices = vec![0; SLICES as usize];
    let ended = history.operations.iter().filter(|operation| operation.end == End::Ok);
    for at in ended.filter_map(|operation| operation.responded?.checked_sub(from.0)) {
        if let Some(slice) = slices.get_mut((at * SLICES / window.0) as usize) {
            *slice += 1;
        }
    }
    slices
}

fn point(ran: &BenchRun, run: &Run, times: (Nanos, Nanos)) -> Result<Point> {
    let report = &ran.report;
    let what = format!("{} behind {}", run.engine, run.scheduler.row);
    ensure!(report.committed > 0, "{what}: nothing committed in the measured time");
    let violations = report.check.violations.iter().map(|one| format!("{what}: {one}"));
    let counted = |name: &str| {
        let group = report.counters.get("schedule");
        group.and_then(|group| group.get(name)).copied().unwrap_or_default() as f64
    };
    let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
    let aborts = counted("aborts");
    let kind = |kind: &nicol_bench::report::Kind| {
        (kind.name.to_string(), (kind.latency_us.p50, kind.latency_us.p99))
    };
    // Commits of the whole run, as the counters of aborts are.
    let committed = ran.history.operations.iter().filter(|one| one.end == End::Ok).count() as f64;
    Ok(Point {
        throughput: report.throughput_per_s,
        p50: report.latency_us.p50,
        kinds: report.kinds.iter().map(kind).collect(),
        abort_fraction: share(aborts, aborts + committed),
        accuracy: share(counted("aborts_on_weighed"), counted("aborts_since_vectors")),
        series: series(&ran.history, times),
        binding: report.binding.clone(),
        violations: violations.collect(),
    })
}

pub(super) fn testbed<'c>(context: &Context<'c>) -> &'c str {
    context.options.profile.as_deref().unwrap_or(TESTBED)
}

/// Milliseconds of a slice of the measured time of `longer` windows.
pub(super) fn slice_ms(context: &Context<'_>, longer: u64) -> f64 {
    (times(context.options.form, false).1 * longer).0 as f64 / SLICES as f64 / 1e6
}

/// Says in `table` what these figures assume.
pub(super) fn assume(context: &Context<'_>, table: &mut Table) -> Result<()> {
    let feedback_us = context.options.form.of(FEEDBACK_US);
    let reason = "(C2.03); in the quick form a twentieth, so that a short run has several";
    assume_with_feedback(context, table, feedback_us, reason)
}

/// The same, with feedback every `feedback_us` for that reason.
pub(super) fn assume_with_feedback(
    context: &Context<'_>,
    table: &mut Table,
    feedback_us: u64,
    feedback_reason: &str,
) -> Result<()> {
    let form = context.options.form;
    let span = |span: Nanos| format!("{} us", span.0 / 1_000);
    table.ran_on(&Arc::new(Profile::load(testbed(context))?));
    for (name, tpcc) in [("TPC-C", true), ("YCSB-T", false)] {
        let (warmup, window) = times(form, tpcc);
        let reason = "simulated; long enough for what stands in the way to weigh";
        table.assume(&format!("warm-up of {name}"), span(warmup), reason);
        let reason = "simulated; the published length is not given";
        table.assume(&format!("measured time of {name}"), span(window), reason);
    }
    let reason = "[Silo13 4.1]; in the quick form a twentieth, as the feedback";
    table.assume("epoch of the engine", format!("{} us", form.of(EPOCH_US)), reason);
    table.assume("feedback", format!("{feedback_us} us"), feedback_reason);
    let reason = "whichever comes first, as published; in the quick form a twentieth of both";
    let batch = format!("{} requests or {} us", form.of(BATCH), form.of(BATCH_US));
    table.assume("batch of strife", batch, reason);
    let reason = "of each of 2 machines; the paper has 24 threads with 1 to 4 requests under way, too few to \
                  fill a batch of strife: its row shows its timer";
    table.assume("clients", form.of(CLIENTS), reason);
    let reason = "of each machine: one batch is gathered while another one is executed";
    table.assume("clients of strife-full-batches", form.of(BATCH), reason);
    let reason =
        "publish=never: no feature weighs anything, so that the shortest queue gets a request";
    table.assume("alnico-unweighed", "alnico without weights", reason);
    table.assume("records of YCSB-T", form.of(RECORDS), "the paper has 10 million");
    let reason = "as in the artifact; that a transaction uses one of them, drawn uniformly, and that each \
                  has the skew, is read from static partitioning by table (AMB-39)";
    table.assume("tables of YCSB-T", TABLES, reason);
    let reason = "cores of the server; of them 2 take only Delivery under TPC-C with alnico, 2 schedule in \
                  alnico-cpu-2 and 1 in strife";
    table.assume("workers", WORKERS, reason);
    let reason = "of TPC-C; the specification has 100,000 items and 3,000 customers a district";
    let scale = format!("{} items, {} customers", form.of(ITEMS), form.of(CUSTOMERS));
    table.assume("scale", scale, reason);
    Ok(())
}
