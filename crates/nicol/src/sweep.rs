//! `nicol sweep`.

use std::collections::BTreeSet;
use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use indicatif::{ProgressBar, ProgressStyle};
use nicol_bench::bench::{BenchConfig, BenchRun, THREADS};
use nicol_bench::report::BenchReport;
use nicol_bench::systems::{self, System};
use nicol_bench::workloads::{WORKLOADS, WorkloadSpec};
use nicol_lab::experiments::{shown, write_atomically};
use nicol_lab::replay::command;
use nicol_lab::sweep::{self, Failure, Invalid, SweepReport, Swept};
use serde_json::json;

use crate::bench::{base, help_settings, spec, transactions, write_history};
use crate::cli::{Format, SweepArgs, WorkloadArgs};
use crate::{End, Usage, blame, environment_or_usage, flags, interrupt, output};

/// Timeout of a phase in a sweep: shorter than the partitions that a fault plan draws, so that
/// their consequences are seen.
const SWEEP_TIMEOUT: &str = "timeout_us=500";
/// Threads that a machine grants.
const JOBS_MAX: usize = 1_024;
/// Runs of a sweep, whose configurations are in memory beside each other.
const RUNS_MAX: u64 = 1_000_000;
/// Violations of one run that are printed; the others are counted.
const VIOLATIONS_SHOWN: usize = 5;
/// Runs that show nothing and are named; the others are counted.
const INVALID_SHOWN: usize = 3;
/// Messages about a key that are printed: the last ones.
const MESSAGES_SHOWN: usize = 40;
/// The notice at an interrupt.
const ENDING: &str = "interrupted: the runs under way end first; a second interrupt does not wait";

/// Runs a seed sweep. Interrupted, it reports the runs that were made.
pub fn run(args: &SweepArgs) -> Result<End> {
    if args.system.settings.iter().any(|setting| setting == "help") {
        return help_settings(&args.system.system, args.format);
    }
    let configs = configs(args).map_err(environment_or_usage)?;
    if configs.is_empty() {
        // A check of nothing would hold.
        let (system, workload) = (&args.system.system, &args.workload.workload);
        return Err(Usage(anyhow!(
            "nothing to run: no system of --system {system} runs {workload} there with these flags; \
             see nicol systems"
        ))
        .into());
    }
    let jobs = jobs(args)?;
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new(configs.len() as u64).with_style(ProgressStyle::default_bar())
    } else {
        ProgressBar::hidden()
    };
    for (flag, folder) in [("--histories", &args.histories), ("--shrink", &args.shrink)] {
        if let Some(folder) = folder {
            fs::create_dir_all(folder).with_context(|| format!("{flag} {}", folder.display()))?;
        }
    }
    let asked = interrupt::flag()?;
    let told = Once::new();
    let each = |done| {
        bar.set_position(done);
        if asked.flag.load(Ordering::Relaxed) && done < configs.len() as u64 {
            told.call_once(|| bar.suspend(|| output::tell(ENDING)));
        }
    };
    let failed = |ran: &BenchRun| keep(args.histories.as_deref(), ran);
    let Swept { mut report, error } = sweep::run(&configs, jobs, &asked.flag, &each, &failed);
    bar.finish_and_clear();
    match error.map(blame) {
        // What was found before is told, and is how the sweep ended.
        Some(error) if !report.failures.is_empty() => {
            output::tell(&format!("error: {}", flags::told(&error)))
        }
        Some(error) => return Err(error),
        None => {}
    }
    let begun_to_shrink = args.shrink.is_some() && !asked.flag.load(Ordering::Relaxed);
    for failure in &mut report.failures {
        failure.replay = replay(args, failure, &asked.flag);
    }
    if begun_to_shrink && asked.flag.load(Ordering::Relaxed) {
        output::tell("interrupted: plans of faults are shrunk no further");
    }
    let missing = report.missing();
    print(args, &report, &missing)?;
    report.warnings.iter().for_each(|warning| output::tell(&format!("warning: {warning}")));
    report.failures.iter().for_each(explain);
    tell_invalid(&report.invalid);
    let shows_too_little = report.shows_too_little();
    if let Some(why) = &shows_too_little {
        output::tell(&format!("failed: {why}"));
    }
    if args.format == Format::Table {
        print_messages(&report)?;
    }
    let unseen = args.require_coverage && !missing.is_empty() && !report.interrupted;
    if unseen {
        output::tell(&format!("failed: never seen: {}", missing.join(", ")));
    }
    Ok(verdict(&report, unseen || shows_too_little.is_some(), asked.exit_code()))
}

