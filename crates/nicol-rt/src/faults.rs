//! Faults at the live transport: frames between nodes are lost, doubled, late, damaged or cut off,
//! engines stand still, as a [`FaultPlan`] says.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use nicol_core::faults::{FaultCounts, FaultPlan, Faults, FrameFault};
use nicol_core::ids::NodeId;
use nicol_core::trace::{Tracer, What};
use nicol_core::units::Nanos;

/// A frame on its way: when it arrives, its number, the engine it goes to, its bytes.
type Late = (Nanos, u64, usize, Vec<u8>);

/// The faulty wire behind one engine.
#[derive(Debug)]
pub(crate) struct FaultyWire {
    faults: Faults,
    late: BinaryHeap<Reverse<Late>>,
    trace: Option<Tracer>,
    sent: u64,
}

impl FaultyWire {
    /// The wire of engine `index` under `plan`.
    pub(crate) fn new(plan: FaultPlan, seed: u64, index: usize, trace: Option<Tracer>) -> Self {
        // Owner 1 draws the plan itself.
        let faults = Faults::new(plan, seed, 2 + index as u32);
        Self { faults, late: BinaryHeap::new(), trace, sent: 0 }
    }

    /// Takes a frame from one node to another; [`FaultyWire::due`] yields what arrives of it.
    pub(crate) fn take(
        &mut self,
        now: Nanos,
        (from, to): (NodeId, NodeId),
        engine: usize,
        mut frame: Vec<u8>,
    ) {
        let fault = self.faults.judge(now, from, to);
        self.trace_fault(now, (from, to), &frame, &fault);
        if let Some(after) = fault.again {
            let copy = frame.clone();
            if let Some(trace) = &self.trace {
                trace.sink().frame_copied(&frame, &copy);
            }
            self.hold(now + after, engine, copy);
        }
        if let Some(after) = fault.arrives {
            if fault.flips > 0 {
                self.faults.flip(&mut frame, fault.flips);
            }
            self.hold(now + after, engine, frame);
        }
    }

    /// Records what happens to a frame.
    fn trace_fault(&self, at: Nanos, ends: (NodeId, NodeId), frame: &[u8], fault: &FrameFault) {
        let Some(trace) = &self.trace else { return };
        let faults = [
            (fault.arrives.is_none(), "lost"),
            (fault.arrives.is_some_and(|delay| delay > Nanos::ZERO), "late"),
            (fault.again.is_some(), "duplicated"),
            (fault.flips > 0, "damaged"),
        ];
        let number = trace.sink().frame_of(frame);
        let (from, to) = ends;
        for (_, fault) in faults.into_iter().filter(|(struck, _)| *struck) {
            trace.record(at, What::FrameFault { fault, frame: number, from, to });
        }
        if fault.arrives.is_none() {
            trace.sink().frame_ended(frame);
        }
    }

    /// Records that a frame from `from` found no room at its receiver.
    pub(crate) fn lost(&self, at: Nanos, from: NodeId, frame: &[u8]) {
        let Some(trace) = &self.trace else { return };
        let frame = trace.sink().frame_ended(frame);
        trace.record(at, What::FrameFault { fault: "no room", frame, from, to: from });
    }

    fn hold(&mut self, at: Nanos, engine: usize, frame: Vec<u8>) {
        self.sent += 1;
        self.late.push(Reverse((at, self.sent, engine, frame)));
    }

    /// The next frame that arrives by `now`, and the engine it goes to.
    pub(crate) fn due(&mut self, now: Nanos) -> Option<(usize, Vec<u8>)> {
        if self.next()? > now {
            return None;
        }
        self.late.pop().map(|Reverse((_, _, engine, frame))| (engine, frame))
    }

    /// When the next frame arrives.
    pub(crate) fn next(&self) -> Option<Nanos> {
        self.late.peek().map(|Reverse((at, ..))| *at)
    }

    /// Until when engine `index` of `count` stands still, if it does now.
    pub(crate) fn stalled_until(&self, now: Nanos, index: usize, count: usize) -> Option<Nanos> {
        self.faults.stalled_until(now, index, count)
    }

    /// Does a cut separate `node` from what stands outside of all nodes?
    pub(crate) fn cuts_off(&self, now: Nanos, node: NodeId) -> bool {
        self.faults.cuts_off(now, node)
    }

    /// A frame has arrived for an engine that is down.
    pub(crate) fn count_dead(&mut self) {
        self.faults.counts.dead += 1;
    }

    /// The wire with all that is on it, for the next life of the engine; leaves one without faults
    /// behind.
    pub(crate) fn pass_on(&mut self) -> Self {
        let none = Faults::new(FaultPlan::none(), 0, 0);
        Self {
            faults: std::mem::replace(&mut self.faults, none),
            late: std::mem::take(&mut self.late),
            trace: self.trace.take(),
            sent: self.sent,
        }
    }

    /// How often each fault struck.
    pub(crate) fn counts(&self) -> FaultCounts {
        self.faults.counts
    }
}
