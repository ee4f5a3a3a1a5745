//! `nicol systems`: what can run where, with its guarantees, and which workloads it runs.

use anyhow::Result;
use nicol_lab::systems::{self, System};
use serde_json::{Value, json};

use crate::cli::SystemsArgs;
use crate::output;

/// Prints the systems.
pub fn run(args: &SystemsArgs) -> Result<()> {
    let rows = systems::all().map(row).collect::<Result<Vec<_>>>()?;
    output::rows(args.format, &rows, |rows| json!({"schema": "nicol.systems/1", "rows": rows}))
}

fn row(system: &System) -> Result<Value> {
    let mut row = serde_json::to_value(system)?;
    let mut workloads = Vec::new();
    let mut refused = Vec::new();
    for pairing in systems::matrix().filter(|pairing| pairing.system.name == system.name) {
        match pairing.refusal {
            None => workloads.push(pairing.workload),
            Some(reason) => refused.push(format!("{}: {reason}", pairing.workload)),
        }
    }
    row["worlds"] = json!(system.worlds()?.join(", "));
    row["workloads"] = json!(workloads.join(" "));
    row["refuses"] = json!(refused.join("; "));
    row["serves"] = match system.ensure_serves() {
        Ok(()) => json!("yes"),
        Err(error) => json!(error.to_string()),
    };
    Ok(row)
}