/// How many runs are under way at once.
fn jobs(args: &SweepArgs) -> Result<usize> {
    match args.jobs {
        Some(jobs) if (1..=JOBS_MAX).contains(&jobs) => Ok(jobs),
        Some(jobs) => Err(Usage(anyhow!("--jobs {jobs}: give 1 to {JOBS_MAX}")).into()),
        None => Ok(thread::available_parallelism().map_or(1, usize::from)),
    }
}

/// Names runs that did so little that they show nothing.
fn tell_invalid(invalid: &[Invalid]) {
    for Invalid { workload, system, world, seed, why } in invalid.iter().take(INVALID_SHOWN) {
        output::tell(&format!("invalid: {workload} on {system}, {world}, seed {seed}: {why}"));
    }
    if let Some(more) = invalid.len().checked_sub(INVALID_SHOWN + 1) {
        output::tell(&format!("         and {} more: --format json lists all", more + 1));
    }
}

/// Tells what is wrong in a run, and how to repeat and trace it.
fn explain(failure: &Failure) {
    let Failure { workload, system, world, seed, violations, replay, .. } = failure;
    for violation in violations.iter().take(VIOLATIONS_SHOWN) {
        output::tell(&format!("{workload} on {system}, {world}, seed {seed}: {violation}"));
    }
    if violations.len() > VIOLATIONS_SHOWN {
        output::tell(&format!("        and {} more", violations.len() - VIOLATIONS_SHOWN));
    }
    output::tell(&format!("failed: replay with: {replay}"));
    output::tell(&format!("        all its messages: {}", trace_of(failure)));
}

/// The commands that list all messages of a failed run, those about the key in question if there is
/// one.
fn trace_of(failure: &Failure) -> String {
    let of_key = failure.key.map_or_else(String::new, |key| format!(" --key {key:#x}"));
    format!("{} --trace run.trace.json; nicol trace run.trace.json{of_key}", failure.replay)
}

/// Prints the messages about the key in question, of the first failed run that can be repeated.
fn print_messages(report: &SweepReport) -> Result<()> {
    for failure in &report.failures {
        let Some((key, rows)) = sweep::messages(failure)? else { continue };
        let last = &rows[rows.len().saturating_sub(MESSAGES_SHOWN)..];
        let Failure { workload, system, world, seed, .. } = failure;
        output::print(&format!(
            "Messages about key {key:#x}, {workload} on {system}, {world}, seed {seed}: {}\n",
            if last.len() < rows.len() {
                format!("the last {} of {}. All: {}", last.len(), rows.len(), trace_of(failure))
            } else {
                format!("all {}", rows.len())
            }
        ))?;
        let rows = last.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
        return output::rows(Format::Table, &rows, |_| json!(null));
    }
    Ok(())
}

/// Keeps the history of a run that failed: one on threads never happens again. A file that cannot
/// be written is told, and does not hide what else the sweep finds.
fn keep(folder: Option<&Path>, ran: &BenchRun) {
    let Some(folder) = folder else { return };
    let BenchReport { workload, system, world, profile, seed, .. } = &ran.report;
    let world = profile.as_deref().unwrap_or(world);
    // A profile may be named by its path, or with what is changed in it.
    let name = format!("{workload}-{system}-{world}-{seed}.jsonl").replace(['/', ':'], "_");
    if let Err(error) = write_history(&folder.join(name), ran) {
        output::tell(&format!("--histories: {}", flags::told(&error)));
    }
}

