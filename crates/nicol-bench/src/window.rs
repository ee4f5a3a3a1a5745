//! How busy everything was in the measured time of a simulated run, without what came before and
//! after it.

use nicol_core::ids::NodeId;
use nicol_core::system::Taken;
use nicol_core::units::{Nanos, Picos};
use nicol_sim::{SimCluster, SimReport, Utilization};

use crate::binding::Resource;
use crate::cluster::Cluster;

/// Looks at the clusters' accounts at both ends of the measured time.
pub(crate) struct Window<'r> {
    world: &'r SimCluster,
    cluster: &'r Cluster,
    /// The time of the next look.
    look_at: Nanos,
    first: Option<Look>,
    last: Option<Look>,
}

/// The accounts at an instant, from the start of the run.
struct Look {
    report: SimReport,
    taken: Vec<(NodeId, Vec<Taken>)>,
}

impl<'r> Window<'r> {
    /// The measured time of the plan of `cluster`'s run.
    pub(crate) fn of(world: &'r SimCluster, cluster: &'r Cluster) -> Self {
        let look_at = cluster.run.plan().warmup_until;
        Self { world, cluster, look_at, first: None, last: None }
    }

    /// It is `now`: looks if one end of the measured time has come.
    ///
    /// Cost: a comparison, but for two looks at everything.
    pub(crate) fn pass(&mut self, now: Nanos) {
        if now < self.look_at {
            return;
        }
        if self.first.is_none() {
            self.first = Some(self.look());
            self.look_at = self.cluster.run.plan().stop_at;
        } else if self.last.is_none() {
            self.last = Some(self.look());
            self.look_at = Nanos::MAX;
        }
    }

    fn look(&self) -> Look {
        let survivors = self.cluster.surviving_ids();
        let taken = |id: NodeId| (id, self.cluster.nodes[id.index()].taken());
        Look { report: self.world.report(), taken: survivors.map(taken).collect() }
    }

    /// The utilization of all resources in it: until now, if it has not ended.
    pub(crate) fn resources(mut self) -> Vec<Resource> {
        let last = self.last.take().unwrap_or_else(|| self.look());
        let Some(first) = self.first else {
            return last.report.resources.iter().map(Resource::of).collect();
        };
        let between = last.report.since(&first.report);
        let places = places(&first, &last, between.simulated);
        between.resources.iter().chain(&places).map(Resource::of).collect()
    }
}

/// The places of every node that has been there all the time.
fn places(first: &Look, last: &Look, span: Nanos) -> Vec<Utilization> {
    let mut found = Vec::new();
    for (node, after) in &last.taken {
        let before = first.taken.iter().find(|(id, _)| id == node);
        for (then, now) in before.into_iter().flat_map(|(_, before)| before).zip(after) {
            let places = u64::from(now.places.max(1));
            let each = Picos::from_nanos(now.time.since(then.time)).0 / places;
            found.push(Utilization::new(*node, now.name, vec![Picos(each)], span));
        }
    }
    found
}
