//! The museum of broken protocols: each known fault planted in each system, and the first run in
//! which a checker finds it. It shows up a checker that passes everything.

use std::cell::Cell;
use std::ops::Range;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, Once};
use std::thread;

use anyhow::{Result, anyhow};
use nicol_rt::panic_text;
use serde::Serialize;

use crate::replay;
use nicol_bench::bench::{self, BenchConfig};
use nicol_bench::systems::System;

/// A system with one planted fault, and the check that found it.
#[derive(Clone, Debug, Serialize)]
pub struct Exhibit {
    pub system: &'static str,
    /// The name of the fault for `--set sabotage=NAME`.
    pub sabotage: &'static str,
    /// Runs made of the broken system.
    pub runs: u64,
    /// The first run in which it was noticed.
    #[serde(flatten)]
    pub caught: Option<Caught>,
    /// Why it cannot be noticed in this system.
    pub harmless: Option<&'static str>,
    /// The checkers' verdict on the same run of the system as it should be: nothing, if they are
    /// right.
    pub honest_violations: Vec<String>,
}

/// A run in which a broken protocol was noticed.
#[derive(Clone, Debug, Serialize)]
pub struct Caught {
    pub workload: String,
    pub world: String,
    pub seed: u64,
    /// `promise`: the history is wrong; `audit`: the final state is; `assertion`: the run stopped.
    pub by: &'static str,
    /// The first thing that is wrong.
    pub says: String,
    /// The command that repeats the run.
    pub replay: String,
}

impl Exhibit {
    /// Whether it is as it must be: the fault is noticed, unless it is harmless, and the honest
    /// system is not blamed.
    pub fn held(&self) -> bool {
        self.caught.is_some() != self.harmless.is_some() && self.honest_violations.is_empty()
    }
}

/// Breaks each of `systems` in every way that it knows, on the seeds `seeds` of its family's
/// trials, `jobs` at a time, until it is noticed. Once `stop` is raised no further exhibit is
/// begun, and those that are missing are left out.
///
/// Cost: mostly a few runs an exhibit. A harmless fault is tried on a tenth of the seeds: that its
/// excuse holds shows in any run.
///
/// # Errors
/// If a trial cannot be run.
pub fn visit(
    systems: &[&'static System],
    seeds: &Range<u64>,
    jobs: usize,
    stop: &AtomicBool,
    each: &(dyn Fn() + Sync),
) -> Result<Vec<Exhibit>> {
    let broken: Vec<_> = systems
        .iter()
        .flat_map(|&system| (system.sabotages)().into_iter().map(move |way| (system, way)))
        .collect();
    let found = Mutex::new(Vec::new());
    let next = AtomicUsize::new(0);
    let take = || {
        let next = next.fetch_add(1, Ordering::Relaxed);
        broken.get(next).filter(|_| !stop.load(Ordering::Relaxed)).map(|pair| (next, pair))
    };
    thread::scope(|scope| {
        for _ in 0..jobs.clamp(1, broken.len().max(1)) {
            scope.spawn(|| {
                while let Some((place, (system, sabotage))) = take() {
                    let exhibit = exhibit(system, sabotage, seeds, stop);
                    let mut found = found.lock().unwrap_or_else(|poison| poison.into_inner());
                    found.push((place, exhibit));
                    each();
                }
            });
        }
    });
    let mut found = found.into_inner().unwrap_or_else(|poison| poison.into_inner());
    found.sort_by_key(|(place, _)| *place);
    let exhibits: Result<Vec<_>> = found.into_iter().map(|(_, exhibit)| exhibit).collect();
    Ok(exhibits?.into_iter().flatten().collect())
}

/// Exhibits of all of `systems`.
pub fn count(systems: &[&'static System]) -> usize {
    systems.iter().map(|system| (system.sabotages)().len()).sum()
}

/// Breaks `system` until it is noticed; `None` if it was stopped before.
fn exhibit(
    system: &'static System,
    sabotage: &'static str,
    seeds: &Range<u64>,
    stop: &AtomicBool,
) -> Result<Option<Exhibit>> {
    let harmless = system.harmless.iter().find(|(name, _)| *name == sabotage);
    let mut exhibit = Exhibit {
        system: system.name,
        sabotage,
        runs: 0,
        caught: None,
        harmless: harmless.map(|(_, why)| *why),
        honest_violations: Vec::new(),
    };
    let tenth = (seeds.end.saturating_sub(seeds.start)).div_ceil(10);
    let last = if harmless.is_some() { seeds.start + tenth } else { seeds.end };
    for seed in seeds.start..last {
        for trial in (system.trials)(system, sabotage, seed) {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            exhibit.runs += 1;
            let mut broken = trial.clone();
            broken.settings.push(format!("sabotage={sabotage}"));
            let Some((by, says)) = noticed(&broken)? else { continue };
            exhibit.honest_violations =
                noticed(&trial)?.into_iter().map(|(_, says)| says).collect();
            exhibit.caught = Some(Caught {
                workload: trial.workload.name.clone(),
                world: trial.on.clone(),
                seed,
                by,
                says,
                replay: replay::command(&broken, None),
            });
            return Ok(Some(exhibit));
        }
    }
    Ok(Some(exhibit))
}

thread_local! {
    /// Whether this thread is within a run in which a failed assertion is a finding.
    static MAY_PANIC: Cell<bool> = const { Cell::new(false) };
}

/// Keeps panics out of the terminal that are answers; all others are printed as before.
fn expect_panics() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        let print = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            if !MAY_PANIC.get() {
                print(panicked);
            }
        }));
    });
}

