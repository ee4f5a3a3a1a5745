//! The flags of `nicol museum`.

use clap::Args;

use super::Format;

/// `nicol museum`.
#[derive(Debug, Args)]
#[command(
    after_help = "Example:\n  nicol museum --system farm\n\nA row shows the planted fault, the run that \
    found it, and what the checker says. The same run without the fault must hold. Exit code 1: a fault \
    was not found, or a run without it failed."
)]
pub struct MuseumArgs {
    /// Systems, separated by commas, or `all`.
    #[arg(long, default_value = "all", value_name = "SYSTEMS")]
    pub system: String,
    /// Seeds to try before a fault counts as not found.
    #[arg(long, default_value_t = 200, value_name = "N")]
    pub seeds: u64,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    pub format: Format,
}
