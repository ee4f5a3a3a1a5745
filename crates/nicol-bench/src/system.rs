//! A system as the registry lists it: what it promises, what may be set, how it is run.

use std::sync::Arc;

use anyhow::{Result, bail};
use nicol_core::serving::Backend;
use nicol_core::txn::Procedures;
use nicol_core::units::Bytes;
use nicol_core::view::Role;
use nicol_rt::{LiveCluster, LiveConfig};
use nicol_sim::Profile;
use nicol_sim::profile::{Capabilities, NicCores, OneSidedBy};
use serde::Serialize;

use crate::config::{BenchConfig, THREADS};
use crate::refused::refuse;
use crate::report::BenchRun;
use crate::settings::Described;
use crate::store::{Keeper, LogReading, Stored};
use crate::workloads::WorkloadSpec;

/// A system as the registry has it: its name, promise, needs, settings, and how to run it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct System {
    /// Its name on the command line.
    #[serde(rename = "system")]
    pub name: &'static str,
    /// The trait that it implements.
    pub family: &'static str,
    /// The guarantee to its users.
    pub guarantee: &'static str,
    pub replication: &'static str,
    /// The ordered tables that its transactions may scan: those of the client's own node, or none.
    pub scans: &'static str,
    /// Its needs of the hardware on which it is simulated.
    #[serde(skip)]
    pub needs: Needs,
    /// The faults that it survives.
    pub survives: &'static str,
    pub source: &'static str,
    /// Whether it waits for the log device before it acknowledges a write.
    #[serde(skip)]
    pub synced_log: bool,
    /// Whether it works on NIC cores, for lower latency.
    #[serde(skip)]
    pub offloads: bool,
    /// Whether host engine i of a node works with host engine i of every other node. Then all nodes
    /// have as many.
    #[serde(skip)]
    pub mirrors_engines: bool,
    /// Whether it runs on one server, whose cores share all records.
    #[serde(skip)]
    pub one_server: bool,
    /// Whether nodes that were lost come back with their data. Then the faults that are drawn may
    /// take more of them at a time than shards have backups.
    #[serde(skip)]
    pub returns: bool,
    /// Whether each node remembers the addresses of records of other shards.
    #[serde(skip)]
    pub caches_addresses: bool,
    /// Groups of counters that a sweep sums over its runs.
    #[serde(skip)]
    pub swept_counters: &'static [&'static str],
    /// Ways for an attempt to end that a sweep with coverage must have seen.
    #[serde(skip)]
    pub coverage: &'static [&'static str],
    /// Those that it must have seen besides where nodes crash.
    #[serde(skip)]
    pub coverage_of_crashes: &'static [&'static str],
    /// Names of the ways to break it on purpose, for `--set sabotage=NAME`.
    #[serde(skip)]
    pub sabotages: fn() -> Vec<&'static str>,
    /// Those of `sabotages` that change nothing in this system, and why.
    #[serde(skip)]
    pub harmless: &'static [(&'static str, &'static str)],
    /// Ways to break it that must show, at least.
    #[serde(skip)]
    pub least_faults: usize,
    /// Runs of one seed that show what the sabotage of a name does.
    #[serde(skip)]
    pub trials: fn(&System, &str, u64) -> Vec<BenchConfig>,
    /// The settings of the system of a name.
    #[serde(skip)]
    pub settings: fn(&'static str) -> Vec<Described>,
    /// Checks that it can run this workload. Errors: why not, in words.
    #[serde(skip)]
    pub accepts: fn(&System, &WorkloadSpec) -> Result<(), String>,
    /// Whether its clients may run on nodes of their own, under this workload and these settings.
    #[serde(skip)]
    pub clients_apart: fn(&System, &WorkloadSpec, &[String]) -> bool,
    /// The variation of a sweep, besides faults, as settings drawn from a seed.
    #[serde(skip)]
    pub variation: fn(&System, &WorkloadSpec, u64) -> Vec<String>,
    #[serde(skip)]
    pub run: fn(&System, &BenchConfig) -> Result<BenchRun>,
    /// The way to serve a store of single operations, if its stores run no transactions.
    #[serde(skip)]
    pub single: Option<SingleRecords>,
    /// The way to read back the logs of a store that it serves; `None` if it keeps none.
    #[serde(skip)]
    pub logs: Option<LogReading>,
    /// The way to serve a store; or why it cannot.
    #[serde(skip)]
    pub(crate) serve: Result<fn(ServeConfig) -> Result<Served>, &'static str>,
}

/// A served store whose clients get operations on one record each.
#[derive(Clone, Copy, Debug)]
pub struct SingleRecords {
    /// Bytes of the largest record.
    pub record_bytes: usize,
    /// Whether there is exactly one copy of each record.
    pub one_copy: bool,
    /// The acknowledged writes that a crash of everything may take, in words, even under a log
    /// device; `None`: none.
    pub may_lose: Option<&'static str>,
}

