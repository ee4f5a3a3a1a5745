//! `nicol plan`: which paths of an off-path SmartNIC to use for what.

use anyhow::Result;
use nicol_planner::{Description, picture, plan};

use crate::cli::{PlanArgs, PlanFormat};
use crate::{End, environment_or_usage, output};

/// Plans a description.
pub fn run(args: &PlanArgs) -> Result<End> {
    let description = Description::load(&args.file).map_err(environment_or_usage)?;
    let plan = plan(&description, args.simulate).map_err(environment_or_usage)?;
    match args.format {
        PlanFormat::Table => output::print(&plan.report()?.to_string())?,
        PlanFormat::Json => output::json(&plan.report()?.json())?,
        PlanFormat::Svg => output::print(&picture(&plan))?,
    }
    Ok(End::Held)
}
