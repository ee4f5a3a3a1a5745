//! Seed sweeps: the same run under many seeds and fault plans, each judged.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{self, AssertUnwindSafe};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use anyhow::Result;
use nicol_core::faults::FaultPlan;
use nicol_core::trace::{Limits, Sink};
use nicol_core::units::Nanos;
use nicol_rt::{LiveError, panic_text};
use serde::Serialize;

use crate::{replay, shrink};
use nicol_bench::befell::ByKind;
use nicol_bench::bench::{self, BenchConfig, BenchRun, Length};
use nicol_bench::report::BenchReport;
use nicol_bench::systems;
use nicol_bench::toll::Toll;
use nicol_bench::trace::{MessageRow, messages_about};

/// Events of a failed run that are kept to list the messages about a key.
const TRACED: u64 = 4_000_000;

/// The findings of a sweep.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SweepReport {
    pub runs: u64,
    pub planned_runs: u64,
    /// Whether it was stopped before all runs were made.
    pub interrupted: bool,
    /// Warnings that a reader needs before the verdict: settings under which a system is not
    /// correct.
    pub warnings: BTreeSet<String>,
    pub committed: u64,
    pub aborted: u64,
    /// Transactions of unknown outcome.
    pub unknown: u64,
    /// Transactions that the application refused.
    pub refused: u64,
    /// Operations that the checkers of their families' promises saw.
    pub checked_transactions: u64,
    pub abort_reasons: BTreeMap<&'static str, u64>,
    /// Committed transactions by the way that they took.
    pub paths: BTreeMap<&'static str, u64>,
    /// Counters of the systems for a sweep, by group and name.
    #[serde(flatten)]
    pub counters: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// The number of things that leaked, by name, such as `leaked_locks`.
    #[serde(flatten)]
    pub leaked: BTreeMap<String, u64>,
    /// Resources that only recovery may release, by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub awaiting_recovery: BTreeMap<&'static str, u64>,
    /// Acknowledged writes that crashes of everything took, permitted or not, of systems whose
    /// promise speaks of them.
    pub acknowledged_lost: u64,
    /// Runs whose log devices were read back after a crash of everything.
    pub read_back: u64,
    /// Runs by kind of fault: those whose plan held one, in which one began under load, and in
    /// which one changed something.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub befell: ByKind,
    /// Of a hundred planned operations those that were done: in the run with the fewest, in one of
    /// twenty at most, and in half of the runs at most. Of runs that are left a replica of every
    /// shard.
    pub done_percent: Shares,
    /// Runs whose faults take more nodes than shards have backups, such as all: nobody can do their
    /// load.
    pub beyond_backups: u64,
    /// Runs that must do their load: no node is lost, or the others take over what it led.
    pub must_run: u64,
    /// Invalid ones among these, in percent: more than 5 fail the sweep.
    pub must_run_invalid_percent: f64,
    /// Runs that did less than half of what their plan schedules.
    pub invalid_runs: u64,
    /// These, by name, and why.
    pub invalid: Vec<Invalid>,
    /// Invalid ones among those that must do their load.
    #[serde(skip)]
    pub must_run_invalid: u64,
    /// The part of its plan that each run did, in percent.
    #[serde(skip)]
    pub shares: Vec<u8>,
    /// The findings by system, workload and world.
    pub parts: Vec<Part>,
    /// Runs with a violation.
    pub failures: Vec<Failure>,
    /// The ways for an attempt to end that full coverage demands.
    #[serde(skip)]
    pub coverage: Vec<&'static str>,
}

/// The shares of planned operations that runs have done, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Shares {
    pub least: u8,
    pub twentieth: u8,
    pub median: u8,
}

impl Shares {
    /// Those of runs that did so many percent each.
    fn of(shares: &mut [u8]) -> Self {
        shares.sort_unstable();
        let at = |place: usize| shares.get(place).copied().unwrap_or(100);
        Self { least: at(0), twentieth: at(shares.len() / 20), median: at(shares.len() / 2) }
    }
}

/// A run that shows nothing.
#[derive(Clone, Debug, Serialize)]
pub struct Invalid {
    pub workload: String,
    pub system: String,
    /// `threads`, or the profile.
    pub world: String,
    pub seed: u64,
    /// How much of it was done, in words.
    pub why: String,
}

/// Invalid runs among a hundred that must do their load, from which on a sweep fails.
const INVALID_PERCENT_MAX: u64 = 5;