/// How a sweep ended. What failed has failed, however it ended; what an interrupted one has not
/// seen, it might have seen later. `unseen`: it shows too little. `code` is that of an interrupted
/// one.
fn verdict(report: &SweepReport, unseen: bool, code: u8) -> End {
    if !report.failures.is_empty() || unseen {
        End::Failed
    } else if report.interrupted {
        End::Interrupted(code)
    } else {
        End::Held
    }
}

/// The command that repeats a failed run: with the smallest plan of faults and the fewest
/// operations under which it still fails, where that is wanted. A plan that cannot be written is
/// told, and does not hide what else the sweep has found.
fn replay(args: &SweepArgs, failure: &Failure, stop: &AtomicBool) -> String {
    let shrinks = |folder| Some((folder, sweep::shrunk(failure, stop)?));
    let Some((folder, (plan, config))) = args.shrink.as_deref().and_then(shrinks) else {
        return failure.replay.clone();
    };
    let Failure { workload, system, world, seed, .. } = failure;
    let name = format!("{workload}-{system}-{world}-{seed}.json").replace(['/', ':'], "_");
    let path = folder.join(name);
    let plan = serde_json::to_vec_pretty(&plan).context("the plan");
    match plan.and_then(|plan| write_atomically(&path, &plan)) {
        Ok(()) => command(&config, Some(&path)),
        Err(error) => {
            output::tell(&format!("--shrink: {}", flags::told(&error)));
            failure.replay.clone()
        }
    }
}

fn print(args: &SweepArgs, report: &SweepReport, missing: &[&str]) -> Result<()> {
    let mut value = serde_json::to_value(report).context("the report")?;
    value["never_seen"] = json!(missing);
    match args.format {
        Format::Json => {
            let mut object = json!({"schema": "nicol.sweep/1"});
            if let (Some(into), Some(from)) = (object.as_object_mut(), value.as_object()) {
                into.extend(from.clone());
            }
            output::json(&object)
        }
        Format::Csv => output::rows(Format::Csv, &[output::flat(&value)], |_| json!(null)),
        Format::Table => {
            let mut totals = output::flat(&value);
            let totals = totals.as_object_mut();
            let mut totals = totals.map(std::mem::take).unwrap_or_default();
            for listed in
                ["parts", "failures", "planned_runs", "interrupted", "warnings", "invalid"]
            {
                totals.remove(listed);
            }
            if report.interrupted {
                let runs = format!("{} of {}: INTERRUPTED", report.runs, report.planned_runs);
                totals.insert("runs".to_owned(), runs.into());
            }
            totals.insert("never_seen".to_owned(), missing.join(", ").into());
            let pairs: Vec<(&str, String)> =
                totals.iter().map(|(name, value)| (name.as_str(), shown(value))).collect();
            output::pairs(&pairs)?;
            let parts =
                report.parts.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
            output::rows(Format::Table, &parts, |_| json!(null))
        }
    }
}

fn configs(args: &SweepArgs) -> Result<Vec<BenchConfig>> {
    let (from, to) = args
        .seeds
        .split_once("..")
        .and_then(|(from, to)| Some((from.parse::<u64>().ok()?, to.parse::<u64>().ok()?)))
        .filter(|(from, to)| from < to)
        .with_context(|| format!("--seeds {}: write FROM..TO, for example 0..100", args.seeds))?;
    let length = transactions(args.transactions)?;
    let workloads = names(&args.workload.workload, WORKLOADS.iter().map(|(name, _)| *name))?;
    let chosen = names(&args.system.system, systems::all().map(|system| system.name))?;
    named_once(args.on.iter().map(String::as_str))?;
    let pairs = pairs(args, &workloads, &chosen)?;
    let each = (pairs.len() * args.on.len()) as u64;
    let runs = (to - from).saturating_mul(each);
    ensure!(
        runs <= RUNS_MAX,
        "--seeds {}: {runs} runs in all; give at most {RUNS_MAX}, several sweeps one after the other",
        args.seeds
    );
    let mut configs = Vec::new();
    for (workload, system) in pairs {
        for world in &args.on {
            // Of all systems those that can run there.
            if args.system.system == "all" && !system.may_run_on(world)? {
                continue;
            }
            for seed in from..to {
                let config = config(args, workload, system, world, seed)?;
                // A sweep looks for conflicts; it measures nothing.
                let adaptive_window = Some(false);
                configs.push(BenchConfig { length: Some(length), adaptive_window, ..config });
            }
        }
    }
    Ok(configs)
}

