//! `nicol plan`: which paths of an off-path SmartNIC to use for what.

use std::path::PathBuf;

use anyhow::Result;
use clap::{Args, ValueEnum};
use nicol_lab::planner::{Description, picture, plan};

use crate::{End, environment_or_usage, output};

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
    between the two by RDMA, 3* by DMA. docs/plans has the page and four examples.")]
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

/// Plans a description.
pub fn run(args: &PlanArgs) -> Result<End> {
    let description = Description::load(&args.file).map_err(environment_or_usage)?;
    let plan = plan(&description, args.simulate).map_err(environment_or_usage)?;
    match args.format {
        PlanFormat::Table => output::print(&plan.to_string())?,
        PlanFormat::Json => output::json(&plan.json())?,
        PlanFormat::Svg => output::print(&picture(&plan))?,
    }
    Ok(End::Held)
}