/// The runs of one system under one workload in one world.
#[derive(Clone, Debug, Serialize)]
pub struct Part {
    pub workload: String,
    pub system: String,
    /// `threads`, or the profile.
    pub world: String,
    pub runs: u64,
    pub committed: u64,
    /// Transactions of unknown outcome.
    pub unknown: u64,
    /// Runs that did less than half of what their plan schedules.
    pub invalid: u64,
    /// Runs with a violation.
    pub failed: u64,
}

/// A run that a checker rejected.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    pub workload: String,
    pub system: String,
    /// `threads`, or the profile.
    pub world: String,
    pub seed: u64,
    pub violations: Vec<String>,
    /// The first key that a violation names.
    pub key: Option<u64>,
    /// The command that repeats it.
    pub replay: String,
    #[serde(skip)]
    pub config: BenchConfig,
}

impl SweepReport {
    fn add(&mut self, config: &BenchConfig, report: &BenchReport) {
        self.runs += 1;
        self.warnings.extend(report.warnings.iter().cloned());
        self.committed += report.committed;
        self.aborted += report.aborted;
        self.unknown += report.unknown;
        self.refused += report.refused;
        self.checked_transactions += report.check.checked;
        self.read_back += u64::from(report.check.read_back.is_some());
        self.acknowledged_lost += report.check.acknowledged_lost.unwrap_or(0);
        for (name, count) in &report.check.leaked {
            *self.leaked.entry(format!("leaked_{name}")).or_default() += count;
        }
        for (&name, &count) in report.check.awaiting_recovery.iter().filter(|(_, n)| **n > 0) {
            *self.awaiting_recovery.entry(name).or_default() += count;
        }
        for (&reason, &count) in &report.abort_reasons {
            *self.abort_reasons.entry(reason).or_default() += count;
        }
        for (&path, &count) in &report.paths {
            *self.paths.entry(path).or_default() += count;
        }
        let swept = systems::find(&config.system).map_or(&[][..], |system| system.swept_counters);
        for (&group, counted) in report.counters.iter().filter(|(group, _)| swept.contains(group)) {
            let sums = self.counters.entry(group).or_default();
            for (&name, &count) in counted {
                *sums.entry(name).or_default() += count;
            }
        }
        let world = report.profile.as_deref().unwrap_or(report.world);
        let part = self.part(&report.workload, &report.system, world);
        part.runs += 1;
        part.committed += report.committed;
        part.unknown += report.unknown;
        let counts = report.toll != Toll::Beyond;
        part.invalid += u64::from(counts && report.invalid().is_some());
        self.add_faults(config, report, world);
        if !report.check.held() {
            let violations = report.check.violations.clone();
            self.fail(config, world, violations);
        }
    }

    /// The faults of a run, and the part of its plan that it did.
    fn add_faults(&mut self, config: &BenchConfig, report: &BenchReport, world: &str) {
        for (&kind, one) in &report.befell {
            let sum = self.befell.entry(kind).or_default();
            sum.drawn += u64::from(one.drawn > 0);
            sum.begun += u64::from(one.begun > 0);
            sum.felt += u64::from(one.felt > 0);
        }
        if report.toll == Toll::Beyond {
            self.beyond_backups += 1;
            return;
        }
        if let Some(planned) = report.planned.filter(|planned| *planned > 0) {
            self.shares.push((report.done.min(planned) * 100 / planned) as u8);
        }
        let must = report.toll.leaves_load();
        self.must_run += u64::from(must);
        if let Some(why) = report.invalid() {
            self.invalid_runs += 1;
            self.must_run_invalid += u64::from(must);
            self.invalid.push(Invalid {
                workload: report.workload.clone(),
                system: report.system.clone(),
                world: world.to_owned(),
                seed: config.seed,
                why,
            });
        }
    }

    /// Why the sweep shows too little, in words: more than one in twenty of the runs that must do
    /// their load did less than half of it.
    pub fn shows_too_little(&self) -> Option<String> {
        let Self { must_run, must_run_invalid, .. } = *self;
        (must_run_invalid * 100 > must_run * INVALID_PERCENT_MAX).then(|| {
            format!(
                "{must_run_invalid} of {must_run} runs did less than half of their plan, although no \
                 shard was lost: they show nothing"
            )
        })
    }

    /// A run that a broken assertion ended.
    fn add_panic(&mut self, config: &BenchConfig, cause: String) {
        self.runs += 1;
        let (workload, system, world) = (&config.workload.name, &config.system, &config.on);
        self.part(workload, system, world).runs += 1;
        self.fail(config, world, vec![cause]);
    }

    fn fail(&mut self, config: &BenchConfig, world: &str, violations: Vec<String>) {
        let (workload, system) = (config.workload.name.clone(), config.system.clone());
        self.part(&workload, &system, world).failed += 1;
        self.failures.push(Failure {
            workload,
            system,
            world: world.to_owned(),
            seed: config.seed,
            key: violations.iter().find_map(|violation| key_in(violation)),
            violations,
            replay: replay::command(config, None),
            config: config.clone(),
        });
    }

