//! How many nodes the faults of a run take, and so what its load must do.

use std::collections::BTreeSet;

use nicol_core::faults::FaultPlan;
use nicol_core::ids::NodeId;
use nicol_core::units::Nanos;
use nicol_core::view::{Role, Succession, View};

/// The toll of a plan of faults on a cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Toll {
    /// No node that holds data.
    #[default]
    Nothing,
    /// At most as many nodes as shards have backups, and these lead what has lost its primary.
    Recovered,
    /// As many at most, but nobody serves what they led.
    Unserved,
    /// More nodes than shards have backups: what is lost with them nobody serves.
    Beyond,
}

impl Toll {
    /// That of `plan` in a cluster of this first view, where a node that is silent for longer than
    /// `lease` is given up.
    pub(crate) fn of(plan: &FaultPlan, view: &View, lease: Nanos) -> Self {
        let lost = lost(plan, view, lease).len();
        if lost == 0 {
            Self::Nothing
        } else if lost >= view.replicas() {
            Self::Beyond
        } else if view.succession() == Succession::Backups {
            Self::Recovered
        } else {
            Self::Unserved
        }
    }

    /// Must a run do at least half of its load?
    pub const fn leaves_load(self) -> bool {
        matches!(self, Self::Nothing | Self::Recovered)
    }
}

/// The nodes with data that `plan` may take.
pub(crate) fn lost(plan: &FaultPlan, view: &View, lease: Nanos) -> BTreeSet<NodeId> {
    let nodes = view.nodes();
    let engines: Vec<NodeId> = view.engine_ids().map(|engine| engine.node).collect();
    let takes = |sides: &[_]| sides.iter().any(|&side| view.halves().are_lost_with(side));
    let crashes = plan.crashes.iter().filter(|crash| takes(crash.scope.sides()));
    let crashed = crashes.flat_map(|crash| view.node_ids().filter(|&node| crash.hits(node, nodes)));
    let long = plan.partitions.iter().filter(|cut| cut.until.since(cut.from) >= lease);
    let cut = long.flat_map(|cut| view.node_ids().filter(|&node| cut.side.contains(node)));
    let long = plan.stalls.iter().filter(|stall| stall.span >= lease);
    let paused = long.filter_map(|stall| engines.get(stall.engine as usize % engines.len()));
    let holds = |node: &NodeId| view.role(*node) == Some(Role::Server);
    crashed.chain(cut).chain(paused.copied()).filter(holds).collect()
}

#[cfg(test)]
mod tests {
    use nicol_core::faults::{Crash, CrashScope, Partition, Stall};
    use nicol_core::view::NodeSet;

    use super::*;

    #[test]
    fn losses_up_to_the_number_of_backups_are_recovered_from_if_somebody_inherits() {
        let lease = Nanos(100);
        let view = View::new(3, 2, 1, 1).unwrap();
        let heirs = view.clone().with_succession(Succession::Backups);
        let crash =
            |node, scope| Crash { scope, node, at: Nanos(5), restart_after: Some(Nanos(1)) };
        let of = |crashes: &[Crash]| {
            let plan = FaultPlan { crashes: crashes.to_vec(), ..FaultPlan::none() };
            [Toll::of(&plan, &view, lease), Toll::of(&plan, &heirs, lease)]
        };
        let (one, other) = (crash(4, CrashScope::Nic), crash(1, CrashScope::Node));
        assert_eq!(of(&[]), [Toll::Nothing; 2]);
        assert_eq!(of(&[one, other]), [Toll::Unserved, Toll::Recovered], "both hit node 1");
        assert_eq!(of(&[one, crash(2, CrashScope::Host)]), [Toll::Beyond; 2]);
        assert_eq!(of(&[crash(0, CrashScope::All)]), [Toll::Beyond; 2]);
        let cut = |until| {
            let side = NodeSet::from_iter([NodeId(0), NodeId(2)]);
            Partition { from: Nanos(1), until: Nanos(until), side, one_way: true }
        };
        let stall = Stall { engine: 9, from: Nanos(0), span: lease };
        let plan = |until| FaultPlan {
            partitions: vec![cut(until)],
            stalls: vec![stall],
            ..FaultPlan::none()
        };
        let nodes = |until| lost(&plan(until), &view, lease).into_iter().collect::<Vec<_>>();
        assert_eq!(nodes(100), [NodeId(1)], "a short cut takes nobody; engine 3 is of node 1");
        assert_eq!(nodes(101), [NodeId(0), NodeId(1), NodeId(2)]);
    }
}