/// The check that finds a run wrong, and the first thing that it reports.
fn noticed(config: &BenchConfig) -> Result<Option<(&'static str, String)>> {
    expect_panics();
    MAY_PANIC.set(true);
    let ran = panic::catch_unwind(AssertUnwindSafe(|| bench::run(config)));
    MAY_PANIC.set(false);
    let ran = match ran {
        Ok(ran) => ran.map_err(|error| anyhow!("a trial of {}: {error:#}", config.system))?,
        Err(cause) => return Ok(Some(("assertion", panic_text(&*cause)))),
    };
    let check = ran.report.check;
    if check.held() {
        return Ok(None);
    }
    let by = if check.held_promise == Some(false) { "promise" } else { "audit" };
    let first = check.violations.first().and_then(|violation| violation.lines().next());
    Ok(Some((by, first.unwrap_or("a count is not zero").to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nicol_bench::systems;

    #[test]
    fn what_is_not_noticed_and_not_excused_does_not_hold() {
        let farm = systems::find("farm").unwrap();
        let stop = AtomicBool::new(false);
        let noticed = exhibit(farm, "no_locks", &(0..200), &stop).unwrap().unwrap();
        assert!(noticed.held() && noticed.caught.is_some(), "{noticed:?}");
        // No seed, no run: nobody has noticed.
        let unseen = exhibit(farm, "no_locks", &(0..0), &stop).unwrap().unwrap();
        assert!(!unseen.held() && unseen.runs == 0, "{unseen:?}");
        let excused = Exhibit { harmless: Some("for a reason"), ..unseen };
        assert!(excused.held());
        assert!(!Exhibit { caught: noticed.caught.clone(), ..excused }.held(), "wrongly excused");
        let blamed = Exhibit { honest_violations: vec!["wrong".to_owned()], ..noticed };
        assert!(!blamed.held(), "the honest system is blamed as well");
    }

    #[test]
    fn every_system_is_broken_in_six_ways_that_show_but_for_those_of_one_path() {
        // What tests add shows the harness, not a protocol.
        let ours = systems::all().filter(|system| system.family != "test");
        for system in ours.filter(|system| !(system.sabotages)().is_empty()) {
            let ways = (system.sabotages)().len() - system.harmless.len();
            assert!(ways >= system.least_faults, "{}: {ways}", system.name);
        }
    }

    #[test]
    fn a_visit_that_is_stopped_leaves_out_what_it_has_not_seen() {
        let systems: Vec<_> = systems::all().collect();
        let each = || ();
        let seen = visit(&systems, &(0..1), 2, &AtomicBool::new(true), &each).unwrap();
        assert!(seen.is_empty() && count(&systems) > 0);
    }
}
