//! The systems by name: what each promises, what may be set, how it is run.

use anyhow::{Result, anyhow};
use nicol_core::commit::CommitNode;
use nicol_core::names::did_you_mean;

use nicol_protocols::commit::{rdma_occ, xenic};
use serde::Serialize;

use crate::bench::{self, BenchConfig, BenchRun};
use crate::settings::{self, Setting, SystemConfig};

/// A system.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct System {
    /// Its name on the command line.
    #[serde(rename = "system")]
    pub name: &'static str,
    /// The trait that it implements.
    pub family: &'static str,
    /// What its users may rely on.
    pub guarantee: &'static str,
    /// How it replicates.
    pub replication: &'static str,
    /// Which ordered tables its transactions may scan: those of the client's own node, or none.
    pub scans: &'static str,
    /// Where it runs.
    pub worlds: &'static str,
    /// Which faults it survives.
    pub survives: &'static str,
    /// The paper.
    pub source: &'static str,
    /// Does it wait for the log device before it acknowledges a write?
    #[serde(skip)]
    pub synced_log: bool,
    /// Does it work on NIC cores, in the hope of lower latency?
    #[serde(skip)]
    pub offloads: bool,
    #[serde(skip)]
    keys: fn() -> Vec<&'static Setting>,
    #[serde(skip)]
    run: fn(&BenchConfig) -> Result<BenchRun>,
}

const fn commit<N>(name: &'static str, source: &'static str) -> System
where
    N: CommitNode<Config: SystemConfig>,
{
    System {
        name,
        family: "commit",
        guarantee: "strictly serializable",
        replication: "primary-backup, all acknowledge",
        scans: if N::SCANS { "local" } else { "none" },
        worlds: "threads, liquidio3, connectx5",
        survives: "message faults, partitions, stalls",
        source,
        synced_log: false,
        offloads: false,
        keys: || settings::keys::<N::Config>().collect(),
        run: bench::run_system::<N>,
    }
}

/// Every system.
pub const SYSTEMS: &[System] = &[
    System {
        synced_log: true,
        offloads: true,
        ..commit::<xenic::Node>("xenic", "Xenic, SOSP '21")
    },
    commit::<rdma_occ::Node>("farm", "FaRM, SOSP '15"),
    commit::<rdma_occ::Node>("fasst", "FaSST, OSDI '16"),
    commit::<rdma_occ::Node>("drtm-r", "DrTM+R, EuroSys '16, with the protocol of DrTM+H"),
    commit::<rdma_occ::Node>("drtm-r-original", "DrTM+R, EuroSys '16"),
    commit::<rdma_occ::Node>("drtm-h", "DrTM+H, OSDI '18"),
    commit::<rdma_occ::Node>("drtm-h-nc", "DrTM+H, OSDI '18, without its address cache"),
];

impl System {
    /// The system of this name. The error names those that there are.
    pub fn find(name: &str) -> Result<&'static Self> {
        let known = || SYSTEMS.iter().map(|system| system.name);
        SYSTEMS.iter().find(|system| system.name == name).ok_or_else(|| {
            let (meant, all) = (did_you_mean(name, known()), known().collect::<Vec<_>>());
            anyhow!("unknown system '{name}'{meant}: choose one of {}", all.join(", "))
        })
    }

    /// What `--set` may change in it.
    pub fn settings(&self) -> Vec<&'static Setting> {
        (self.keys)()
    }

    pub(crate) fn run(&self, config: &BenchConfig) -> Result<BenchRun> {
        (self.run)(config)
    }
}
