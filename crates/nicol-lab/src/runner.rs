//! Runs a system of any family in its world.

use anyhow::{Result, bail};
use nicol_core::system::SystemNode;
use nicol_core::units::Bytes;
use nicol_core::view::{Halves, View};
use nicol_workload::driver::RunPlan;

use crate::cluster::{self, Loaded};
use crate::config::BenchConfig;
use crate::family::{Built, Family};
use crate::report::BenchRun;
use crate::system::System;

/// A configuration with its parts built, of whatever family.
pub(crate) trait BuiltSystem {
    /// Which sides of a node the system needs together.
    fn halves(&self) -> Halves;

    /// Loads a cluster.
    ///
    /// Errors: it takes more memory than the machine has.
    fn load(
        self: Box<Self>,
        config: &BenchConfig,
        view: &View,
        plan: RunPlan,
        clients_per_node: usize,
    ) -> Result<Loaded>;
}

impl<Y: Family> BuiltSystem for Built<Y> {
    fn halves(&self) -> Halves {
        <Y::Node as SystemNode>::halves(&self.system)
    }

    fn load(
        self: Box<Self>,
        config: &BenchConfig,
        view: &View,
        plan: RunPlan,
        clients_per_node: usize,
    ) -> Result<Loaded> {
        cluster::load(config, view, *self, plan, clients_per_node)
    }
}

/// Builds a system, for NICs with so much memory where that is known.
pub(crate) type Build = fn(&BenchConfig, Option<Bytes>) -> Result<Box<dyn BuiltSystem>>;

fn build<Y: Family>(
    config: &BenchConfig,
    nic_memory: Option<Bytes>,
) -> Result<Box<dyn BuiltSystem>> {
    Ok(Box::new(Y::build(config, nic_memory)?))
}

/// Runs a benchmark of a family's system.
pub(crate) fn run<Y: Family>(system: &System, config: &BenchConfig) -> Result<BenchRun> {
    run_built(system, config, build::<Y>)
}

fn run_built(system: &System, config: &BenchConfig, build: Build) -> Result<BenchRun> {
    if config.rate == Some(0) {
        bail!("--rate 0: an open loop needs at least one transaction per second");
    }
    if config.is_live() {
        return crate::live::run(config, build);
    }
    crate::simulated::run(system, config, build)
}
