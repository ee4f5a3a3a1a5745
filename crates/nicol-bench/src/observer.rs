//! Looks at a run for what becomes of its membership.

use nicol_core::ids::{Epoch, NodeId, ShardId, Side};
use nicol_core::units::Nanos;
use nicol_core::view::View;

use crate::cluster::Cluster;
use crate::milestones::{Milestones, ShardInherited, ViewMade};

/// The milestones of a run while it goes on.
pub(crate) struct Observer<'r> {
    cluster: &'r Cluster,
    /// The newest view that it has seen.
    view: View,
    /// The shards that wait for the nodes which are to lead them.
    awaited: Vec<(ShardId, NodeId)>,
    seen: Milestones,
}

impl<'r> Observer<'r> {
    pub(crate) fn new(cluster: &'r Cluster) -> Self {
        let (view, awaited, seen) = (cluster.view.clone(), Vec::new(), Milestones::default());
        Self { cluster, view, awaited, seen }
    }

    /// It is `now`; `newer` is the newest view, if it is another than that of an epoch.
    ///
    /// Cost: a comparison, unless the view has changed or a shard waits for its new primary.
    pub(crate) fn pass(&mut self, now: Nanos, newer: impl FnOnce(Epoch) -> Option<View>) {
        if let Some(view) = newer(self.view.epoch()) {
            self.learn(view, now);
        }
        let (cluster, seen) = (self.cluster, &mut self.seen);
        self.awaited.retain(|&(shard, by)| {
            let serves = cluster.nodes[by.index()].serves(shard);
            if serves {
                seen.inherited.push(ShardInherited { at_ns: now.0, shard: shard.0, by: by.0 });
            }
            !serves
        });
    }

    fn learn(&mut self, view: View, now: Nanos) {
        let is_whole =
            |node: &NodeId| [Side::Host, Side::Nic].iter().all(|s| view.side(*node, *s).up);
        let without = view.node_ids().filter(|node| !is_whole(node)).map(|node| node.0).collect();
        self.seen.views.push(ViewMade { at_ns: now.0, epoch: view.epoch().0, without });
        for shard in view.shard_ids() {
            let heir = view.primary(shard);
            if heir != self.view.primary(shard) {
                self.awaited.retain(|(waits, _)| *waits != shard);
                self.awaited.push((shard, heir));
            }
        }
        self.view = view;
    }

    /// The changes that it has seen, and the newest view.
    pub(crate) fn end(self) -> (Milestones, View) {
        (self.seen, self.view)
    }
}
