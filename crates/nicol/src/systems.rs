//! `nicol systems`: what can run where, with its guarantees.

use anyhow::Result;
use nicol_lab::systems::SYSTEMS;
use serde_json::json;

use crate::cli::SystemsArgs;
use crate::output;

/// Prints the systems.
pub fn run(args: &SystemsArgs) -> Result<()> {
    let rows = SYSTEMS.iter().map(serde_json::to_value).collect::<Result<Vec<_>, _>>()?;
    output::rows(args.format, &rows, |rows| json!({"schema": "nicol.systems/1", "rows": rows}))
}
