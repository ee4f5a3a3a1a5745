//! What the families of single operations share, such as key-value stores and registers: their
//! clients run YCSB's operations or churn, their histories are judged key by key.
//!
//! Such a family has a folder in `families`. It adds its systems, each [`system`] with what is
//! different about it: a node that implements [`KeyValueNode`], and a configuration that implements
//! [`SystemConfig`].

#[cfg(test)]
pub(crate) mod tests;
mod workloads;

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use anyhow::Result;
use nicol_check::durability;
use nicol_check::linearizability::{self, Bound};
use nicol_core::fabric::Fabric;
use nicol_core::history::{History, Promise};
use nicol_core::key_value::{KeyValueNode, Reason};
use nicol_core::records::Records;
use nicol_core::system::SystemNode;
use nicol_core::units::Bytes;
use nicol_workload::driver::{RunControl, RunResult};
use nicol_workload::key_value::{KeyValueWorkload, spawn_clients};

use crate::config::BenchConfig;
use crate::family::{Built, Family, Judged, Outline};
use crate::report::Promised;
use crate::runner;
use crate::settings::{Sizes, SystemConfig, apply, describe};
use crate::system::{Needs, System};

/// How a system of single operations runs.
pub trait KeyValueConfig: SystemConfig {
    /// The promise of the system as it is set: linearizable operations, and what else survives a
    /// crash.
    fn promise(&self) -> Promise {
        Promise::Linearizable
    }

    /// Its promise besides, as long as no host crashes.
    fn promise_while_hosts_live(&self) -> Option<Promise> {
        None
    }

    /// After how many writes a client ends a scope, where the system has scopes.
    fn scope_writes(&self) -> Option<u32> {
        None
    }

    /// Whether a node serves only records that it holds. Otherwise every node serves all of them.
    fn serves_own_records(&self) -> bool {
        false
    }
}

/// The system called `name` of a family, on nodes of type `N`, from `source`: linearizable, and
/// without anything that only some have.
pub const fn system<N>(family: &'static str, name: &'static str, source: &'static str) -> System
where
    N: KeyValueNode + SystemNode<Config: KeyValueConfig>,
{
    System {
        name,
        family,
        guarantee: "linearizable",
        replication: "none",
        scans: if N::OFFERED.scans { "all" } else { "none" },
        needs: Needs::NONE,
        survives: "message faults, partitions, stalls; stops after a crash",
        source,
        synced_log: false,
        offloads: false,
        mirrors_engines: false,
        one_server: false,
        single: None,
        logs: None,
        returns: N::RECOVERS,
        caches_addresses: false,
        swept_counters: &[],
        coverage: &[],
        coverage_of_crashes: &[],
        sabotages: Vec::new,
        harmless: &[],
        least_faults: System::LEAST_FAULTS,
        trials: |_, _, _| Vec::new(),
        settings: describe::<N::Config>,
        accepts: |_, spec| workloads::accepts(spec, N::OFFERED, N::VALUE_BYTES_MAX),
        clients_apart: |_, _, _| true,
        variation: |_, _, _| Vec::new(),
        run: runner::run::<SingleOperations<N>>,
        serve: Err("its operations are not built for Redis commands; xenic runs them all"),
    }
}

/// The families, on nodes of type `N`.
struct SingleOperations<N>(PhantomData<N>);

impl<N> Family for SingleOperations<N>
where
    N: KeyValueNode + SystemNode<Config: KeyValueConfig>,
{
    type Node = N;
    type Workload = KeyValueWorkload;

    const ABORTS: &'static [&'static str] = &Reason::NAMES;

    fn build(config: &BenchConfig, nic_memory: Option<Bytes>) -> Result<Built<Self>> {
        let mut spec = config.sized_workload();
        workloads::fit(&mut spec, N::VALUE_BYTES_MAX);
        let mut workload = workloads::build(&spec, config.nodes, N::VALUE_BYTES_MAX)?;
        let value_bytes = workload.value_bytes();
        let sizes = Sizes { source: &workload, value_bytes, nic_memory, live: config.is_live() };
        let mut system = N::Config::published(&config.system, &sizes);
        let mut engine = system.engines();
        apply(&config.settings, &mut system, &mut engine)?;
        system.check(config)?;
        if let Some(writes) = system.scope_writes() {
            workload = workload.with_scopes(writes);
        }
        if system.serves_own_records() {
            workload = workload.with_held_records();
        }
        let workload = Arc::new(workload);
        let outline = Outline {
            name: workload.name(),
            kinds: workload.kinds(),
            promised: promised(system.promise()),
            while_hosts_live: system.promise_while_hosts_live(),
            source: workload.clone(),
            value_bytes,
            engine,
            longest_wait: system.longest_wait(),
            warnings: system.warnings(),
        };
        Ok(Built { workload, system, outline })
    }

    fn start<F: Fabric>(
        node: &Arc<N>,
        fabric: &F,
        workload: &Arc<KeyValueWorkload>,
        run: &Arc<RunControl>,
        numbers: Range<u32>,
    ) {
        if let Some(client) = node.start(fabric) {
            spawn_clients(fabric, &client, workload, run, numbers);
        }
    }

    fn invariants(
        workload: &KeyValueWorkload,
        state: &mut dyn Records,
        result: &RunResult,
    ) -> Vec<String> {
        let is_known = result.whole.unknown == 0 && N::REPLICAS_CONVERGE;
        workload.audit(state, is_known.then(|| result.totals().iter().sum()))
    }

    fn judge(history: &History) -> Judged {
        match history.promise {
            Promise::Durable(model) => {
                let report = durability::check(history, model, Bound::default());
                Judged {
                    wrong: lines(&report.violations).chain(lines(&report.undecided)).collect(),
                    acknowledged_lost: Some(report.acknowledged_lost as u64),
                }
            }
            _ => {
                let report = linearizability::check(history, Bound::default());
                Judged::of(lines(&report.violations).chain(lines(&report.undecided)).collect())
            }
        }
    }
}

fn lines(found: &[impl ToString]) -> impl Iterator<Item = String> {
    found.iter().map(ToString::to_string)
}

/// How a promise is called in reports.
fn promised(promise: Promise) -> Promised {
    let checked = "checked_operations";
    match promise {
        Promise::Durable(_) => Promised {
            field: "durable",
            words: "linearizable and durable",
            checker: "durability",
            checked,
            promise,
        },
        _ => Promised {
            field: "linearizable",
            words: "linearizable",
            checker: "linearizability",
            checked,
            promise,
        },
    }
}
