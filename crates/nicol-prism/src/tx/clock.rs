//! Timestamps: "loosely synchronized logical clocks". [PRISM21 8.2]

use std::cell::Cell;

use nicol_core::fabric::Fabric;
use nicol_core::units::Nanos;

use super::config::TxConfig;
use crate::tag::{Tag, Writer};

/// One step of a timestamp: 40 bits of them last for 19 hours. After that no transaction commits
/// ([`Abort::NoResources`](nicol_core::txn::Abort::NoResources)).
const TICK: Nanos = Nanos(64);

/// Chooses the timestamps of one client engine.
pub(super) struct Clock<F> {
    fabric: F,
    writer: Writer,
    /// By how much this clock is ahead of the slowest one.
    ahead: Nanos,
    /// The last one that was chosen.
    last: Cell<u64>,
}

impl<F: Fabric> Clock<F> {
    pub(super) fn new(fabric: &F, config: &TxConfig) -> Self {
        let ahead = Nanos(fabric.random() % (config.clock_skew.0 + 1));
        Self {
            fabric: fabric.clone(),
            writer: Writer::new(fabric.view(), fabric.here(), fabric.incarnation()),
            ahead,
            last: Cell::new(0),
        }
    }

    /// A timestamp that no other transaction has, later than `read`; `None`: there are no more.
    /// [PRISM21 8.2 prepare]
    pub(super) fn after(&self, read: Tag) -> Option<Tag> {
        let now = (self.fabric.now() + self.ahead).0 / TICK.0;
        // Clients of one engine share a client id, so that no two may have one time.
        let after = later(now.max(self.last.get() + 1), self.writer, read)?;
        self.last.set(after.ts());
        Some(after)
    }
}

/// The timestamp of `time` by `writer`, or the next one after `read`; `None`: there are no more.
fn later(time: u64, writer: Writer, read: Tag) -> Option<Tag> {
    let after = Tag::try_new(time, writer)?;
    if after > read { Some(after) } else { Tag::try_new(read.ts() + 1, writer) }
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::{EngineId, Incarnation, NodeId};
    use nicol_core::view::View;

    use super::*;

    #[test]
    fn timestamps_follow_what_was_read_and_end_without_a_panic() {
        let view = View::new(2, 1, 1, 1).unwrap();
        let writer = |node| Writer::new(&view, EngineId::host(NodeId(node), 0), Incarnation::FIRST);
        let (low, high) = (writer(0), writer(1));
        assert_eq!(later(9, low, Tag::new(8, high)), Some(Tag::new(9, low)));
        assert_eq!(later(9, low, Tag::new(9, high)), Some(Tag::new(10, low)));
        assert_eq!(later(9, high, Tag::new(9, low)), Some(Tag::new(9, high)));
        let last = (1 << 40) - 1;
        assert_eq!(later(last, low, Tag(0)), Some(Tag::new(last, low)));
        assert_eq!(later(last + 1, low, Tag(0)), None);
        assert_eq!(later(9, low, Tag::new(last, high)), None);
        assert_eq!(TICK.0 * (last + 1) / Nanos::from_secs(3_600).0, 19, "hours");
    }
}
