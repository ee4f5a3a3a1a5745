//! A configuration with its parts built, whatever the family: what both worlds load.

use anyhow::Result;
use nicol_core::system::SystemNode;
use nicol_core::units::Bytes;
use nicol_core::view::{Halves, Succession, View};
use nicol_workload::driver::RunPlan;

use crate::cluster::{self, Loaded};
use crate::config::BenchConfig;
use crate::family::{Built, Family};

/// A configuration with its parts built, of whatever family.
pub(crate) trait BuiltSystem {
    /// The sides of a node that the system needs together.
    fn halves(&self) -> Halves;

    /// The fate of a shard whose primary is lost.
    fn succession(&self) -> Succession;

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

    fn succession(&self) -> Succession {
        <Y::Node as SystemNode>::succession(&self.system)
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

/// The build of a family.
pub(crate) fn build<Y: Family>(
    config: &BenchConfig,
    nic_memory: Option<Bytes>,
) -> Result<Box<dyn BuiltSystem>> {
    Ok(Box::new(Y::build(config, nic_memory)?))
}
