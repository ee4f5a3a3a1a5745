//! `nicol decisions`: what a run has decided between two ways, replayed.

use std::fs::File;
use std::io::{BufReader, Write};
use std::path::Path;

use anyhow::{Context, Result};
use nicol_bench::report::BenchRun;
use nicol_lab::decisions::{self, Header, Replayed};
use nicol_lab::experiments::write_atomically_by;
use serde_json::{Value, json};

use crate::cli::{DecisionsArgs, Format};
use crate::{End, Usage, environment_or_usage, output};

/// Writes what the nodes of a run have decided, all of it or no file.
pub fn write(path: &Path, ran: &BenchRun) -> Result<()> {
    let report = &ran.report;
    let (system, workload) = (&report.system, &report.workload);
    let mut file = Vec::new();
    decisions::write(&mut file, system, workload, report.seed, &ran.decisions)
        .map_err(|error| Usage(error.context("--decisions")))?;
    write_atomically_by(path, |out| out.write_all(&file)).context("--decisions")
}

/// Reads a file, replays it, and prints what was decided.
pub fn run(args: &DecisionsArgs) -> Result<End> {
    let name = args.file.display();
    let file = File::open(&args.file).with_context(|| format!("cannot open {name}"))?;
    let replayed = decisions::replay(BufReader::new(file));
    let (header, epochs) =
        replayed.map_err(|error| environment_or_usage(error.context(name.to_string())))?;
    let shown = epochs.iter().filter(|one| args.all || one.switches || one.follows.is_some());
    let rows: Vec<Value> = shown.map(|one| row(&header, one)).collect();
    let wrong = epochs.iter().filter(|one| one.follows.is_some()).count();
    if matches!(args.format, Format::Table) {
        let [first, second] = &header.ways;
        output::print(&format!(
            "{} on {}, seed {}: {first} at first, or {second}. {} epochs, {} switches.\n",
            header.system,
            header.workload,
            header.seed,
            epochs.len(),
            epochs.iter().filter(|one| one.switches).count()
        ))?;
    }
    if !(rows.is_empty() && matches!(args.format, Format::Table)) {
        let whole = |rows: &[Value]| {
            json!({
                "schema": "nicol.replay/1",
                "header": header,
                "epochs": epochs.len(),
                "do_not_follow": wrong,
                "rows": rows,
            })
        };
        output::rows(args.format, &rows, whole)?;
    }
    for one in epochs.iter().filter(|one| one.follows.is_some()) {
        let (line, way) = (one.line, &one.epoch.way);
        let follows = one.follows.as_deref().unwrap_or_default();
        output::tell(&format!("failed: {name}:{line}: {way} was decided, and {follows} follows"));
    }
    Ok(if wrong == 0 { End::Held } else { End::Failed })
}

fn row(header: &Header, one: &Replayed) -> Value {
    let mut row = json!({
        "line": one.line,
        "node": one.epoch.node,
        "at_us": one.epoch.at_ns as f64 / 1e3,
    });
    for (place, way) in header.ways.iter().enumerate() {
        let mean = one.mean_us(place).map(|mean| (mean * 1e3).round() / 1e3);
        row[format!("{way}_us")] = json!(mean);
    }
    row["way"] = json!(one.epoch.way);
    row["follows"] = json!(one.follows.is_none());
    row
}
