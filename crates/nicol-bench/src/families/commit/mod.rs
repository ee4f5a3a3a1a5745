//! The commit family: distributed transactions, strictly serializable but where a system promises
//! less.

mod read_back;
mod recovery_trials;
mod report;
mod settings;
mod trials;
mod variation;
mod workloads;

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use anyhow::{Result, anyhow, ensure};
use nicol_check::serializability;
use nicol_commit::{rdma_occ, xenic};
use nicol_core::commit::{CommitNode, WITHOUT_LOST_NODES};
use nicol_core::fabric::Fabric;
use nicol_core::history::{History, Promise};
use nicol_core::records::{RecordSource, Records};
use nicol_core::system::SystemNode;
use nicol_core::txn::{Abort, Procedures};
use nicol_core::units::Bytes;
use nicol_core::workload::Workload;
use nicol_workload::driver::{RunControl, RunResult, spawn_clients};
use nicol_workload::tpcc::Indices;

pub use report::Lookups;
use settings::{SABOTAGES, SABOTAGES_OF_RECOVERY, SABOTAGES_OF_XENIC};
pub use variation::WAYS;
pub use workloads::{BuiltWorkload, build};

use crate::config::BenchConfig;
use crate::families::serving;
use crate::family::{Addition, Built, Counters, Family, Judged, Outline};
use crate::refused::refuse;
use crate::report::Promised;
use crate::runner;
use crate::settings::{Settings, Sizes, SystemConfig, apply, describe};
use crate::system::{Needs, System};

/// The systems of the family.
pub(crate) static SYSTEMS: &[System] = &[
    System {
        synced_log: true,
        offloads: true,
        sabotages: || {
            let of_steps = SABOTAGES.iter().chain(&SABOTAGES_OF_XENIC);
            of_steps.chain(&SABOTAGES_OF_RECOVERY).map(|(name, _)| *name).collect()
        },
        mirrors_engines: false,
        logs: Some(read_back::TRANSACTIONS),
        serve: Ok(serving::serve::<xenic::Node>),
        ..system::<xenic::Node>("xenic", "Xenic, SOSP '21")
    },
    system::<rdma_occ::Node>("farm", "FaRM, SOSP '15"),
    system::<rdma_occ::Node>("farm-software", "FaRM, SOSP '15, in the software of PRISM, SOSP '21"),
    system::<rdma_occ::Node>("fasst", "FaSST, OSDI '16"),
    System {
        caches_addresses: true,
        ..system::<rdma_occ::Node>("drtm-r", "DrTM+R, EuroSys '16, with the protocol of DrTM+H")
    },
    System {
        caches_addresses: true,
        harmless: &[("validate_ignores_locks", LOCKS_ALL)],
        ..system::<rdma_occ::Node>("drtm-r-original", "DrTM+R, EuroSys '16")
    },
    System { caches_addresses: true, ..system::<rdma_occ::Node>("drtm-h", "DrTM+H, OSDI '18") },
    system::<rdma_occ::Node>("drtm-h-nc", "DrTM+H, OSDI '18, without its address cache"),
];

/// The runs of `seed` in which `sabotage` shows.
fn trials(system: &System, sabotage: &str, seed: u64) -> Vec<BenchConfig> {
    match SABOTAGES_OF_RECOVERY.iter().any(|(name, _)| *name == sabotage) {
        true => recovery_trials::trials(system, sabotage, seed),
        false => trials::trials(system, seed),
    }
}

/// Why a sabotage changes nothing in DrTM+R's own protocol.
const LOCKS_ALL: &str = "it locks every record that it reads, and ranges have no locks";

/// The system of this name.
///
/// # Errors
/// If it is none of the family's.
pub fn find(name: &str) -> Result<&'static System> {
    let found = SYSTEMS.iter().find(|system| system.name == name);
    found.ok_or_else(|| anyhow!("no system of the commit family is called '{name}'"))
}

