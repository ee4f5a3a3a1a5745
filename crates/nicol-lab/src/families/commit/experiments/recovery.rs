//! What clients see of the loss of nodes: how long a lost shard is away, and throughput around it.
//!
//! No paper measures it. Xenic takes FaRM's recovery over. [Xenic21 4.2.1] (decisions 0102, 0103)

use anyhow::{Context as _, Result};
use nicol_core::faults::{Crash, CrashScope, FaultPlan};
use nicol_core::history::{self, End, Operation};
use nicol_core::ids::Key;
use nicol_core::units::Nanos;
use nicol_core::view::{ShardMap, View};
use nicol_sim::Profile;
use nicol_sim::view_service::LEASE;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::benchmarks::{NODES, REPLICAS, SMALLBANK};
use super::{ON_PATH, VERBS};
use crate::experiments::{Chart, Context, Experiment, Form, Scale, Table, digest, rounded};
use nicol_bench::binding::Binding;
use nicol_bench::config::{BenchConfig, Length};
use nicol_bench::families::commit::find;
use nicol_bench::hardware::Hardware;
use nicol_bench::report::{BenchReport, BenchRun};
use nicol_bench::workloads::WorkloadSpec;

/// The experiments of this file: two looks at the same runs.
pub(super) static ALL: [Experiment; 2] = [
    Experiment {
        id: "recovery",
        family: "commit",
        title: "Loss of nodes: until it is noticed, until lost shards are led again, until all is as before",
        columns: &[
            "system",
            "profile",
            "recovery",
            "event",
            "lease_ms",
            "detected_ms",
            "promoted_ms",
            "first_commit_ms",
            "full_throughput_ms",
            "recovered_transactions",
            "unknown",
            "failed_fraction",
        ],
        chart: Chart::Bars {
            category: &["system", "profile", "recovery"],
            series: &["event"],
            y: "first_commit_ms",
            inside: None,
        },
        systems: &SYSTEMS,
        settings: &[],
        timed: true,
        run: milestones,
    },
    Experiment {
        id: "recovery-throughput",
        family: "commit",
        title: "Loss of a node: throughput by the millisecond",
        columns: &["system", "profile", "recovery", "time_ms", "throughput_per_s"],
        chart: Chart::Lines {
            x: "time_ms",
            y: "throughput_per_s",
            series: &["system", "profile", "recovery"],
            scale: Scale::Linear,
        },
        systems: &SYSTEMS,
        settings: &[],
        timed: true,
        run: throughput,
    },
];

const SYSTEMS: [&str; 2] = ["xenic", "farm"];

/// A system whose nodes are lost: its profile, and what its setting `recovery` is, if it has one.
type Subject = (&'static str, &'static str, &'static str);

/// Of them, as many as its form has.
const SUBJECTS: [&[Subject]; 2] = [
    &[
        ("xenic", ON_PATH, "prepared"),
        ("xenic", ON_PATH, "printed"),
        ("xenic", VERBS, "prepared"),
        ("farm", VERBS, NO_RECOVERY),
    ],
    &[("xenic", ON_PATH, "prepared"), ("farm", VERBS, NO_RECOVERY)],
];

/// In the place of the setting, for a system that has none: a lost shard is refused.
const NO_RECOVERY: &str = "none";

/// A loss: its name, what is lost, and the nodes.
type Event = (&'static str, CrashScope, &'static [u16]);

/// The losses: names, what is lost, and the nodes. Node 2 backs up the shard of node 1, which node
/// 3 leads when both are lost.
const EVENTS: [Event; 4] = [
    ("node", CrashScope::Node, &[1]),
    ("two nodes", CrashScope::Node, &[1, 2]),
    ("host", CrashScope::Host, &[1]),
    ("NIC", CrashScope::Nic, &[1]),
];
/// Events of a form: the first of them.
const EVENTS_OF: [usize; 2] = [4, 2];

/// Closed-loop clients of a node.
pub(super) const CLIENTS: [usize; 2] = [16, 2];
/// When nodes are lost, and when the load ends: some leases later.
pub(super) const LOST_AT: Nanos = Nanos::from_millis(6);
pub(super) const ENDS_AT: [Nanos; 2] = [Nanos::from_millis(40), Nanos::from_millis(30)];
/// Time before the first bin.
const WARM_UP: Nanos = Nanos::from_millis(1);
/// A bin of throughput.
const BIN: Nanos = Nanos::from_millis(1);
/// Bins whose mean is compared with what was before: single ones scatter.
const STEADY: usize = 3;
/// Throughput is full from this share of what it was on, less the share of the lost clients.
pub(super) const FULL: f64 = 0.95;
/// About how many bytes a run needs: records, and operations for the judge.
const MEMORY: u64 = 1 << 30;

/// What a run has shown. Times are milliseconds from the loss.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Point {
    detected: Option<f64>,
    promoted: Option<f64>,
    first_commit: Option<f64>,
    full: Option<f64>,
    recovered: u64,
    unknown: u64,
    /// Transactions that were given up, of all that ended.
    failed_fraction: f64,
    /// Commits by bin, from the start of the run on.
    bins: Vec<u64>,
    binding: Binding,
    violations: Vec<String>,
}

