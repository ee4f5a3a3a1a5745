//! Faults at the live transport: frames between nodes are lost, doubled, late, damaged or cut off,
//! engines stand still, as a [`FaultPlan`] says.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use nicol_core::faults::{FaultCounts, FaultPlan, Faults};
use nicol_core::ids::NodeId;
use nicol_core::units::Nanos;

/// A frame on its way: when it arrives, its number, the engine it goes to, its bytes.
type Late = (Nanos, u64, usize, Vec<u8>);

/// The faulty wire behind one engine.
#[derive(Debug)]
pub(crate) struct FaultyWire {
    faults: Faults,
    late: BinaryHeap<Reverse<Late>>,
    sent: u64,
}

impl FaultyWire {
    /// The wire of engine `index` under `plan`.
    pub(crate) fn new(plan: FaultPlan, seed: u64, index: usize) -> Self {
        // Owner 1 draws the plan itself.
        let faults = Faults::new(plan, seed, 2 + index as u32);
        Self { faults, late: BinaryHeap::new(), sent: 0 }
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
        if let Some(after) = fault.again {
            self.hold(now + after, engine, frame.clone());
        }
        if let Some(after) = fault.arrives {
            if fault.flips > 0 {
                self.faults.flip(&mut frame, fault.flips);
            }
            self.hold(now + after, engine, frame);
        }
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

    /// How often each fault struck.
    pub(crate) fn counts(&self) -> FaultCounts {
        self.faults.counts
    }
}
