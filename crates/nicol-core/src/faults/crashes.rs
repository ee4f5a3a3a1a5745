//! Crashes: which sides of which nodes stop, when, and when they start again.

use serde::{Deserialize, Serialize};

use super::{FAULTY_SPAN, FaultPlan};
use crate::ids::{NodeId, Side};
use crate::rng::Stream;
use crate::units::Nanos;

/// The scope of a crash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CrashScope {
    /// Host and NIC of one node.
    Node,
    /// The host of one node; its NIC goes on.
    Host,
    /// The NIC engines of one node; its host goes on.
    Nic,
    All,
}

impl CrashScope {
    pub const EVERY: [Self; 4] = [Self::Node, Self::Host, Self::Nic, Self::All];

    /// The sides that it takes down.
    pub const fn sides(self) -> &'static [Side] {
        match self {
            Self::Node | Self::All => &[Side::Host, Side::Nic],
            Self::Host => &[Side::Host],
            Self::Nic => &[Side::Nic],
        }
    }
}

/// A crash: engines stop for good, and start anew if it says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Crash {
    pub scope: CrashScope,
    /// The node's number, modulo the number of nodes. [`CrashScope::All`] ignores it.
    #[serde(default)]
    pub node: u16,
    #[serde(rename = "at_ns")]
    pub at: Nanos,
    /// How long after the crash a new incarnation starts; `None` for never.
    #[serde(rename = "restart_after_ns", default)]
    pub restart_after: Option<Nanos>,
}

impl Crash {
    /// Does it take `node` down, in a cluster of `nodes`?
    pub fn hits(&self, node: NodeId, nodes: usize) -> bool {
        self.scope == CrashScope::All || usize::from(self.node) % nodes == usize::from(node.0)
    }

    /// When a new incarnation starts.
    pub fn restarts_at(&self) -> Option<Nanos> {
        self.restart_after.map(|after| self.at.saturating_add(after))
    }
}

/// The shortest and the longest time from a crash to the restart that a plan draws.
const RESTART_AFTER: (u64, u64) = (10_000, 5_000_000);
/// A crash during a restart comes at most so long after it.
const DURING_RESTART: u64 = 200_000;
/// Halvings of the span in which a crash is drawn, so that short runs see crashes too.
const SCALES: u64 = 8;

impl FaultPlan {
    /// Draws crashes: each scope is on with one chance in two, with one or two crashes. Their
    /// instants spread over every scale from 80 us to 20 ms. One in four is for good, the others
    /// restart after 10 us to 5 ms; half of these crash again within 200 us of their restart.
    pub(super) fn add_crashes(&mut self, rng: &mut Stream) {
        for scope in CrashScope::EVERY {
            let (on, count) = (rng.bits() & 1 == 1, 1 + rng.below(2));
            for _ in 0..if on { count } else { 0 } {
                let crash = drawn(scope, rng);
                self.crashes.push(crash);
                let again = crash.restarts_at().filter(|_| rng.bits() & 1 == 1);
                if let Some(restarted) = again {
                    let at = restarted + Nanos(rng.below(DURING_RESTART));
                    self.crashes.push(Crash { at, ..crash });
                }
            }
        }
        self.crashes.sort_by_key(|crash| crash.at);
    }
}

fn drawn(scope: CrashScope, rng: &mut Stream) -> Crash {
    let node = rng.bits() as u16;
    let mut within = |span: u64| {
        let scale = rng.below(SCALES);
        rng.below(span >> scale)
    };
    let (shortest, longest) = RESTART_AFTER;
    let at = Nanos(1 + within(FAULTY_SPAN.0));
    let after = Nanos(shortest + within(longest - shortest));
    let restart_after = (rng.below(4) > 0).then_some(after);
    Crash { scope, node, at, restart_after }
}
