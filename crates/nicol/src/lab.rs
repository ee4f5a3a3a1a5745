//! `nicol lab`: the figures and tables of the papers.

use std::io::{self, Write};
use std::path::Path;
use std::thread;

use anyhow::{Context, Result};
use nicol_lab::experiments::{self, Experiment, Finished, Form, Golden, Options};
use serde_json::{Value, json};

use crate::bench::spinner;
use crate::cli::{Format, FormatArgs, LabAction, LabArgs, LabRunArgs};
use crate::{End, Usage, output};

/// Runs the chosen action.
pub fn run(args: &LabArgs) -> Result<End> {
    match &args.action {
        LabAction::List(args) => list(args),
        LabAction::Run(args) => run_some(args),
    }
}

fn list(args: &FormatArgs) -> Result<End> {
    let rows: Vec<Value> = experiments::all()
        .iter()
        .map(|experiment| {
            json!({
                "figure": experiment.id,
                "title": experiment.title,
                "systems": experiment.systems.join(" "),
                "columns": experiment.columns.join(" "),
            })
        })
        .collect();
    output::rows(args.format, &rows, |rows| json!({"schema": "nicol.lab/1", "rows": rows}))?;
    Ok(End::Held)
}

fn run_some(args: &LabRunArgs) -> Result<End> {
    let options = Options {
        form: if args.quick { Form::Quick } else { Form::Full },
        seed: args.seed,
        profile: args.profile.clone(),
        systems: args.systems.clone(),
        jobs: args.jobs.unwrap_or_else(|| thread::available_parallelism().map_or(1, usize::from)),
        memory: experiments::memory_available(),
    };
    let chosen = match &args.id {
        Some(id) => vec![experiments::find(id).map_err(Usage)?],
        None => experiments::all(),
    };
    let mut verdicts = Vec::new();
    for experiment in chosen {
        let finished = run_one(experiment, &options)?;
        let wrong = judge(args, &finished)?;
        if let Some(folder) = &args.out {
            experiments::write_results(folder, &finished.outcome)?;
        }
        if args.id.is_some() {
            print(args.format, &finished)?;
        }
        eprintln!("{}", footing(&finished));
        wrong.iter().for_each(|wrong| eprintln!("failed: {wrong}"));
        verdicts.push((experiment.id, finished, wrong));
    }
    if args.id.is_none() {
        summary(args.format, &verdicts)?;
    }
    let held = verdicts.iter().all(|(.., wrong)| wrong.is_empty());
    Ok(if held { End::Held } else { End::Failed })
}

fn run_one(experiment: &'static Experiment, options: &Options) -> Result<Finished> {
    let bar = spinner(experiment.id);
    let finished = experiments::run(experiment, options, &|progress| {
        bar.set_message(format!(
            "{}: {} points done, {} running",
            experiment.id, progress.done, progress.running
        ));
    });
    bar.finish_and_clear();
    finished.map_err(|error| Usage(error).into())
}

/// What is wrong with an outcome: what its checkers say, and what its golden table says.
fn judge(args: &LabRunArgs, finished: &Finished) -> Result<Vec<String>> {
    let outcome = &finished.outcome;
    let mut wrong = outcome.violations().to_vec();
    if let Some(folder) = args.golden.as_deref().map(Path::new) {
        let golden = Golden(folder);
        if args.bless && wrong.is_empty() {
            golden.bless(outcome)?;
        } else {
            wrong.extend(golden.difference(outcome)?);
        }
    }
    Ok(wrong)
}

fn print(format: Format, finished: &Finished) -> Result<()> {
    let outcome = &finished.outcome;
    let text = match format {
        Format::Json => outcome.json(),
        Format::Csv => outcome.csv(),
        Format::Table => {
            let columns = outcome.experiment().columns;
            return output::cells(columns, outcome.rows());
        }
    };
    io::stdout().write_all(text.as_bytes()).context("writing to standard output")
}

/// What an experiment took, which depends on the machine and is therefore in no result.
fn footing(finished: &Finished) -> String {
    let id = finished.outcome.experiment().id;
    let (points, seconds) = (finished.points, finished.took.as_secs_f64());
    let peak = peak_memory_mib().map_or(String::new(), |mib| format!(", peak memory {mib} MiB"));
    format!("{id}: {points} points in {seconds:.1} s{peak}")
}

/// The most memory that this process ever had, if the system says.
fn peak_memory_mib() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().trim_end_matches("kB").trim().parse::<u64>().ok()?.div_ceil(1024))
}

fn summary(format: Format, verdicts: &[(&str, Finished, Vec<String>)]) -> Result<()> {
    let rows: Vec<Value> = verdicts
        .iter()
        .map(|(id, finished, wrong)| {
            json!({
                "figure": id,
                "rows": finished.outcome.rows().len(),
                "points": finished.points,
                "verdict": if wrong.is_empty() { "held" } else { "FAILED" },
            })
        })
        .collect();
    output::rows(format, &rows, |rows| json!({"schema": "nicol.lab.summary/1", "rows": rows}))
}
