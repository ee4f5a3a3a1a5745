//! `nicol systems`: what can run where, with its guarantees, and which workloads it runs.

use anyhow::Result;
use nicol_bench::systems::{self, System};
use nicol_lab::experiments::shown;
use serde_json::{Value, json};

use crate::Usage;
use crate::cli::{Format, SystemsAction, SystemsArgs};
use crate::flags::in_flags;
use crate::output;

/// A system's row in the list for people; the rest is shown one system at a time.
const LISTED: [&str; 5] = ["system", "family", "guarantee", "survives", "serves"];

/// Prints the systems, or one of them.
pub fn run(args: &SystemsArgs) -> Result<()> {
    let schema = |rows: &[Value]| json!({"schema": "nicol.systems/1", "rows": rows});
    match (&args.action, args.format) {
        (Some(SystemsAction::Show { name }), format) => {
            let row = row(systems::find(name).map_err(Usage)?)?;
            match format {
                Format::Table => show(&row),
                Format::Json | Format::Csv => output::rows(format, &[row], schema),
            }
        }
        (Some(SystemsAction::List) | None, Format::Table) => {
            let rows: Vec<Vec<Value>> = systems::all().map(listed).collect::<Result<_>>()?;
            output::cells(&LISTED, &rows)?;
            output::tell(
                "a system's replication and source, where it runs, which workloads, and why `nicol serve` does not \
                 take it: nicol systems show NAME",
            );
            Ok(())
        }
        (Some(SystemsAction::List) | None, format) => {
            let rows = systems::all().map(row).collect::<Result<Vec<_>>>()?;
            output::rows(format, &rows, schema)
        }
    }
}

fn listed(system: &System) -> Result<Vec<Value>> {
    let mut row = serde_json::to_value(system)?;
    row["serves"] = json!(if system.why_no_store().is_none() { "yes" } else { "no" });
    Ok(LISTED.iter().map(|column| row[column].clone()).collect())
}

fn show(row: &Value) -> Result<()> {
    let lines = row.as_object().into_iter().flatten();
    let lines: Vec<_> = lines.map(|(name, value)| (name.as_str(), shown(value))).collect();
    output::pairs(&lines)
}

fn row(system: &System) -> Result<Value> {
    let mut row = serde_json::to_value(system)?;
    let mut workloads = Vec::new();
    // By reason: the workloads that are refused for it.
    let mut refused: Vec<(String, Vec<&str>)> = Vec::new();
    for pairing in systems::matrix().filter(|pairing| pairing.system.name == system.name) {
        match pairing.refusal {
            None => workloads.push(pairing.workload),
            Some(reason) => match refused.iter_mut().find(|(known, _)| *known == reason) {
                Some((_, of)) => of.push(pairing.workload),
                None => refused.push((reason, vec![pairing.workload])),
            },
        }
    }
    let refused =
        refused.iter().map(|(reason, of)| format!("{}: {}", of.join(" "), in_flags(reason)));
    row["worlds"] = json!(system.worlds()?.join(", "));
    row["workloads"] = json!(workloads.join(" "));
    row["refuses"] = json!(refused.collect::<Vec<_>>().join("; "));
    row["serves"] = match system.why_no_store() {
        None => json!("yes"),
        Some(reason) => json!(format!("no: {reason}")),
    };
    Ok(row)
}
