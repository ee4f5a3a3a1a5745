//! What an engine knows of the lives of others, and the end of what waits for the dead.

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::stats::count;
use super::{Engine, World};
use crate::fabric::FabricError;
use crate::ids::{EngineId, Incarnation, NodeId, Side};

/// The sides of which more is known than that they began: few or none.
#[derive(Debug, Default)]
pub(super) struct KnownLives(RefCell<BTreeMap<(NodeId, Side), Known>>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    /// The newest life: the one that is up, or the one that will be.
    incarnation: Incarnation,
    up: bool,
}

impl Known {
    const FIRST: Self = Self { incarnation: Incarnation::FIRST, up: true };
}

impl KnownLives {
    fn of(&self, node: NodeId, side: Side) -> Known {
        self.0.borrow().get(&(node, side)).copied().unwrap_or(Known::FIRST)
    }

    /// The newest life of the side of `engine` that is known of.
    pub(super) fn incarnation(&self, engine: EngineId) -> Incarnation {
        self.of(engine.node, engine.side).incarnation
    }

    /// Is the side of `engine` known to be down?
    pub(super) fn is_down(&self, engine: EngineId) -> bool {
        !self.0.borrow().is_empty() && !self.of(engine.node, engine.side).up
    }
}

impl<W: World> Engine<W> {
    /// Every life of `side` of `node` before `next` is over, and `next` has not been seen. What
    /// waits for the side ends with [`FabricError::Unreachable`], also what would be sent again for
    /// ever, and so does what is asked of it until it is [welcomed](Engine::welcome) or one of its
    /// frames comes. Does nothing if that is known.
    pub fn fence(&self, node: NodeId, side: Side, next: Incarnation) {
        self.learn(node, side, Known { incarnation: next, up: false });
    }

    /// Life `incarnation` of `side` of `node` is up. What waits for earlier ones ends as in
    /// [`Engine::fence`].
    pub fn welcome(&self, node: NodeId, side: Side, incarnation: Incarnation) {
        self.learn(node, side, Known { incarnation, up: true });
    }

    /// Is `side` of `node` known to be down?
    pub fn is_fenced(&self, node: NodeId, side: Side) -> bool {
        !self.0.lives.of(node, side).up
    }

    fn learn(&self, node: NodeId, side: Side, news: Known) {
        let inner = &*self.0;
        if (node, side) == (inner.here.node, inner.here.side) {
            return;
        }
        let known = inner.lives.of(node, side);
        // A life that is up is newer than the same life expected.
        if (news.incarnation, news.up) <= (known.incarnation, known.up) {
            return;
        }
        inner.lives.0.borrow_mut().insert((node, side), news);
        if news.incarnation > known.incarnation {
            self.end_what_waits_for(node, side);
        }
    }

    fn end_what_waits_for(&self, node: NodeId, side: Side) {
        let inner = &*self.0;
        let is_gone = |engine: EngineId| (engine.node, engine.side) == (node, side);
        let ended = inner.calls.borrow_mut().end(is_gone);
        count(&inner.counters.fenced_calls, ended.len() as u64);
        for token in ended {
            inner.completions.resolve(token, Err(FabricError::Unreachable));
        }
        for engine in inner.world.layout().engine_ids().filter(|&engine| is_gone(engine)) {
            // Its next life numbers its requests anew, and nothing of the old one is answered.
            self.with_peer(engine, |peer| *peer = super::Peer::default());
            self.forget_frames(engine);
        }
    }
}
