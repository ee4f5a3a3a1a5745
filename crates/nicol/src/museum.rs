//! `nicol museum`.

use std::io::IsTerminal;
use std::sync::atomic::Ordering;
use std::thread;

use anyhow::{Result, anyhow};
use indicatif::{ProgressBar, ProgressStyle};
use nicol_bench::systems::{self, System};
use nicol_lab::museum::{self, Exhibit};
use serde_json::{Value, json};

use crate::cli::{Format, MuseumArgs};
use crate::{End, Usage, blame, interrupt, output};

/// Plants every known fault in every chosen system, and prints which check found it.
pub fn run(args: &MuseumArgs) -> Result<End> {
    let chosen = systems(&args.system).map_err(Usage)?;
    if args.seeds == 0 {
        return Err(Usage(anyhow!("--seeds 0: give 1 or more")).into());
    }
    let total = museum::count(&chosen);
    let bar = if std::io::stderr().is_terminal() {
        ProgressBar::new(total as u64).with_style(ProgressStyle::default_bar())
    } else {
        ProgressBar::hidden()
    };
    let asked = interrupt::flag()?;
    let jobs = thread::available_parallelism().map_or(1, usize::from);
    let seen = museum::visit(&chosen, &(0..args.seeds), jobs, &asked.flag, &|| bar.inc(1));
    bar.finish_and_clear();
    let seen = seen.map_err(blame)?;
    let rows: Vec<Value> = seen.iter().map(|exhibit| row(exhibit, args.format)).collect();
    output::rows(args.format, &rows, |rows| json!({"schema": "nicol.museum/1", "rows": rows}))?;
    for exhibit in seen.iter().filter(|exhibit| !exhibit.held()) {
        output::tell(&format!("failed: {}", reason(exhibit)));
    }
    Ok(if seen.iter().any(|exhibit| !exhibit.held()) {
        End::Failed
    } else if asked.flag.load(Ordering::Relaxed) && seen.len() < total {
        End::Interrupted(asked.exit_code())
    } else {
        End::Held
    })
}

fn systems(list: &str) -> Result<Vec<&'static System>> {
    if list == "all" {
        return Ok(systems::all().collect());
    }
    let chosen: Vec<&'static System> =
        list.split(',').map(|name| systems::find(name.trim())).collect::<Result<_>>()?;
    // A visit that shows nothing would hold.
    match chosen.iter().find(|system| (system.sabotages)().is_empty()) {
        Some(system) => Err(anyhow!(
            "--system {}: no fault is planted in it; name another one, or `all`",
            system.name
        )),
        None => Ok(chosen),
    }
}

/// Why an exhibit is not as it must be.
fn reason(exhibit: &Exhibit) -> String {
    let Exhibit { system, sabotage, runs, caught, honest_violations, .. } = exhibit;
    match (caught, honest_violations.first()) {
        (None, _) => format!("{system} with {sabotage}: not noticed in {runs} runs"),
        (Some(caught), Some(says)) => {
            format!("{system} as it should be, in the run of {}: {says}", caught.replay)
        }
        (Some(caught), None) => {
            format!("{system} with {sabotage} is called harmless, but see: {}", caught.replay)
        }
    }
}

/// One row; people are spared the long columns.
fn row(exhibit: &Exhibit, format: Format) -> Value {
    let caught = exhibit.caught.as_ref();
    let seen = caught.map_or_else(
        || exhibit.harmless.map_or("NOT NOTICED", |_| "harmless").to_owned(),
        |caught| caught.by.to_owned(),
    );
    let mut row = json!({
        "system": exhibit.system,
        "sabotage": exhibit.sabotage,
        "noticed_by": seen,
        "workload": caught.map(|caught| &caught.workload),
        "world": caught.map(|caught| &caught.world),
        "seed": caught.map(|caught| caught.seed),
        "runs": exhibit.runs,
    });
    if format != Format::Table {
        row["says"] = json!(caught.map(|caught| &caught.says));
        row["replay"] = json!(caught.map(|caught| &caught.replay));
        row["harmless"] = json!(exhibit.harmless);
        row["honest_violations"] = json!(exhibit.honest_violations.join("; "));
    }
    row
}
