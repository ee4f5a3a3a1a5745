//! `nicol check`: judges a recorded history.

use std::fs::File;
use std::io::BufReader;

use anyhow::{Context, Result};
use nicol_check::{history_file, serializability};
use serde_json::json;

use crate::cli::{CheckArgs, Format};
use crate::{End, output};

/// Reads the history and prints the verdict.
pub fn run(args: &CheckArgs) -> Result<End> {
    let path = args.history.display();
    let file = File::open(&args.history).with_context(|| format!("cannot open {path}"))?;
    let (_, events) = history_file::read(BufReader::new(file))
        .with_context(|| format!("{path} is not a usable history"))?;
    let report = serializability::check(&events);
    let violations: Vec<_> = report.violations.iter().map(ToString::to_string).collect();
    let held = violations.is_empty();
    let value = json!({
        "schema": "nicol.check/1",
        "history": path.to_string(),
        "transactions": events.len(),
        "serializable": held,
        "violations": violations,
    });
    match args.format {
        Format::Json => output::json(&value)?,
        Format::Csv => output::rows(Format::Csv, &[output::flat(&value)], |_| json!(null))?,
        Format::Table => output::pairs(&[
            ("history", path.to_string()),
            ("transactions", events.len().to_string()),
            ("strictly serializable", if held { "yes" } else { "NO" }.to_owned()),
            ("violations", violations.join("\n")),
        ])?,
    }
    Ok(if held { End::Held } else { End::Failed })
}
