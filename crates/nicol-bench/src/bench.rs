//! `bench`: a system under a workload in a world, measured and judged.

use anyhow::{Result, bail, ensure};
use nicol_rt::LogDevice;

pub use crate::config::{BenchConfig, Length, THREADS, refused_view};
use crate::refused::refuse;
pub use crate::report::BenchRun;
use crate::{hardware, systems};

/// Runs a benchmark in its world.
pub fn run(config: &BenchConfig) -> Result<BenchRun> {
    let system = systems::find(&config.system)?;
    if !system.synced_log && config.log_device != LogDevice::Memory {
        let waiting = systems::all().filter(|other| other.synced_log).map(|other| other.name);
        let why = format!("{} does not wait for a log device", system.name);
        let remedy = format!("choose one of {}", waiting.collect::<Vec<_>>().join(", "));
        bail!(refuse("log_device", "", why, remedy));
    }
    ensure!(
        !system.one_server || config.nodes == 1,
        refuse(
            "nodes",
            config.nodes,
            format!("{} runs on one server", system.name),
            "give 1, and `host_engines` for more cores",
        )
    );
    if let Err(reason) = (system.accepts)(system, &config.workload) {
        bail!("{} on {}: {reason}", config.workload.name, system.name);
    }
    ensure!(
        config.recorded_run || !config.is_faulty(),
        refuse(
            "no_recorded_run",
            "",
            "what `faults` does is seen in the history",
            "leave one of them out"
        )
    );
    let mut ran = (system.run)(system, config)?;
    if system.offloads && ran.report.profile.is_some() {
        let profile = hardware::first_profile(config)?;
        ran.report.warnings.extend(hardware::vain_offload(&profile)?);
    }
    ran.report.warnings.extend(config.vain_partitions());
    Ok(ran)
}
