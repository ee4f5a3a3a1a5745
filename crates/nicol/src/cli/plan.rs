//! The flags of `nicol plan`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

/// `nicol plan`.
#[derive(Debug, Args)]
#[command(after_help = "A description names alternatives and what a request of each takes:\n\n  \
    name = \"my store\"\n  \
    [[alternative]]\n  \
    name = \"reads\"\n  \
    steps = [{ path = \"1\", verb = \"READ\", bytes = \"64B\", count = 2 }]\n  \
    [[alternative]]\n  \
    name = \"asks\"\n  \
    steps = [{ path = \"2\", verb = \"SEND\", bytes = \"16B\", reply = \"64B\" },\n           \
    { core = \"soc\", time = \"200ns\" }]\n\n\
    Paths: 1 and 2 from another machine to host and SoC, 1-out and 2-out back, 3-s2h and 3-h2s\n\
    between the two by RDMA, 3* by DMA. docs/research/plans.md explains the format; docs/plans has\n\
    four examples.")]
pub struct PlanArgs {
    /// The description: a TOML file.
    pub file: PathBuf,
    /// Run every alternative, and the mix, on the simulator as well.
    #[arg(long)]
    pub simulate: bool,
    /// How to print.
    #[arg(long, value_enum, default_value_t)]
    pub format: PlanFormat,
}

/// How a plan is printed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum PlanFormat {
    /// For people.
    #[default]
    Table,
    /// One JSON object.
    Json,
    /// A picture of the paths with their load.
    Svg,
}
