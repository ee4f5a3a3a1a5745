//! What a run was: its time, its digest, how busy everything was.

use nicol_core::engine::EngineStats;
use nicol_core::ids::{NodeId, Side};
use nicol_core::units::{Nanos, Picos};

use crate::hw::{PciePackets, picos};
use crate::shared::Shared;
use crate::state::State;
use crate::world::{SPENT, SimWorld};
use nicol_core::faults::FaultCounts;

/// How busy a resource was.
#[derive(Clone, Debug, PartialEq)]
pub struct Utilization {
    /// Node and resource, such as `n0.link_out`.
    pub name: String,
    /// Share of the time, 0 to 1, over all its parts.
    pub busy: f64,
}

/// What all cores of a side together spent on one thing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spending {
    /// Whose cores.
    pub side: Side,
    /// On what, such as `messages`.
    pub on: &'static str,
    /// How long.
    pub time: Nanos,
}

/// The account of a run since its start.
#[derive(Clone, Debug, PartialEq)]
pub struct SimReport {
    /// Virtual time.
    pub simulated: Nanos,
    /// Events handled.
    pub events: u64,
    /// The same for the same configuration, seed and code, on any machine and in any build.
    pub digest: u64,
    /// How busy each resource of each node was.
    pub resources: Vec<Utilization>,
    /// What the cores spent their time on.
    pub spent: Vec<Spending>,
    /// How often each fault struck.
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
        let (before, after) = (earlier.simulated.0 as f64, self.simulated.0 as f64);
        let span = (after - before).max(1.0);
        let resources = self.resources.iter().zip(&earlier.resources);
        let resources = resources.map(|(now, then)| Utilization {
            name: now.name.clone(),
            busy: ((now.busy * after - then.busy * before) / span).clamp(0.0, 1.0),
        });
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

/// How busy the resources of every node were until `now`.
pub(crate) fn resources(shared: &Shared, state: &State, now: Nanos) -> Vec<Utilization> {
    let mut lines = Vec::new();
    let now = picos(now);
    let whole = now.0.max(1) as f64;
    for (id, node) in shared.view.node_ids().zip(&state.nodes) {
        let mut line = |what: &str, busy: Picos, parts: usize| {
            let busy = busy.0 as f64 / whole / parts.max(1) as f64;
            lines.push(Utilization { name: format!("n{}.{what}", id.0), busy });
        };
        let cores = || shared.engines.iter().zip(&state.cores).filter(|(at, _)| at.node == id);
        for (what, side) in [("host_cores", Side::Host), ("nic_cores", Side::Nic)] {
            let mine = cores().filter(|(engine, _)| engine.side == side);
            let busy = mine.fold(Picos(0), |busy, (_, core)| {
                busy + Picos(core.busy.0.saturating_sub(core.busy_until.0.saturating_sub(now.0)))
            });
            line(what, busy, shared.view.engines(id, side));
        }
        line("link_out", node.link_out.busy(now), 1);
        line("link_in", node.link_in.busy(now), 1);
        line("pcie_to_nic", node.lanes_to_nic.busy(now), 1);
        line("pcie_to_host", node.lanes_to_host.busy(now) + node.drains.busy(now), 1);
        line("packet_queue_to_nic", node.queue_to_nic.busy(now), 1);
        line("packet_queue_to_host", node.queue_to_host.busy(now), 1);
        let dma = node.dma_queues.iter().fold(Picos(0), |sum, queue| sum + queue.busy(now));
        line("dma_queues", dma, node.dma_queues.len());
        line("verb_card", node.card.busy(now), 1);
        let requesters = cores().map(|(_, core)| core.requester.busy(now));
        let busiest = requesters.fold(Picos(0), Picos::max);
        line("busiest_verb_requester", busiest, 1);
        let inside = node.inside.as_ref().map_or_else(Vec::new, |card| card.busy(now));
        inside.into_iter().for_each(|(what, busy, parts)| line(what, busy, parts));
    }
    lines
}

/// The PCIe packets of each node whose card's inside is modelled, since the start.
pub(crate) fn packets(shared: &Shared, state: &State) -> Vec<(NodeId, PciePackets)> {
    let nodes = shared.view.node_ids().zip(&state.nodes);
    nodes.filter_map(|(id, node)| Some((id, node.inside.as_ref()?.packets()))).collect()
}

/// What the cores spent their time on.
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