/// A subject and an event.
#[derive(Clone, Copy)]
struct Case {
    subject: Subject,
    event: Event,
}

fn cases(context: &Context<'_>, events: &'static [Event]) -> Vec<Case> {
    let form = context.options.form;
    let asked = context.systems();
    let subjects = form.of(SUBJECTS).iter().filter(|(system, ..)| asked.contains(system));
    let all =
        subjects.flat_map(|&subject| events.iter().map(move |&event| Case { subject, event }));
    // Without engines on its card a system has no NIC to lose.
    all.filter(|case| case.event.1 != CrashScope::Nic || case.subject.0 == "xenic").collect()
}

impl Case {
    fn config(&self, context: &Context<'_>) -> BenchConfig {
        let (system, profile, recovery) = self.subject;
        let (_, scope, nodes) = self.event;
        let form = context.options.form;
        let crash = |&node| Crash { scope, node, at: LOST_AT, restart_after: None };
        let crashes = nodes.iter().map(crash).collect();
        let has_setting = recovery != NO_RECOVERY;
        BenchConfig {
            settings: has_setting.then(|| format!("recovery={recovery}")).into_iter().collect(),
            nodes: NODES,
            replicas: REPLICAS,
            clients: Some(form.of(CLIENTS)),
            length: Some(Length::Time(form.of(ENDS_AT) - WARM_UP)),
            warmup: Some(WARM_UP),
            fault_plan: Some(FaultPlan { crashes, ..FaultPlan::none() }),
            ..BenchConfig::new(system, spec(), self.on(context, profile), context.options.seed)
        }
    }

    /// The profile that it runs on: an on-path SmartNIC may be replaced by the options.
    fn on<'c>(&self, context: &Context<'c>, profile: &'static str) -> &'c str {
        if profile == ON_PATH { super::on_path(context) } else { profile }
    }

    fn run(&self, context: &Context<'_>) -> Result<Point> {
        let config = self.config(context);
        let hardware = digest(&format!("{:?}", Profile::load(&config.on)?));
        let run = format!("recovery {hardware:016x} {config:?}");
        context.point(&run, MEMORY, || {
            let system = find(&config.system)?;
            let view = Hardware::of(&config, system)?.view;
            self.point(&(system.run)(system, &config)?, &view, context.options.form)
        })
    }

    fn point(&self, ran: &BenchRun, view: &View, form: Form) -> Result<Point> {
        let (name, _, nodes) = self.event;
        let what = format!("{}, loss of {name}", self.subject.0);
        let since = |at: u64| (at.saturating_sub(LOST_AT.0)) as f64 / 1e6;
        let seen = &ran.report.milestones;
        let is_lost = |key: Key| nodes.contains(&view.primary(view.shard_of(key)).0);
        let commits = || {
            let ended = ran.history.operations.iter().filter(|one| one.end == End::Ok);
            ended.filter_map(|one| Some((one.responded?, one)))
        };
        // What was under way at a client may end a little after the loss; what it had asked for
        // later has met it.
        let served = |(at, one): (u64, &Operation)| {
            let asked = one.invoked > LOST_AT.0 && keys(one).any(is_lost);
            asked.then_some(at)
        };
        let counters = ran.report.counters.get("without_lost_nodes");
        let decided = counters.and_then(|group| group.get("decided_for_the_lost")).copied();
        let BenchReport { due_committed, refused, failed, .. } = ran.report;
        let bins = bins(commits().map(|(at, _)| at), form.of(ENDS_AT));
        let left = (NODES - nodes.len()) as f64 / NODES as f64;
        let all = |without: &[u16]| nodes.iter().all(|node| without.contains(node));
        Ok(Point {
            detected: seen
                .views
                .iter()
                .find(|view| all(&view.without))
                .map(|view| since(view.at_ns)),
            promoted: seen.inherited.iter().map(|one| since(one.at_ns)).reduce(f64::max),
            first_commit: commits().filter_map(served).min().map(since),
            full: full_from(&bins, left).context("nothing was committed before the loss")?,
            recovered: decided.unwrap_or_default(),
            unknown: ran.report.unknown,
            failed_fraction: failed as f64 / (due_committed + refused + failed).max(1) as f64,
            bins,
            binding: ran.report.binding.clone(),
            violations: ran
                .report
                .check
                .violations
                .iter()
                .map(|one| format!("{what}: {one}"))
                .collect(),
        })
    }

    /// The columns that say which system a row is of.
    fn subject(&self, context: &Context<'_>) -> Vec<Value> {
        let (system, profile, recovery) = self.subject;
        vec![json!(system), json!(self.on(context, profile)), json!(recovery)]
    }
}

pub(super) fn spec() -> WorkloadSpec {
    SMALLBANK.spec(Form::Quick)
}