/// The system called `name`, on nodes of type `N`, from `source`: replicated, and without anything
/// that only some have.
pub(crate) const fn system<N>(name: &'static str, source: &'static str) -> System
where
    N: CommitNode + SystemNode<Config: SystemConfig>,
{
    System {
        name,
        family: "commit",
        guarantee: promised(N::PROMISE).words,
        replication: "primary-backup, all acknowledge",
        scans: if N::SCANS { "local" } else { "none" },
        // Software stands in for missing hardware.
        needs: Needs::NONE,
        survives: if N::FOLLOWS_VIEWS {
            "message faults, partitions, stalls; after a crash the node's shard is refused, and what \
             it left undecided stays locked"
        } else {
            "message faults, partitions, stalls; stops after a crash"
        },
        source,
        synced_log: false,
        offloads: false,
        mirrors_engines: true,
        one_server: false,
        single: None,
        logs: None,
        returns: N::RECOVERS,
        caches_addresses: false,
        swept_counters: &[WITHOUT_LOST_NODES],
        coverage: Abort::NAMES.split_at(Abort::WITHOUT_CRASHES).0,
        coverage_of_crashes: if N::FOLLOWS_VIEWS {
            Abort::NAMES.split_at(Abort::WITHOUT_CRASHES).1
        } else {
            &[]
        },
        sabotages: || SABOTAGES.iter().map(|(name, _)| *name).collect(),
        harmless: &[],
        least_faults: System::LEAST_FAULTS,
        trials,
        settings: describe::<N::Config>,
        accepts: |_, spec| workloads::accepts(spec, N::SCANS),
        clients_apart: |_, spec, settings| {
            let scans = N::SCANS && !N::SCANS_FROM_AFAR;
            N::Config::allow_clients_apart(settings) && !(scans && workloads::may_be_local(spec))
        },
        variation: variation::variation,
        run: runner::run::<Transactions<N>>,
        serve: Err("its tables have a fixed size; xenic's grow"),
    }
}

/// The name of a promise in reports.
const fn promised(promise: Promise) -> Promised {
    let words = match promise {
        Promise::Serializable => "serializable",
        Promise::SessionSerializable => "serializable in each client's order",
        _ => "strictly serializable",
    };
    Promised {
        field: "serializable",
        words,
        checker: "serializability",
        checked: "checked_transactions",
        promise,
    }
}

/// The family, on nodes of type `N`.
struct Transactions<N>(PhantomData<N>);

/// The workload of its clients.
struct ClientWorkload {
    workload: Arc<dyn Workload>,
    procedures: Procedures,
}

impl<N> Family for Transactions<N>
where
    N: CommitNode + SystemNode<Config: SystemConfig>,
{
    type Node = N;
    type Workload = ClientWorkload;

    const ABORTS: &'static [&'static str] = &Abort::NAMES;

    fn build(config: &BenchConfig, nic_memory: Option<Bytes>) -> Result<Built<Self>> {
        let mut spec = config.sized_workload();
        if N::SCANS && spec.is_tpcc() {
            spec.indices.get_or_insert(Indices::Trees);
        }
        ensure!(
            config.client_nodes == 0 || N::SCANS_FROM_AFAR || !workloads::is_local(&spec),
            refuse(
                "client_nodes",
                config.client_nodes,
                format!("{} scans the trees of its client's own node", spec.name),
                "leave it out"
            )
        );
        let BuiltWorkload { workload, value_bytes } = workloads::build(&spec, config.nodes)?;
        let source: Arc<dyn RecordSource> = workload.clone();
        let sizes = Sizes { source: &*source, value_bytes, nic_memory, live: config.is_live() };
        let mut system = N::Config::published(&config.system, &sizes);
        let mut engine = system.engines();
        apply(&config.settings, &mut system, &mut engine)?;
        system.check(config)?;
        let outline = Outline {
            name: workload.name(),
            kinds: workload.kinds(),
            promised: promised(N::PROMISE),
            while_hosts_live: None,
            source,
            value_bytes,
            engine,
            longest_wait: system.longest_wait(),
            warnings: system.warnings(),
        };
        let clients = ClientWorkload { procedures: workload.procedures(), workload };
        Ok(Built { workload: Arc::new(clients), system, outline })
    }

    fn start<F: Fabric>(
        node: &Arc<N>,
        fabric: &F,
        clients: &Arc<ClientWorkload>,
        run: &Arc<RunControl>,
        numbers: Range<u32>,
    ) {
        let Some(coordinator) = node.start(fabric, &clients.procedures) else { return };
        let count = numbers.end - numbers.start;
        spawn_clients(fabric, &coordinator, &clients.workload, run, numbers.start, count);
    }

    fn invariants_of_read_back(clients: &ClientWorkload, state: &mut dyn Records) -> Vec<String> {
        clients.workload.audit_state(state)
    }

    fn invariants(
        clients: &ClientWorkload,
        state: &mut dyn Records,
        result: &RunResult,
    ) -> Vec<String> {
        // The sums cover known commits only: a transaction of unknown outcome may have moved money.
        if result.whole.unknown > 0 {
            clients.workload.audit_state(state)
        } else {
            clients.workload.audit(state, &result.totals())
        }
    }

    fn invariants_of_survivors(clients: &ClientWorkload, state: &mut dyn Records) -> Vec<String> {
        clients.workload.audit_survivors(state)
    }

    fn judge(history: &History) -> Judged {
        let report = serializability::check(history);
        let undecided = report.undecided.map(|why| format!("undecided: {why}"));
        Judged::of(report.violations.iter().map(ToString::to_string).chain(undecided).collect())
    }

    fn report(counters: &Counters) -> Addition {
        report::addition(counters)
    }
}
