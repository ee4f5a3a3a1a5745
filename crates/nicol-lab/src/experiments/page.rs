//! Results as one page of HTML that needs nothing else: no script, no font, no network.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::plot::provenance;
use super::table::{Outcome, shown};
use super::{Experiment, checkpoint, shell_word, svg};
use crate::command_line::flag;

const STYLE: &str = "\
body { font: 15px/1.45 sans-serif; margin: 2em auto; max-width: 62em; padding: 0 1em; color: #222 }
h2 { margin-top: 2.2em; border-top: 1px solid #ccc; padding-top: 0.8em }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums }
th, td { border: 1px solid #ddd; padding: 0.2em 0.6em; text-align: left }
th { background: #f4f4f4 }
td.number { text-align: right }
.wide { overflow-x: auto }
svg { max-width: 100%; height: auto }
.failed { color: #b00020; font-weight: bold }
.facts { color: #555 }
summary { cursor: pointer; margin: 0.6em 0 }
";

/// The page of all results in `folder`, in the order of the experiments, and of what interrupted
/// runs left there; `None` if it holds neither.
///
/// # Errors
/// If a result cannot be read.
pub(crate) fn page_of(
    folder: &Path,
    experiments: &[&'static Experiment],
) -> Result<Option<String>> {
    let mut sections = String::new();
    let mut contents = String::new();
    let mut unfinished = String::new();
    for left in checkpoint::unfinished(folder)? {
        unfinished.push_str(&item(folder, &left));
    }
    for &experiment in experiments {
        let path = folder.join(format!("{}.json", experiment.id));
        if !path.exists() {
            continue;
        }
        let read = || Outcome::parse(&fs::read_to_string(&path)?, |_| Ok(experiment));
        let outcome = read().with_context(|| format!("cannot use {}", path.display()))?;
        let (id, title) = (experiment.id, escaped(experiment.title));
        let failed = match outcome.violations().len() {
            0 => String::new(),
            count => format!(" <span class=\"failed\">{count} checks FAILED</span>"),
        };
        contents.push_str(&format!("<li><a href=\"#{id}\">{id}</a>: {title}{failed}</li>\n"));
        sections.push_str(&section(&outcome)?);
    }
    if sections.is_empty() && unfinished.is_empty() {
        return Ok(None);
    }
    if !unfinished.is_empty() {
        unfinished = format!("<h2 id=\"unfinished\">Unfinished</h2>\n<ul>\n{unfinished}</ul>\n");
    }
    Ok(Some(format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <title>Nicol: results</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
         <h1>Results</h1>\n<ul>\n{contents}</ul>\n{unfinished}{sections}</body>\n</html>\n"
    )))
}

/// An item for an interrupted run, with the command that resumes it.
fn item(folder: &Path, left: &checkpoint::Unfinished) -> String {
    let points = match left.points {
        0 => "no point is kept that this build could use".to_owned(),
        1 => "1 point is kept".to_owned(),
        points => format!("{points} points are kept"),
    };
    let folder = shell_word(&folder.display().to_string());
    let command = escaped(&format!("nicol lab run {} {} {folder}", left.command, flag("out")));
    format!("<li><code>{command}</code>: {points}</li>\n")
}

fn section(outcome: &Outcome) -> Result<String> {
    let (id, title) = (outcome.experiment().id, escaped(outcome.experiment().title));
    let judged = match (outcome.judged(), outcome.violations().len()) {
        (0, _) => "parts only, with no transactions to judge".to_owned(),
        (runs, 0) => format!("{runs} runs judged, and every check held"),
        (runs, _) => format!("{runs} runs judged"),
    };
    let provenance = escaped(&provenance(outcome));
    let mut text =
        format!("<h2 id=\"{id}\">{title}</h2>\n<p class=\"facts\">{provenance}; {judged}</p>\n");
    for violation in outcome.violations() {
        text.push_str(&format!("<p class=\"failed\">FAILED: {}</p>\n", escaped(violation)));
    }
    text.push_str(&svg(outcome)?);
    let columns: Vec<_> = outcome.experiment().every_column().into_iter().map(escaped).collect();
    let rows = outcome.rows().iter().map(|row| {
        let cell = |cell| {
            let class = if serde_json::Value::is_number(cell) { " class=\"number\"" } else { "" };
            format!("<td{class}>{}</td>", escaped(&shown(cell)))
        };
        row.iter().map(cell).collect::<String>()
    });
    text.push_str(&table("Rows", &columns, rows, true));
    let count = outcome.assumed().len();
    let assumed = outcome.assumed().iter().map(|line| {
        let cells = [line.profile.as_deref().unwrap_or("-"), &line.key, &line.value, &line.reason];
        cells.map(|cell| format!("<td>{}</td>", escaped(cell))).concat()
    });
    let columns = ["profile", "what", "value", "reason"].map(str::to_owned);
    text.push_str(&table(&format!("Assumed: {count} values"), &columns, assumed, false));
    Ok(text)
}

/// A table that can be folded away.
fn table(name: &str, columns: &[String], rows: impl Iterator<Item = String>, open: bool) -> String {
    let open = if open { " open" } else { "" };
    let head: String = columns.iter().map(|column| format!("<th>{column}</th>")).collect();
    let rows: String = rows.map(|row| format!("<tr>{row}</tr>\n")).collect();
    format!(
        "<details{open}><summary>{name}</summary>\n<div class=\"wide\">\n<table>\n<tr>{head}</tr>\n\
         {rows}</table>\n</div>\n</details>\n"
    )
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