/// The workloads and systems to run: of `all` those that fit one another. A pair that was asked for
/// by both names is refused in words.
fn pairs<'a>(
    args: &SweepArgs,
    workloads: &[&'a str],
    chosen: &[&'a str],
) -> Result<Vec<(&'a str, &'static System)>> {
    let lists_all = args.workload.workload == "all" || args.system.system == "all";
    let can_be_apart = |system: &System, spec: &WorkloadSpec| {
        args.client_nodes == 0 || (system.clients_apart)(system, spec, &args.system.settings)
    };
    let mut pairs = Vec::new();
    for workload in workloads {
        let named = WorkloadArgs { workload: (*workload).to_owned(), ..args.workload.clone() };
        let spec = spec(&named)?;
        for name in chosen {
            let system = systems::find(name)?;
            match (system.accepts)(system, &spec) {
                Ok(()) if lists_all && !can_be_apart(system, &spec) => {}
                Ok(()) => pairs.push((*workload, system)),
                Err(_) if lists_all => {}
                Err(reason) => return Err(anyhow!("{workload} on {name}: {reason}")),
            }
        }
    }
    Ok(pairs)
}

/// The names of a list with commas; `all` stands for all there are.
fn names<'a>(list: &'a str, all: impl Iterator<Item = &'a str>) -> Result<Vec<&'a str>> {
    if list == "all" {
        return Ok(all.collect());
    }
    let names: Vec<&str> = list.split(',').map(str::trim).collect();
    ensure!(!names.contains(&"all"), "{list}: 'all' stands alone; leave out the other names");
    named_once(names.iter().copied())?;
    Ok(names)
}

/// Refuses to run anything twice: the report would count it as two.
fn named_once<'a>(names: impl Iterator<Item = &'a str>) -> Result<()> {
    let mut seen = BTreeSet::new();
    match names.into_iter().find(|name| !seen.insert(*name)) {
        Some(twice) => bail!("'{twice}' is named twice: leave it out once"),
        None => Ok(()),
    }
}