/// The keys that `operation` reads and writes.
fn keys(operation: &Operation) -> impl Iterator<Item = Key> {
    let txn = operation.txn().into_iter();
    let keys = txn.flat_map(|txn| {
        txn.reads.iter().map(|read| &read.key).chain(txn.writes.iter().map(|write| &write.key))
    });
    keys.filter_map(|key| match key {
        history::Key::Number(number) => Some(Key(*number)),
        history::Key::Bytes(_) => None,
    })
}

/// Commits by bin until `end`.
fn bins(commits: impl Iterator<Item = u64>, end: Nanos) -> Vec<u64> {
    let mut bins = vec![0; (end.0 / BIN.0) as usize];
    for at in commits {
        if let Some(bin) = bins.get_mut((at / BIN.0) as usize) {
            *bin += 1;
        }
    }
    bins
}

/// Milliseconds from the loss to the first bins whose mean is [`FULL`], when the share `left` of
/// the clients is left; `Some(None)` if there are none, and `None` if there was nothing before.
fn full_from(bins: &[u64], left: f64) -> Option<Option<f64>> {
    let (warm, lost) = ((WARM_UP.0 / BIN.0) as usize, (LOST_AT.0 / BIN.0) as usize);
    let mean = |bins: &[u64]| bins.iter().sum::<u64>() as f64 / bins.len() as f64;
    let before = mean(&bins[warm..lost]);
    let is_full = |bins: &[u64]| mean(bins) >= FULL * left * before;
    let found = bins[lost..].windows(STEADY).position(is_full);
    (before > 0.0).then(|| found.map(|bin| bin as f64 * BIN.0 as f64 / 1e6))
}

/// Runs all subjects under each of `events`, and has `rows` make the rows of each.
fn tabulate(
    context: &Context<'_>,
    events: &'static [Event],
    rows: impl Fn(&Case, &Point) -> Vec<Vec<Value>>,
) -> Result<Table> {
    let cases = cases(context, events);
    let points = context.pool.map(&cases, |case| case.run(context))?;
    let mut table = context.table();
    let form = context.options.form;
    assume(&mut table, form);
    for (case, point) in cases.iter().zip(points) {
        table.ran_on(&Profile::load(&case.config(context).on)?.into());
        for measured in rows(case, &point) {
            table.push_bound([case.subject(context), measured].concat(), &point.binding);
        }
        table.judge(point.violations);
    }
    Ok(table)
}

fn assume(table: &mut Table, form: Form) {
    let clients = format!("closed loop, {} clients per node", form.of(CLIENTS));
    table.assume("load", clients, "no paper gives one; a client waits for what it asked");
    let ms = |at: Nanos| format!("{} ms", at.0 / 1_000_000);
    table.assume("nodes are lost", ms(LOST_AT), "after the start; the load is steady by then");
    let full = format!("{FULL} of what it was, less the share of lost clients");
    table.assume("full throughput", full, "the mean of three milliseconds");
    SMALLBANK.assume(table, Form::Quick);
}

fn milestones(context: &Context<'_>) -> Result<Table> {
    let ms = |at: Option<f64>| at.map_or(Value::Null, |at| rounded(at, 3));
    let events = &EVENTS[..context.options.form.of(EVENTS_OF)];
    tabulate(context, events, |case, point| {
        let row = vec![
            json!(case.event.0),
            rounded(LEASE.0 as f64 / 1e6, 3),
            ms(point.detected),
            ms(point.promoted),
            ms(point.first_commit),
            ms(point.full),
            json!(point.recovered),
            json!(point.unknown),
            rounded(point.failed_fraction, 4),
        ];
        vec![row]
    })
}

fn throughput(context: &Context<'_>) -> Result<Table> {
    tabulate(context, &EVENTS[..1], |_, point| {
        let rows = point.bins.iter().enumerate().map(|(bin, commits)| {
            let per_s = *commits as f64 * 1e9 / BIN.0 as f64;
            vec![rounded(bin as f64 * BIN.0 as f64 / 1e6, 3), rounded(per_s, 0)]
        });
        rows.collect()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_throughput_is_that_of_the_clients_that_are_left() {
        let mut bins = vec![50, 100, 100, 100, 100, 100, 0, 0, 70, 90, 100, 100];
        assert_eq!(full_from(&bins, 0.9), Some(Some(2.0)), "86.7 of 85.5 from the third bin on");
        assert_eq!(full_from(&bins, 1.0), Some(Some(3.0)), "96.7 of 95");
        bins.truncate(10);
        assert_eq!(full_from(&bins, 1.0), Some(None));
        assert_eq!(full_from(&[0; 12], 1.0), None);
    }

    #[test]
    fn commits_are_counted_in_the_millisecond_in_which_they_ended() {
        let commits = [0, 999_999, 1_000_000, 7_000_000];
        assert_eq!(bins(commits.into_iter(), Nanos::from_millis(3)), [2, 1, 0]);
    }
}