    fn part(&mut self, workload: &str, system: &str, world: &str) -> &mut Part {
        let same =
            |part: &Part| part.workload == workload && part.system == system && part.world == world;
        match self.parts.iter().position(same) {
            Some(index) => &mut self.parts[index],
            None => self.parts.push_mut(Part {
                workload: workload.to_owned(),
                system: system.to_owned(),
                world: world.to_owned(),
                runs: 0,
                committed: 0,
                unknown: 0,
                invalid: 0,
                failed: 0,
            }),
        }
    }

    /// Ways for an attempt to end, of the systems' families, and outcomes that never happened.
    pub fn missing(&self) -> Vec<&'static str> {
        let never = |reason: &&str| self.abort_reasons.get(*reason).is_none_or(|&count| count == 0);
        let mut missing: Vec<_> = self.coverage.iter().copied().filter(never).collect();
        let outcomes = [("committed", self.committed), ("unknown", self.unknown)];
        missing.extend(outcomes.iter().filter(|(_, count)| *count == 0).map(|(name, _)| *name));
        missing
    }
}

/// The run of `failure` with the smallest plan of faults found under which it still fails, and then
/// with the fewest operations; `None` if it does not fail again. Only simulated runs can be
/// repeated. Once `stop` is raised no run begins: it is the smallest found until then.
///
/// Cost: up to 400 runs for the plan, and some more.
pub fn shrunk(failure: &Failure, stop: &AtomicBool) -> Option<(FaultPlan, BenchConfig)> {
    let fails = |config: &BenchConfig| {
        if stop.load(Ordering::Relaxed) {
            return false;
        }
        match attempt(config) {
            Ok(Ran::Judged(ran)) => !ran.report.check.held(),
            Ok(Ran::Panicked(_)) => true,
            Err(_) => false,
        }
    };
    let under = |plan: &FaultPlan, length: Option<Length>| BenchConfig {
        fault_plan: Some(plan.clone()),
        length,
        ..failure.config.clone()
    };
    let returns = systems::find(&failure.config.system).is_ok_and(|system| system.returns);
    let (plan, length) = (failure.config.drawn_faults(returns), failure.config.length);
    if failure.config.is_live() || !fails(&under(&plan, length)) {
        return None;
    }
    let plan = shrink::shrink(plan, |plan| fails(&under(plan, length)));
    let length = length.map(|length| match length {
        Length::Transactions(count) => {
            let still = |count| fails(&under(&plan, Some(Length::Transactions(count))));
            Length::Transactions(shrink::fewest(count, still))
        }
        length => length,
    });
    let config = under(&plan, length);
    Some((plan, config))
}

/// The messages about the key that a violation of `failure` names, in the order of sending: the run
/// is repeated with a trace. `None` if no violation names one, or if the run cannot be repeated: on
/// threads, or when it ends in a panic.
///
/// # Errors
/// If the configuration is impossible now.
pub fn messages(failure: &Failure) -> Result<Option<(u64, Vec<MessageRow>)>> {
    let Some(key) = failure.key.filter(|_| !failure.config.is_live()) else {
        return Ok(None);
    };
    let sink = Sink::new(Limits { events: TRACED, window: Nanos::ZERO..Nanos::MAX });
    let config = BenchConfig { trace: Some(sink.clone()), ..failure.config.clone() };
    match attempt(&config)? {
        Ran::Judged(_) => Ok(Some((key, messages_about(&sink.take(), key)?))),
        Ran::Panicked(_) => Ok(None),
    }
}

/// The key in a violation: checkers print keys, and nothing else, in hexadecimal.
fn key_in(violation: &str) -> Option<u64> {
    let (_, rest) = violation.split_once("0x")?;
    let end = rest.find(|digit: char| !digit.is_ascii_hexdigit()).unwrap_or(rest.len());
    u64::from_str_radix(&rest[..end], 16).ok()
}

fn crashes(plan: &FaultPlan) -> bool {
    !plan.crashes.is_empty()
}

/// The end of a run of a sweep.
enum Ran {
    Judged(Box<BenchRun>),
    Panicked(String),
}

