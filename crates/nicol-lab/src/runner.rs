//! Runs a system of any family in its world.

use std::sync::Arc;

use anyhow::{Result, bail};
use nicol_sim::{Profile, checks};

use crate::config::BenchConfig;
use crate::family::Family;
use crate::hardware::THREADS;
use crate::report::BenchRun;

/// Runs a benchmark of a family's system.
pub(crate) fn run<Y: Family>(config: &BenchConfig) -> Result<BenchRun> {
    if config.rate == Some(0) {
        bail!("--rate 0: an open loop needs at least one transaction per second");
    }
    if config.on == THREADS {
        return crate::live::run::<Y>(config);
    }
    crate::simulated::run::<Y>(config)
}

/// A system that works on NIC cores is flagged where these save no latency. [Xenic21 4.3.4]
pub(crate) fn vain_offload(profile: &Arc<Profile>) -> Result<Option<String>> {
    let name = &profile.name;
    Ok(match checks::offload(profile)? {
        None => Some(format!(
            "{name} has no NIC cores: what the system puts there runs on cores of the host"
        )),
        Some(offload) if !offload.saves_latency() => Some(format!(
            "on {name} the NIC saves no latency: it answers in {:.1} us from its own memory and in \
             {:.1} us from the host's, a host RPC takes {:.1} us",
            offload.served_ns / 1e3,
            offload.fetched_ns / 1e3,
            offload.host_rpc_ns / 1e3
        )),
        Some(_) => None,
    })
}
