//! What the hardware records where a trace is taken: faults of frames and nodes, resources.

use std::cell::RefCell;
use std::sync::Arc;

use nicol_core::chain::Touch;
use nicol_core::faults::FaultPlan;
use nicol_core::ids::{NodeId, Side};
use nicol_core::trace::{Sink, Tracer, Track, What};
use nicol_core::units::{Nanos, Picos};

use crate::hw::{NodeHardware, picos};

/// The backlogs of a node: by how far a resource is booked beyond the present.
const BACKLOGS: [&str; 7] = [
    "link out backlog (ns)",
    "link in backlog (ns)",
    "PCIe to NIC backlog (ns)",
    "PCIe to host backlog (ns)",
    "queue to NIC backlog (ns)",
    "queue to host backlog (ns)",
    "DMA queues backlog (ns)",
];

/// The tracks of the cluster's hardware.
#[derive(Debug)]
pub(crate) struct HardwareTrace {
    sink: Arc<Sink>,
    /// By node: its track, and the backlogs as last recorded.
    nodes: Vec<(Tracer, RefCell<[u64; BACKLOGS.len()]>)>,
}

impl HardwareTrace {
    pub(crate) fn new(sink: &Arc<Sink>, nodes: impl Iterator<Item = NodeId>) -> Self {
        let track = |node| (Tracer::new(sink, Track::Hardware(node)), RefCell::default());
        Self { sink: sink.clone(), nodes: nodes.map(track).collect() }
    }

    pub(crate) fn sink(&self) -> &Arc<Sink> {
        &self.sink
    }

    /// Records the faults whose times are known from the start.
    pub(crate) fn plan(&self, plan: &FaultPlan) {
        for cut in &plan.partitions {
            for (tracer, _) in &self.nodes {
                tracer.record(cut.from, What::Fault("partition begins"));
                tracer.record(cut.until.min(plan.quiet_after), What::Fault("partition heals"));
            }
        }
    }

    /// A fault struck a frame on its way between two nodes.
    pub(crate) fn frame(
        &self,
        at: Nanos,
        fault: &'static str,
        frame: &[u8],
        ends: (NodeId, NodeId),
    ) {
        let (from, to) = ends;
        let frame = self.sink.frame_of(frame);
        self.nodes[usize::from(from.0)].0.record(at, What::FrameFault { fault, frame, from, to });
    }

    /// A fault struck a node.
    pub(crate) fn fault(&self, at: Nanos, node: NodeId, fault: &'static str) {
        self.nodes[usize::from(node.0)].0.record(at, What::Fault(fault));
    }

    /// The card of `node` accesses memory of `side`.
    pub(crate) fn access(&self, at: Nanos, node: NodeId, side: Side, touch: Touch) {
        let what = What::Access { side, name: touch.name(), bytes: touch.bytes() };
        self.nodes[usize::from(node.0)].0.record(at, what);
    }

    /// Records what has changed of a node's backlogs.
    pub(crate) fn backlogs(&self, at: Nanos, node: NodeId, hardware: &NodeHardware) {
        let (tracer, last) = &self.nodes[usize::from(node.0)];
        let queues = hardware.dma_queues.iter().map(|queue| queue.free_at()).max();
        let free = [
            hardware.link_out.free_at(),
            hardware.link_in.free_at(),
            hardware.lanes_to_nic.free_at(),
            hardware.lanes_to_host.free_at().max(hardware.drains.free_at()),
            hardware.queue_to_nic.free_at(),
            hardware.queue_to_host.free_at(),
            queues.unwrap_or_default(),
        ];
        let now = picos(at);
        let mut last = last.borrow_mut();
        for ((name, free), last) in BACKLOGS.into_iter().zip(free).zip(last.iter_mut()) {
            let value = Picos(free.0.saturating_sub(now.0)).to_nanos_up().0;
            if std::mem::replace(last, value) != value {
                tracer.record(at, What::Counter { name, value });
            }
        }
    }

    pub(crate) fn flush(&self) {
        self.nodes.iter().for_each(|(tracer, _)| tracer.flush());
    }
}
