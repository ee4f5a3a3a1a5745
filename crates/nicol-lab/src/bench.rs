//! `bench`: a system under a workload in a world, measured and judged.

use anyhow::{Result, bail, ensure};
use nicol_rt::LogDevice;

pub use crate::config::{BenchConfig, Length, THREADS, refused_view};
pub use crate::report::BenchRun;
use crate::{hardware, systems};

/// Runs a benchmark in its world.
pub fn run(config: &BenchConfig) -> Result<BenchRun> {
    let system = systems::find(&config.system)?;
    if !system.synced_log && config.log_device != LogDevice::Memory {
        let waiting = systems::all().filter(|other| other.synced_log).map(|other| other.name);
        bail!(
            "--log-device: {} does not wait for a log device; choose one of {}",
            system.name,
            waiting.collect::<Vec<_>>().join(", ")
        );
    }
    ensure!(
        !system.one_server || config.nodes == 1,
        "--nodes {}: {} runs on one server; give 1, and --host-engines for more cores",
        config.nodes,
        system.name
    );
    if let Err(reason) = (system.accepts)(system, &config.workload) {
        bail!("{} on {}: {reason}", config.workload.name, system.name);
    }
    ensure!(
        config.recorded_run || !config.is_faulty(),
        "--no-recorded-run: what --faults does is seen in the history; leave one of them out"
    );
    let mut ran = (system.run)(system, config)?;
    if system.offloads && ran.report.profile.is_some() {
        let profile = hardware::first_profile(config)?;
        ran.report.warnings.extend(hardware::vain_offload(&profile)?);
    }
    ran.report.warnings.extend(config.vain_partitions());
    Ok(ran)
}