/// Needs without which a system cannot run. Threads offer neither NIC cores nor a card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// NIC cores of their own: host cores must not stand in for them.
    pub nic_cores: bool,
    /// One-sided operations that no core executes.
    pub card: bool,
    /// A log device, since its memory forgets. Threads have one.
    pub log_device: bool,
    /// Memory that host and NIC cores both reach as their own. Threads have that.
    pub coherent: bool,
    /// On servers, cores beside the card's path with a memory of their own. On threads some stand
    /// in for them.
    pub soc: bool,
}

impl Needs {
    pub const NONE: Self =
        Self { nic_cores: false, card: false, log_device: false, coherent: false, soc: false };
    /// It is built around a SoC.
    pub(crate) const SOC: Self = Self { soc: true, ..Self::NONE };

    /// Whether hardware that can do this suffices.
    pub fn are_met_by(self, can: Capabilities) -> bool {
        let cores = !self.nic_cores || can.nic_cores != NicCores::Host;
        cores
            && (!self.card || can.one_sided_by == OneSidedBy::Card)
            && (!self.log_device || can.log_device)
            && (!self.coherent || can.coherent)
            && (!self.soc || can.nic_cores == NicCores::OffPath)
    }

    fn are_met_by_threads(self) -> bool {
        !self.nic_cores && !self.card
    }
}

/// A store to be served to clients from elsewhere.
pub struct ServeConfig {
    pub system: &'static str,
    /// Records that each shard is prepared for; its tables grow with what is stored.
    pub capacity_per_shard: u64,
    /// The memory of all nodes together: tables, indexes and logs.
    pub memory: Bytes,
    /// The procedures of the transactions that will be submitted.
    pub procedures: Procedures,
    /// The cluster. Its log device counts for a store that is not kept.
    pub live: LiveConfig,
    /// The content that was read back, for a store that is kept in a folder.
    pub store: Option<Stored>,
    /// Bytes of all its logs from which on they are shortened.
    pub log_bytes_max: u64,
}

/// A store that serves: its engines, and what merges its logs.
pub struct Served {
    pub backend: Arc<dyn Backend>,
    /// The engines that run them.
    pub world: LiveCluster,
    /// Keeps the folder of a store short.
    pub keeper: Option<Keeper>,
}

impl System {
    /// The worlds in which it runs: threads, and the built-in profiles that have what it needs.
    pub fn worlds(&self) -> Result<Vec<&'static str>> {
        let mut worlds = Vec::new();
        if self.needs.are_met_by_threads() {
            worlds.push(THREADS);
        }
        for name in Profile::list() {
            if self.needs.are_met_by(Profile::load(name)?.capabilities()) {
                worlds.push(name);
            }
        }
        Ok(worlds)
    }

    /// Whether it may run in this world. Of a world that is not built in only a run tells.
    ///
    /// # Errors
    /// If a built-in profile cannot be read.
    pub fn may_run_on(&self, world: &str) -> Result<bool> {
        let is_built_in = Profile::list().contains(&world);
        Ok(!is_built_in || self.worlds()?.contains(&world))
    }

    /// That all of these have what it needs there.
    ///
    /// # Errors
    /// The profile that has not.
    pub(crate) fn ensure_runs_on<'p>(
        &self,
        mut nodes: impl Iterator<Item = (Role, &'p Arc<Profile>)>,
    ) -> Result<()> {
        let lacks = |role, profile: &Profile| {
            let soc = self.needs.soc && role == Role::Server;
            !Needs { soc, ..self.needs }.are_met_by(profile.capabilities())
        };
        match nodes.find(|(role, profile)| lacks(*role, profile)) {
            None => Ok(()),
            Some((_, profile)) => {
                let soc = if self.needs.soc { " (a SoC beside the path)" } else { "" };
                let why = format!("{} lacks what {} needs{soc}", profile.name, self.name);
                let remedy = format!("it runs on {}", self.worlds()?.join(", "));
                bail!(refuse("on", "", why, remedy))
            }
        }
    }

    /// Starts a store.
    ///
    /// # Errors
    /// If the system serves none, in words; if the cluster does not start.
    pub fn serve(&self, config: ServeConfig) -> Result<Served> {
        match self.serve {
            Ok(serve) => serve(config),
            Err(reason) => Err(self.serves_none(reason)),
        }
    }

    /// Checks that it can serve a store.
    ///
    /// # Errors
    /// If not: why, in words.
    pub fn ensure_serves(&self) -> Result<()> {
        match self.serve {
            Ok(_) => Ok(()),
            Err(reason) => Err(self.serves_none(reason)),
        }
    }

    /// Why it cannot serve a store; `None` if it can.
    pub fn why_no_store(&self) -> Option<&'static str> {
        self.serve.err()
    }

    fn serves_none(&self, reason: &str) -> anyhow::Error {
        refuse("system", self.name, "it cannot serve a store", reason).into()
    }

    /// Ways to break a system that the museum must show, unless less of it can be broken.
    pub(crate) const LEAST_FAULTS: usize = 6;

    /// Bytes that a record's value takes in the memory of one that serves, at least.
    pub const SERVED_VALUE_BYTES: u64 = 64;
}
