//! `nicol systems`: what can run where, with its guarantees.

use anyhow::Result;
use serde_json::json;

use crate::cli::SystemsArgs;
use crate::output;

/// Prints the systems.
pub fn run(args: &SystemsArgs) -> Result<()> {
    let rows = [json!({
        "system": "xenic",
        "family": "commit",
        "guarantee": "strictly serializable transactions",
        "replication": "primary and backups, all acknowledge before commit",
        "worlds": "threads, liquidio3, connectx5",
        "survives": "message loss, duplication, reordering, corruption, partitions, stalls; \
                     crashes of nodes not yet",
        "source": "Xenic, SOSP '21",
    })];
    output::rows(args.format, &rows, |rows| json!({"schema": "nicol.systems/1", "rows": rows}))
}
