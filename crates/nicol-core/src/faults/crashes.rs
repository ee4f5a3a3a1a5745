//! Crashes: which sides of which nodes stop, when, and when they start again.

use serde::{Deserialize, Serialize};

use super::{FAULTY_SPAN, FaultPlan, LONG_CUT};
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
/// Of so many plans one takes everything down, and the others single nodes.
const EVERYTHING: u64 = 8;
/// The simulated view service tells of new views at multiples of this: recoveries begin there.
const VIEWS_EVERY: u64 = 2_000_000;
/// How many of these instants a lease of a simulated cluster lasts, and one more.
const UNTIL_GIVEN_UP: u64 = 6;
/// A crash during a recovery comes at most so long after its view.
const DURING_RECOVERY: u64 = 300_000;

impl FaultPlan {
    /// Draws crashes. One plan in eight has one or two of everything, and no other. The others have
    /// one or two crashes of each scope that is on, with one chance in two, and at least of one.
    ///
    /// Their instants spread over every scale from 80 us to 20 ms. One in four is for good, the
    /// others restart after 10 us to 5 ms; half of these crash again within 200 us of their
    /// restart. Of a plan's further crashes every second comes while the survivors of its first one
    /// may recover.
    pub(super) fn add_crashes(&mut self, rng: &mut Stream) {
        if rng.below(EVERYTHING) == 0 {
            self.add_crashes_of(CrashScope::All, rng);
        } else {
            let single = [CrashScope::Node, CrashScope::Host, CrashScope::Nic];
            let certain = rng.below(single.len() as u64) as usize;
            for (place, scope) in single.into_iter().enumerate() {
                if rng.bits() & 1 == 1 || place == certain {
                    self.add_crashes_of(scope, rng);
                }
            }
        }
        self.crashes.sort_by_key(|crash| crash.at);
    }

    fn add_crashes_of(&mut self, scope: CrashScope, rng: &mut Stream) {
        for _ in 0..1 + rng.below(2) {
            let mut crash = drawn(scope, rng);
            let during = rng.bits() & 1 == 1;
            let (views, into) = (rng.below(UNTIL_GIVEN_UP), rng.below(DURING_RECOVERY));
            if let (Some(first), true) = (self.crashes.iter().map(|other| other.at).min(), during) {
                let view = first.0.next_multiple_of(VIEWS_EVERY) + views * VIEWS_EVERY;
                crash.at = Nanos(view + into);
            }
            self.crashes.push(crash);
            if let Some(restarted) = crash.restarts_at().filter(|_| rng.bits() & 1 == 1) {
                let at = restarted + Nanos(rng.below(DURING_RESTART));
                self.crashes.push(Crash { at, ..crash });
            }
        }
    }

    /// The plan with which no more nodes with shards are lost than these have backups, by crashes,
    /// cuts or pauses that outlast a lease: what is meant for a further node strikes one that is
    /// lost already. So a complete replica of every shard is left. A plan that takes everything
    /// down stays, as does every plan where there are no backups.
    #[must_use]
    pub fn sparing(mut self, cluster: &Spared) -> Self {
        let &Spared { nodes, holding, backups, engines } = cluster;
        let takes_all = self.crashes.iter().any(|crash| crash.scope == CrashScope::All);
        if backups == 0 || takes_all {
            return self;
        }
        let mut lost: Vec<usize> = Vec::new();
        // Which node a fault strikes that was meant for `node`.
        let mut struck = |node: usize| {
            if node >= holding || lost.contains(&node) {
                return node;
            }
            if lost.len() < backups {
                lost.push(node);
                return node;
            }
            lost[node % lost.len()]
        };
        for crash in &mut self.crashes {
            crash.node = struck(usize::from(crash.node) % nodes) as u16;
        }
        for cut in self.partitions.iter_mut().filter(|cut| cut.until.since(cut.from) >= LONG_CUT) {
            let side = (0..nodes).filter(|&node| cut.side.contains(NodeId(node as u16)));
            cut.side = side.map(|node| NodeId(struck(node) as u16)).collect();
        }
        for stall in self.stalls.iter_mut().filter(|stall| stall.span >= LONG_CUT) {
            let Some(engines) = engines else { break };
            let engine = stall.engine as usize % (nodes * engines);
            stall.engine = (struck(engine / engines) * engines + engine % engines) as u32;
        }
        self
    }
}

/// The cluster whose shards a plan [spares](FaultPlan::sparing).
#[derive(Clone, Copy, Debug)]
pub struct Spared {
    /// All nodes, those for clients alone included.
    pub nodes: usize,
    /// The nodes that hold shards, which are the first ones.
    pub holding: usize,
    /// Backups of each shard.
    pub backups: usize,
    /// Engines of each node; `None`, and pauses strike where they are drawn, if that is not known.
    pub engines: Option<usize>,
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
