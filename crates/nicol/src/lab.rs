//! `nicol lab`: the figures and tables of the papers.

use std::fs;
use std::path::Path;
use std::thread;

use anyhow::{Context, Result, anyhow};
use nicol_bench::memory::Resident;
use nicol_lab::experiments::{
    self, Checkpoint, Experiment, Finished, Form, Golden, Options, Outcome, shown,
};
use nicol_lab::figures;
use serde_json::{Value, json};

use crate::cli::{Format, FormatArgs, LabAction, LabArgs, LabRunArgs};
use crate::output::spinner;
use crate::{End, Usage, environment_or_usage, interrupt, output};

/// Runs the chosen action.
pub fn run(args: &LabArgs) -> Result<End> {
    match &args.action {
        LabAction::List(args) => list(args),
        LabAction::Run(args) => run_some(args),
        LabAction::Show { id, results, format } => show(id, results.as_deref(), format),
        LabAction::Report { dir, out } => report(dir, out.as_deref()),
    }
}

fn list(args: &FormatArgs) -> Result<End> {
    let rows: Vec<Value> = figures::all()
        .iter()
        .map(|experiment| {
            json!({
                "figure": experiment.id,
                "title": experiment.title,
                "systems": experiment.systems.join(" "),
                "columns": experiment.every_column().join(" "),
            })
        })
        .collect();
    output::rows(args.format, &rows, |rows| json!({"schema": "nicol.lab.list/1", "rows": rows}))?;
    Ok(End::Held)
}

/// What a figure is, and what binds in the rows of its last run.
fn show(id: &str, results: Option<&Path>, args: &FormatArgs) -> Result<End> {
    let experiment = figures::find(id).map_err(Usage)?;
    let about = figures::about(experiment)?;
    let mut page = about.json(experiment)?;
    page["kept"] = match results {
        None => Value::Null,
        Some(folder) => kept(experiment, folder)?,
    };
    match args.format {
        Format::Json => output::json(&page)?,
        Format::Csv => output::rows(Format::Csv, &[output::flat(&page)], |_| Value::Null)?,
        Format::Table => output::print(&in_words(&page))?,
    }
    Ok(End::Held)
}

/// The rows in `folder`, by what they measure and what bound.
fn kept(experiment: &'static Experiment, folder: &Path) -> Result<Value> {
    let path = folder.join(format!("{}.json", experiment.id));
    let shown = || format!("--results: {}", path.display());
    let text = fs::read_to_string(&path).with_context(shown)?;
    let outcome = Outcome::parse(&text, figures::find).with_context(shown).map_err(Usage)?;
    let columns = experiment.every_column();
    let row = |row: &Vec<Value>| {
        let cells = columns.iter().map(|name| (*name).to_owned()).zip(row.iter().cloned());
        Value::Object(cells.collect())
    };
    let rows: Vec<Value> = outcome.rows().iter().map(row).collect();
    Ok(json!({"form": outcome.form().name(), "seed": outcome.seed(), "rows": rows}))
}

