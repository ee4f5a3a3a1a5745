//! What a run was: its time, its digest, how busy everything was.

use nicol_core::engine::EngineStats;
use nicol_core::ids::{NodeId, Side};
use nicol_core::units::{Nanos, Picos};

use crate::hw::{PciePackets, Resource, picos};
use crate::shared::Shared;
use crate::state::State;
use crate::world::{SPENT, SimWorld};
use nicol_core::faults::FaultCounts;

/// The utilization of a resource.
#[derive(Clone, Debug, PartialEq)]
pub struct Utilization {
    /// Node and resource, such as `n0.link_out`.
    pub name: String,
    /// The time for which each of its parts was taken.
    taken: Vec<Picos>,
    /// Of so much time.
    span: Nanos,
}

impl Utilization {
    /// A resource of `node` whose parts were taken for so long of `span`.
    pub fn new(node: NodeId, what: &str, taken: Vec<Picos>, span: Nanos) -> Self {
        Self { name: format!("n{}.{what}", node.0), taken, span }
    }

    /// Share of the time, 0 to 1, in the mean over its parts; 0 if it has none.
    pub fn busy(&self) -> f64 {
        // A sum of none is -0.
        let sum = self.taken.iter().map(|part| self.share(*part)).fold(0.0, |sum, part| sum + part);
        sum / self.taken.len().max(1) as f64
    }

    /// Share of the time, 0 to 1, of the part that was taken longest.
    pub fn busiest(&self) -> f64 {
        self.taken.iter().map(|part| self.share(*part)).fold(0.0, f64::max)
    }

    fn share(&self, taken: Picos) -> f64 {
        (taken.0 as f64 / picos(self.span).0.max(1) as f64).min(1.0)
    }

    fn since(&self, earlier: &Self) -> Self {
        let parts = self.taken.iter().zip(&earlier.taken);
        Self {
            name: self.name.clone(),
            taken: parts.map(|(now, then)| Picos(now.0.saturating_sub(then.0))).collect(),
            span: self.span.since(earlier.span),
        }
    }
}

/// The time that all cores of a side together spent on one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spending {
    pub side: Side,
    /// On what, such as `messages`.
    pub on: &'static str,
    pub time: Nanos,
}

/// The account of a run since its start.
#[derive(Clone, Debug, PartialEq)]
pub struct SimReport {
    /// The virtual time at the end of the run.
    pub simulated: Nanos,
    /// Events that the kernel has handled.
    pub events: u64,
    /// The same for the same configuration, seed and code, on any machine and in any build.
    pub digest: u64,
    /// The utilization of each resource of each node.
    pub resources: Vec<Utilization>,
    /// The time of the cores, by what they spent it on.
    pub spent: Vec<Spending>,
    /// The number of times that each fault struck.
    pub faults: FaultCounts,
    /// The engines' counters, summed.
    pub stats: EngineStats,
    /// PCIe packets of each node whose card's inside is modelled, since the start of the run.
    pub packets: Vec<(NodeId, PciePackets)>,
}

impl SimReport {
    /// The account of the time since `earlier`, a report of the same run; the digest stays that
    /// of the whole run.
    pub fn since(&self, earlier: &Self) -> Self {
        let resources = self.resources.iter().zip(&earlier.resources);
        let resources = resources.map(|(now, then)| now.since(then));
        let spent = self.spent.iter().zip(&earlier.spent);
        Self {
            simulated: self.simulated.since(earlier.simulated),
            events: self.events - earlier.events,
            digest: self.digest,
            resources: resources.collect(),
            spent: spent
                .map(|(now, then)| Spending { time: now.time.since(then.time), ..*now })
                .collect(),
            faults: self.faults.since(&earlier.faults),
            stats: self.stats.since(&earlier.stats),
            packets: self.packets.clone(),
        }
    }
}

/// The utilization of the resources of every node until `at`.
pub(crate) fn resources(shared: &Shared, state: &State, at: Nanos) -> Vec<Utilization> {
    let mut lines = Vec::new();
    let now = picos(at);
    for (id, node) in shared.view.node_ids().zip(&state.nodes) {
        let mut line = |what: &str, taken: Vec<Picos>| {
            lines.push(Utilization::new(id, what, taken, at));
        };
        let cores = |side: Side| {
            let engines = shared.engines.iter().zip(&state.cores);
            let mine = engines.filter(move |(at, _)| at.node == id && at.side == side);
            mine.map(|(_, core)| core)
        };
        let all = |parts: &[Resource]| parts.iter().map(|part| part.busy(now)).collect();
        let one = |part: &Resource| vec![part.busy(now)];
        line("host_cores", cores(Side::Host).map(|core| core.worked(now)).collect());
        line("nic_cores", cores(Side::Nic).map(|core| core.worked(now)).collect());
        line("link_out", one(&node.link_out));
        line("link_in", one(&node.link_in));
        line("pcie_to_nic", one(&node.lanes_to_nic));
        let drained = node.drains.busy(now);
        line("pcie_to_host", vec![node.lanes_to_host.busy(now) + drained]);
        line("packet_queue_to_nic", one(&node.queue_to_nic));
        line("packet_queue_to_host", one(&node.queue_to_host));
        line("dma_queues", all(&node.dma_queues));
        line("verb_card", one(&node.card));
        let every = || cores(Side::Host).chain(cores(Side::Nic));
        line("verb_requesters", every().map(|core| core.requester.busy(now)).collect());
        line("flushes", every().map(|core| core.flushes.busy(now)).collect());
        line("log_channels", all(&node.log_channels));
        let inside = node.inside.as_ref().map_or_else(Vec::new, |card| card.busy(now));
        for (what, busy, parts) in inside {
            line(what, vec![Picos(busy.0 / parts.max(1) as u64); parts]);
        }
    }
    lines
}

/// The PCIe packets of each node whose card's inside is modelled, since the start.
pub(crate) fn packets(shared: &Shared, state: &State) -> Vec<(NodeId, PciePackets)> {
    let nodes = shared.view.node_ids().zip(&state.nodes);
    nodes.filter_map(|(id, node)| Some((id, node.inside.as_ref()?.packets()))).collect()
}

/// The time of the cores, by what they spent it on.
pub(crate) fn spent<'a>(
    worlds: impl Iterator<Item = &'a SimWorld> + Clone,
    side: Side,
) -> impl Iterator<Item = Spending> {
    let mut sums = [Picos(0); SPENT.len()];
    for world in worlds.filter(|world| world.here().side == side) {
        for (sum, span) in sums.iter_mut().zip(world.spent()) {
            *sum += span;
        }
    }
    let named = SPENT.into_iter().zip(sums);
    named.map(move |(on, sum)| Spending { side, on, time: sum.to_nanos_up() })
}
