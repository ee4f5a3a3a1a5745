//! Timestamps: "loosely synchronized logical clocks". [PRISM21 8.2]

use std::cell::Cell;

use nicol_core::fabric::Fabric;
use nicol_core::units::Nanos;

use super::config::{Sabotage, TxConfig};
use crate::prism::tag::{Tag, Writer};

/// One step of a timestamp: 40 bits of them last for 19 hours.
const TICK: Nanos = Nanos(64);

/// Chooses the timestamps of one client engine.
pub(super) struct Clock<F> {
    fabric: F,
    writer: Writer,
    /// By how much this clock is ahead of the slowest one.
    ahead: Nanos,
    /// The last one that was chosen.
    last: Cell<u64>,
    reuses: bool,
}

impl<F: Fabric> Clock<F> {
    pub(super) fn new(fabric: &F, config: &TxConfig) -> Self {
        let ahead = Nanos(fabric.random() % (config.clock_skew.0 + 1));
        Self {
            fabric: fabric.clone(),
            writer: Writer::new(fabric.view(), fabric.here(), fabric.incarnation()),
            ahead,
            last: Cell::new(0),
            reuses: config.sabotage == Sabotage::ReusesTimestamps,
        }
    }

    /// A timestamp that no other transaction has, later than `read`. [PRISM21 8.2 prepare]
    pub(super) fn after(&self, read: Tag) -> Tag {
        let now = (self.fabric.now() + self.ahead).0 / TICK.0;
        // Clients of one engine share a client id, so that no two may have one time.
        let mut time = if self.reuses { now | 0xff } else { now.max(self.last.get() + 1) };
        if Tag::new(time, self.writer) <= read {
            time = read.ts() + 1;
        }
        self.last.set(time);
        Tag::new(time, self.writer)
    }
}