/// The page for people.
fn in_words(page: &Value) -> String {
    let text = shown;
    let list = |value: &Value| {
        let items = value.as_array().into_iter().flatten();
        items.map(text).collect::<Vec<_>>().join(", ")
    };
    let mut lines = vec![
        format!("{}: {}", text(&page["figure"]), text(&page["title"])),
        format!("\nThe paper: {}", text(&page["paper"])),
        format!("\nSystems: {}", list(&page["systems"])),
        format!("Columns: {}", list(&page["columns"])),
        "\nHere:".to_owned(),
    ];
    for one in page["scale"].as_array().into_iter().flatten() {
        let [what, full, quick] = ["what", "full", "quick"].map(|name| text(&one[name]));
        let forms = if full == quick { full } else { format!("{full}; quick: {quick}") };
        lines.push(format!("  {what}: {forms}"));
    }
    lines.push("\nLeft out:".to_owned());
    let left_out = page["left_out"].as_array().into_iter().flatten();
    lines.extend(left_out.map(|what| format!("  {}", text(what))));
    if page["kept"].is_object() {
        let kept = &page["kept"];
        lines.push(format!("\nWhat binds ({} form, seed {}):", text(&kept["form"]), kept["seed"]));
        for row in kept["rows"].as_array().into_iter().flatten().filter_map(Value::as_object) {
            let cells = row.iter().map(|(name, cell)| format!("{name} {}", shown(cell)));
            lines.push(format!("  {}", cells.collect::<Vec<_>>().join(", ")));
        }
    }
    lines.push(format!("\nAssumed, of {}:", list(&page["profiles"])));
    for one in page["assumed"].as_array().into_iter().flatten() {
        let [profile, key, value, reason] =
            ["profile", "key", "value", "reason"].map(|name| text(&one[name]));
        lines.push(format!("  {profile} {key} = {value}: {reason}"));
    }
    lines.push("\nReadings (docs/research/ambiguities.md):".to_owned());
    for one in page["readings"].as_array().into_iter().flatten() {
        lines.push(format!("\n{}\n{}", text(&one["id"]), text(&one["text"])));
    }
    lines.join("\n") + "\n"
}

fn report(folder: &Path, out: Option<&Path>) -> Result<End> {
    if !folder.is_dir() {
        let error =
            anyhow!("{} is no folder: name one that `lab run --out` wrote to", folder.display());
        return Err(Usage(error).into());
    }
    let page = figures::page(folder)?.ok_or_else(|| {
        let folder = folder.display();
        Usage(anyhow!("{folder} holds no results: make some with nicol lab run ID --out {folder}"))
    })?;
    let path = out.map_or_else(|| folder.join("report.html"), Path::to_owned);
    experiments::write_atomically(&path, page.as_bytes())?;
    output::print(&format!("{}\n", path.display())).map(|()| End::Held)
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
    interrupt::end_with(match &args.out {
        Some(out) => {
            let out = out.display();
            format!("interrupted: the same command goes on from the points that are in {out}")
        }
        None => "interrupted: nothing is kept; with --out DIR a run can be gone on with".to_owned(),
    })?;
    let chosen = chosen(args, &options)?;
    if let Some(golden) = &args.golden
        && chosen.iter().any(|experiment| Golden(golden).is_of_family(experiment))
    {
        let error = anyhow!(
            "--golden {}: this is the folder of one family: name the one above it",
            golden.display()
        );
        return Err(Usage(error).into());
    }
    let checkpoint = match &args.out {
        Some(folder) => Checkpoint::open(folder, &args.ids, &options)?,
        None => Checkpoint::default(),
    };
    let end = match &chosen[..] {
        [experiment] => {
            let (finished, wrong) = run_one(args, experiment, &options, &checkpoint)?;
            print(args.format, &finished)?;
            if wrong.is_empty() { End::Held } else { End::Failed }
        }
        several => run_several(args, several, &options, &checkpoint)?,
    };
    checkpoint.forget()?;
    Ok(end)
}

/// The experiments to run, each once: those that are named, or of all those that the options
/// concern.
fn chosen(args: &LabRunArgs, options: &Options) -> Result<Vec<&'static Experiment>> {
    let mut chosen: Vec<&Experiment> = Vec::new();
    for id in &args.ids {
        let experiment = figures::find(id).map_err(Usage)?;
        if chosen.iter().all(|known| known.id != experiment.id) {
            chosen.push(experiment);
        }
    }
    if let [_] = chosen[..] {
        return Ok(chosen); // It says itself which options do not fit it.
    }
    for experiment in &chosen {
        let id = experiment.id;
        if options.fitting(experiment).is_none() {
            return Err(Usage(anyhow!("--systems: {id} compares none of them")).into());
        }
    }
    if args.all {
        chosen = figures::all();
        chosen.retain(|experiment| options.fitting(experiment).is_some());
    }
    for system in args.systems.iter().flatten() {
        if chosen.iter().all(|experiment| !experiment.systems.contains(&system.as_str())) {
            let error =
                anyhow!("--systems {system}: no experiment compares it; see nicol lab list");
            return Err(Usage(error).into());
        }
    }
    Ok(chosen)
}