/// Runs `config`. A broken assertion is what a sweep looks for: it must not end the other runs, nor
/// hide its seed.
fn attempt(config: &BenchConfig) -> Result<Ran> {
    match panic::catch_unwind(AssertUnwindSafe(|| bench::run(config))) {
        Ok(Ok(ran)) => Ok(Ran::Judged(Box::new(ran))),
        Ok(Err(error)) => match error.downcast::<LiveError>() {
            Ok(panicked @ LiveError::Panicked(_)) => Ok(Ran::Panicked(panicked.to_string())),
            Ok(environment) => Err(environment.into()),
            Err(error) => Err(error),
        },
        Err(cause) => Ok(Ran::Panicked(format!("a run panicked: {}", panic_text(&*cause)))),
    }
}

/// The result of a sweep.
#[must_use]
pub struct Swept {
    /// The runs that were made.
    pub report: SweepReport,
    /// Why no further run was made: a configuration is impossible, or the machine refuses a thread.
    pub error: Option<anyhow::Error>,
}

/// Runs `configs`, `jobs` at a time, calling `each` with the number of finished runs, and `failed`
/// with those that a checker rejected, one at a time. Once `stop` is raised, or a run could not be
/// made, no run begins, and the report is of those that were under way and before.
pub fn run(
    configs: &[BenchConfig],
    jobs: usize,
    stop: &AtomicBool,
    each: &(dyn Fn(u64) + Sync),
    failed: &(dyn Fn(&BenchRun) + Sync),
) -> Swept {
    let total = Mutex::new((SweepReport::default(), None));
    let next = AtomicU64::new(0);
    let done = AtomicU64::new(0);
    let take = || {
        let next = next.fetch_add(1, Ordering::Relaxed) as usize;
        configs.get(next).filter(|_| !stop.load(Ordering::Relaxed))
    };
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, configs.len().max(1)) {
            scope.spawn(|| {
                while let Some(config) = take() {
                    let ran = attempt(config);
                    let mut total = total.lock().unwrap_or_else(|poison| poison.into_inner());
                    match ran {
                        Ok(Ran::Judged(ran)) => {
                            total.0.add(config, &ran.report);
                            if !ran.report.check.held() {
                                failed(&ran);
                            }
                        }
                        Ok(Ran::Panicked(cause)) => total.0.add_panic(config, cause),
                        Err(error) => {
                            total.1.get_or_insert(error);
                            next.store(configs.len() as u64, Ordering::Relaxed);
                        }
                    }
                    each(done.fetch_add(1, Ordering::Relaxed) + 1);
                }
            });
        }
    });
    let (mut report, error) = total.into_inner().unwrap_or_else(|poison| poison.into_inner());
    report.planned_runs = configs.len() as u64;
    for config in configs {
        // A system that there is not is a run that could not be made.
        let Ok(system) = systems::find(&config.system) else { continue };
        let crashes = config.faults.crashes || config.fault_plan.as_ref().is_some_and(crashes);
        let of_crashes = if crashes { system.coverage_of_crashes } else { &[] };
        for way in system.coverage.iter().chain(of_crashes) {
            if !report.coverage.contains(way) {
                report.coverage.push(way);
            }
        }
    }
    report.done_percent = Shares::of(&mut report.shares);
    let per_thousand = report.must_run_invalid * 1_000 / report.must_run.max(1);
    report.must_run_invalid_percent = per_thousand as f64 / 10.0;
    report.interrupted = report.runs < report.planned_runs;
    let order = |a: &Failure| (a.workload.clone(), a.system.clone(), a.world.clone(), a.seed);
    report.failures.sort_by_key(order);
    report.invalid.sort_by_key(|a| (a.workload.clone(), a.system.clone(), a.world.clone(), a.seed));
    report.parts.sort_by_key(|a| (a.workload.clone(), a.system.clone(), a.world.clone()));
    Swept { report, error }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicol_bench::workloads::WorkloadSpec;

    fn config(seed: u64) -> BenchConfig {
        let mut workload = WorkloadSpec { name: "churn".to_owned(), ..WorkloadSpec::default() };
        workload.shrink();
        let length = Some(bench::Length::Transactions(30));
        BenchConfig { length, ..BenchConfig::new("xenic", workload, "liquidio3", seed) }
    }

    fn swept(
        configs: &[BenchConfig],
        jobs: usize,
        stop: &AtomicBool,
        each: &(dyn Fn(u64) + Sync),
    ) -> SweepReport {
        let Swept { report, error } = run(configs, jobs, stop, each, &|_| ());
        assert!(error.is_none(), "{error:?}");
        report
    }

    /// Runs of `count` seeds of what is broken.
    fn broken(count: u64) -> Vec<BenchConfig> {
        let broken = |seed| BenchConfig {
            settings: vec!["faithful=paper".to_owned()],
            length: Some(bench::Length::Transactions(300)),
            ..config(seed)
        };
        (0..count).map(broken).collect()
    }

    #[test]
    fn a_run_that_cannot_be_made_does_not_hide_what_was_found_before() {
        let impossible = BenchConfig { nodes: 1, replicas: 9, ..config(0) };
        let configs = [broken(20), vec![impossible], broken(2)].concat();
        let Swept { report, error } = run(&configs, 1, &AtomicBool::new(false), &|_| (), &|_| ());
        assert!(error.is_some());
        assert!(!report.failures.is_empty());
        assert_eq!((report.runs, report.planned_runs, report.interrupted), (20, 23, true));
    }

    #[test]
    fn a_plan_is_shrunk_no_further_once_that_is_to_stop() {
        let report = swept(&broken(20), 1, &AtomicBool::new(false), &|_| ());
        let failure = &report.failures[0];
        assert!(shrunk(failure, &AtomicBool::new(false)).is_some());
        assert!(shrunk(failure, &AtomicBool::new(true)).is_none());
    }

    #[test]
    fn a_run_that_panicked_is_a_failure_of_its_seed_among_the_others() {
        let mut report = SweepReport::default();
        let first = config(1);
        report.add(&first, &bench::run(&first).unwrap().report);
        report.add_panic(&config(2), "an engine panicked: two locks".to_owned());
        assert_eq!((report.runs, report.failures.len(), report.parts.len()), (2, 1, 1));
        assert_eq!((report.parts[0].runs, report.parts[0].failed), (2, 1));
        assert_eq!(report.failures[0].seed, 2);
        assert!(report.failures[0].violations[0].contains("two locks"));
        assert!(report.failures[0].replay.ends_with("--transactions 30 --seed 2"));
    }

    #[test]
    fn runs_that_did_nothing_are_counted_apart_and_fail_a_sweep_that_lost_no_shard() {
        let whole = bench::run(&config(1)).unwrap().report;
        let planned = whole.planned.unwrap();
        assert!(planned >= 30 && planned.is_multiple_of(2) && whole.invalid().is_none());
        let mut sweep = SweepReport::default();
        let mut add = |toll, done| {
            sweep.add(&config(1), &BenchReport { done, toll, ..whole.clone() });
            sweep.clone()
        };
        add(Toll::Unserved, 0);
        add(Toll::Nothing, planned / 2);
        let held = add(Toll::Beyond, 0);
        assert_eq!((held.runs, held.invalid_runs, held.parts[0].invalid), (3, 1, 1));
        assert_eq!((held.must_run, held.beyond_backups), (1, 1));
        assert_eq!(held.shows_too_little(), None, "nobody served a shard");
        let done = planned / 2 - 1;
        let mut failed = add(Toll::Recovered, done);
        let why = failed.shows_too_little().unwrap();
        assert!(why.starts_with("1 of 2 runs"), "{why}");
        assert_eq!(failed.invalid[1].why, format!("{done} of {planned} operations were done"));
        let shares = Shares::of(&mut failed.shares);
        assert_eq!((shares.least, shares.median), (0, 49), "not of what nobody could do");
    }

    #[test]
    fn the_key_of_a_violation_is_found() {
        let line = "serializability: both installed version 2 of key 0x10000000000001d";
        assert_eq!(key_in(line), Some(0x0100_0000_0000_001d));
        assert_eq!(key_in("shard 1 differs in Key(0xff, table 0): none on node 1"), Some(0xff));
        assert_eq!(key_in("2 locks leaked"), None);
    }

    #[test]
    fn a_failed_run_lists_the_messages_about_its_key() {
        let configs = broken(40);
        let stop = AtomicBool::new(false);
        let report = swept(&configs, 2, &stop, &|_| ());
        assert!(report.warnings.iter().any(|warning| warning.starts_with("faithful=paper")));
        let failure = report.failures.iter().find(|failure| failure.key.is_some());
        let (key, rows) = messages(failure.expect("it is broken")).unwrap().unwrap();
        assert_eq!(Some(key), failure.and_then(|failure| failure.key));
        assert!(!rows.is_empty());
    }

    #[test]
    fn no_run_begins_once_it_is_to_stop() {
        let configs: Vec<BenchConfig> = (0..20).map(config).collect();
        let stop = AtomicBool::new(false);
        let each = |done| stop.store(done == 3, Ordering::Relaxed);
        let report = swept(&configs, 1, &stop, &each);
        assert_eq!((report.runs, report.planned_runs, report.interrupted), (3, 20, true));
        let whole = swept(&configs, 2, &AtomicBool::new(false), &|_| ());
        assert_eq!((whole.runs, whole.planned_runs, whole.interrupted), (20, 20, false));
    }
}
