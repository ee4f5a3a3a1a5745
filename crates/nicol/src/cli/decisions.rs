//! The flags of `nicol decisions`.

use std::path::PathBuf;

use clap::Args;

use super::Format;

/// `nicol decisions`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    nicol bench ycsb-t --system xenic --set execute_at=planned --on liquidio3 --decisions log.jsonl\n  \
    nicol decisions log.jsonl\n\n\
    A decision follows from the sums of its epoch and the rules, which are all in the file.\n\
    Exit code 1: a decision does not follow.")]
pub struct DecisionsArgs {
    /// The file that `nicol bench --decisions` wrote.
    pub file: PathBuf,
    /// Show every epoch, not only those at whose end the other way was chosen.
    #[arg(long)]
    pub all: bool,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}