/// Runs those whose systems are all there. One that is refused for want of them has failed only if
/// there is a golden table, which says that it once ran.
fn run_several(
    args: &LabRunArgs,
    chosen: &[&'static Experiment],
    options: &Options,
    checkpoint: &Checkpoint,
) -> Result<End> {
    let golden = args.golden.as_deref().map(Golden);
    let mut rows = Vec::new();
    let mut end = End::Held;
    for &experiment in chosen {
        let id = experiment.id;
        let Some(options) = options.fitting(experiment) else { continue };
        let missing = figures::missing(experiment);
        let (count, points, verdict, held) = if missing.is_empty() {
            let (finished, wrong) = run_one(args, experiment, &options, checkpoint)?;
            let held = wrong.is_empty();
            let verdict = if held { "held" } else { "FAILED" };
            (finished.outcome.rows().len(), finished.points, verdict.to_owned(), held)
        } else {
            let verdict = format!("refused: no {}", missing.join(", "));
            (0, 0, verdict, golden.as_ref().is_none_or(|golden| !golden.has(experiment)))
        };
        if !held {
            end = End::Failed;
        }
        rows.push(json!({"figure": id, "rows": count, "points": points, "verdict": verdict}));
    }
    output::rows(
        args.format,
        &rows,
        |rows| json!({"schema": "nicol.lab.summary/1", "rows": rows}),
    )?;
    Ok(end)
}

/// Runs an experiment, keeps its results, and says what is wrong with them.
fn run_one(
    args: &LabRunArgs,
    experiment: &'static Experiment,
    options: &Options,
    checkpoint: &Checkpoint,
) -> Result<(Finished, Vec<String>)> {
    let bar = spinner(experiment.id);
    let finished = figures::run(experiment, options, checkpoint, &|progress| {
        bar.set_message(format!(
            "{}: {} points done, {} running",
            experiment.id, progress.done, progress.running
        ));
    });
    bar.finish_and_clear();
    let finished = finished.map_err(environment_or_usage)?;
    if let Some(folder) = &args.out {
        experiments::write_results(folder, &finished.outcome)?;
    }
    let wrong = judge(args, &finished)?;
    output::tell(&footing(&finished));
    finished.outcome.warnings().for_each(|warning| output::tell(&format!("warning: {warning}")));
    wrong.iter().for_each(|wrong| output::tell(&format!("failed: {wrong}")));
    Ok((finished, wrong))
}

/// What is wrong with an outcome: what its checkers say, and what its golden table says.
fn judge(args: &LabRunArgs, finished: &Finished) -> Result<Vec<String>> {
    let outcome = &finished.outcome;
    let mut wrong = outcome.violations().to_vec();
    if let Some(golden) = args.golden.as_deref().map(Golden) {
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
            let columns = outcome.experiment().every_column();
            return output::cells(&columns, outcome.rows());
        }
    };
    output::print(&text)
}

/// What an experiment took, which depends on the machine and is therefore in no result.
fn footing(finished: &Finished) -> String {
    let id = finished.outcome.experiment().id;
    let (points, seconds) = (finished.points, finished.took.as_secs_f64());
    let peak = peak_memory_mib().map_or(String::new(), |mib| format!(", peak memory {mib} MiB"));
    let kept = match finished.resumed {
        0 => String::new(),
        kept => format!(" and {kept} measured before"),
    };
    format!("{id}: {points} points{kept} in {seconds:.1} s{peak}")
}

/// The most memory that this process ever had, if the system says.
fn peak_memory_mib() -> Option<u64> {
    Resident::read().map(|resident| resident.peak.div_ceil(1 << 20))
}