fn config(
    args: &SweepArgs,
    workload: &str,
    system: &System,
    world: &str,
    seed: u64,
) -> Result<BenchConfig> {
    let workload = WorkloadArgs { workload: workload.to_owned(), ..args.workload.clone() };
    let mut config = base(&workload, &args.system, world, seed)?;
    config.system = system.name.to_owned();
    config.workload.shrink();
    config.workload.vary(seed);
    // What the user sets comes later, and so holds.
    let mut varied = (system.variation)(system, &config.workload, seed);
    // Only combined operations allow another node's NIC to execute all of a transaction.
    let is_set = |key: &str| config.settings.iter().any(|setting| setting.starts_with(key));
    varied.retain(|drawn| !drawn.starts_with("combined_ops=") || !is_set("multi_hop="));
    config.settings.splice(0..0, varied);
    let threads = world == THREADS;
    // A turn of the machine's scheduler outlasts a short timeout: in every second live run calls
    // are given up that would have been answered, in the others nearly none.
    let named = (system.settings)(system.name).iter().any(|row| row.key == "timeout_us");
    // Clients of one server's engines are on its cores, and call nobody.
    let has_timeout = named && !system.one_server;
    if has_timeout && (!threads || seed.is_multiple_of(2)) {
        config.settings.insert(0, SWEEP_TIMEOUT.to_owned());
    }
    if threads {
        config.threads = Some(1 + (seed % 3) as usize);
    } else {
        config.host_engines = Some(2);
        config.nic_engines = Some(2);
    }
    if system.one_server {
        config.nodes = args.system.nodes.unwrap_or(1);
        config.replicas = args.system.replicas.unwrap_or(1);
        // All its cores meet in the same records.
        config.host_engines = Some(if threads { 2 } else { 4 });
        config.nic_engines = Some(1);
    }
    config.client_nodes = args.client_nodes;
    config.host_engines = args.host_engines.or(config.host_engines);
    config.nic_engines = args.nic_engines.or(config.nic_engines);
    config.clients = Some(8);
    config.faults = args.faults;
    Ok(config)
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn configs_of(line: &str) -> Result<Vec<BenchConfig>> {
        let words = format!("nicol sweep --seeds 0..1 {line}");
        let Command::Sweep(args) = Cli::try_parse_from(words.split(' '))?.command else {
            unreachable!("it is a sweep")
        };
        configs(&args)
    }

    #[test]
    fn engines_and_nodes_for_clients_are_those_that_were_asked_for() {
        let of = |line| {
            let all = configs_of(line).unwrap();
            all.iter().map(|one| (one.client_nodes, one.host_engines, one.nic_engines)).collect()
        };
        let plain: Vec<_> = of("churn --system xenic --on liquidio3");
        assert_eq!(plain, [(0, Some(2), Some(2))]);
        let asked: Vec<_> =
            of("churn --system xenic --on liquidio3 --client-nodes 3 --host-engines 1 \
                               --nic-engines 4");
        assert_eq!(asked, [(3, Some(1), Some(4))]);
    }

    #[test]
    fn of_all_systems_those_run_whose_clients_may_be_apart() {
        let names = |line: &str| -> Vec<String> {
            configs_of(line).unwrap().into_iter().map(|one| one.system).collect()
        };
        let near = names("churn-ordered --system all --on liquidio3");
        let apart = names("churn-ordered --system all --on liquidio3 --client-nodes 2");
        let has = |names: &[String], name: &str| names.iter().any(|one| one == name);
        assert!(has(&near, "xenic") && !has(&apart, "xenic"), "{apart:?}");
        let hashed = names("churn --system all --on liquidio3 --client-nodes 2");
        assert!(has(&hashed, "xenic") && !has(&hashed, "silo"), "{hashed:?}");
        for (scheduler, apart) in [("alnico", true), ("none", false)] {
            let line = format!(
                "churn --system all --on innova2 --client-nodes 2 --set scheduler={scheduler}"
            );
            assert_eq!(has(&names(line.as_str()), "silo"), apart, "{scheduler}");
        }
    }

    #[test]
    fn an_interrupt_does_not_hide_a_failure() {
        let wrong = Failure {
            workload: "churn".into(),
            system: "xenic".into(),
            world: THREADS.into(),
            seed: 7,
            violations: Vec::new(),
            key: None,
            replay: String::new(),
            config: BenchConfig::new("xenic", WorkloadSpec::named("churn"), THREADS, 7),
        };
        let report = |interrupted, failures: &[Failure]| SweepReport {
            interrupted,
            failures: failures.to_vec(),
            ..SweepReport::default()
        };
        for interrupted in [false, true] {
            assert_eq!(
                verdict(&report(interrupted, std::slice::from_ref(&wrong)), false, 130),
                End::Failed
            );
        }
        assert_eq!(verdict(&report(false, &[]), true, 130), End::Failed);
        assert_eq!(verdict(&report(true, &[]), false, 143), End::Interrupted(143));
        assert_eq!(verdict(&report(false, &[]), false, 130), End::Held);
    }
}
