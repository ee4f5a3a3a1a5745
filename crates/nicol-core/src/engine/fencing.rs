//! Fencing: an engine's record of the incarnations of other engines. Once an incarnation is over,
//! calls and one-sided operations that wait for it end.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::stats::count;
use super::{Engine, Life, World};
use crate::fabric::FabricError;
use crate::ids::{EngineId, Incarnation, NodeId, Side};
use crate::wire::FrameHeader;

/// The sides of which more is known than that they began: few or none.
#[derive(Debug, Default)]
pub(super) struct KnownLives {
    lives: RefCell<BTreeMap<(NodeId, Side), Life>>,
    /// Are there any? Without a crash every question costs this one look.
    any: Cell<bool>,
    /// The sides that are not in the view: no request is sent to them, in whichever life they are.
    /// A side that never registered may start and crash unnoticed.
    left_out: RefCell<BTreeSet<(NodeId, Side)>>,
}

impl KnownLives {
    /// What an engine knows when it starts: the life of its own side.
    pub(super) fn of(own: (NodeId, Side), incarnation: Incarnation) -> Self {
        let known = Life { incarnation, up: true };
        let own = (known != Life::FIRST).then_some((own, known));
        let any = Cell::new(own.is_some());
        let lives = RefCell::new(own.into_iter().collect());
        Self { lives, any, left_out: RefCell::default() }
    }

    /// Notes the life of a side.
    fn note(&self, side: (NodeId, Side), life: Life) {
        self.lives.borrow_mut().insert(side, life);
        self.any.set(true);
    }

    fn side(&self, node: NodeId, side: Side) -> Life {
        self.lives.borrow().get(&(node, side)).copied().unwrap_or(Life::FIRST)
    }

    /// The newest life of the side of `engine` that is known of.
    #[inline]
    pub(super) fn incarnation(&self, engine: EngineId) -> Incarnation {
        if !self.any.get() {
            return Incarnation::FIRST;
        }
        self.side(engine.node, engine.side).incarnation
    }

    /// Is the side of `engine` known to be down, or left out of the view?
    #[inline]
    pub(super) fn is_down(&self, engine: EngineId) -> bool {
        let side = (engine.node, engine.side);
        self.any.get() && (!self.side(side.0, side.1).up || self.left_out.borrow().contains(&side))
    }
}

impl<W: World> Engine<W> {
    /// Every life of `side` of `node` before `next` is over, and `next` has not been seen. What
    /// waits for the side ends with [`FabricError::Unreachable`], also what would be sent again for
    /// ever, and so does what is asked of it until it is [welcomed](Engine::welcome) or one of its
    /// frames comes. Does nothing if that is known.
    pub fn fence(&self, node: NodeId, side: Side, next: Incarnation) {
        self.learn(node, side, Life { incarnation: next, up: false });
    }

    /// Life `incarnation` of `side` of `node` is up. What waits for earlier ones ends as in
    /// [`Engine::fence`].
    pub fn welcome(&self, node: NodeId, side: Side, incarnation: Incarnation) {
        self.learn(node, side, Life { incarnation, up: true });
    }

    /// Is `side` of `node` known to be down?
    pub fn is_fenced(&self, node: NodeId, side: Side) -> bool {
        !self.0.lives.side(node, side).up
    }

    /// Is a frame of and for the lives that are known? Learns from it if its sender's is newer, and
    /// tells the sender if it means an earlier life of this side.
    pub(super) fn admits(&self, header: &FrameHeader) -> bool {
        let inner = &*self.0;
        let known = inner.lives.incarnation(header.from);
        match header.incarnation.compare(known.0) {
            Ordering::Less => return false,
            Ordering::Equal if !inner.lives.is_down(header.from) => {}
            Ordering::Equal | Ordering::Greater => {
                let newer = Incarnation(header.incarnation.from(known.0));
                self.welcome(header.from.node, header.from.side, newer);
            }
        }
        let meant = header.to_incarnation.compare(inner.incarnation.0);
        if meant == Ordering::Less {
            self.send_notice(header.from);
        }
        meant == Ordering::Equal
    }

    /// Learns the state of a side: [fences](Engine::fence) it if it is down, otherwise
    /// [welcomes](Engine::welcome) it. An engine whose own other half has crashed serves no further
    /// request if it [needs](crate::view::Halves) it.
    pub fn learn(&self, node: NodeId, side: Side, news: Life) {
        let inner = &*self.0;
        if (node, side) == (inner.here.node, inner.here.side) {
            return;
        }
        let known = inner.lives.side(node, side);
        // A life that is up is newer than the same life expected.
        if (news.incarnation, news.up) <= (known.incarnation, known.up) {
            return;
        }
        inner.lives.note((node, side), news);
        let needs_it = || inner.views.current().halves().needs_other(inner.here.side);
        if node == inner.here.node && !news.up && needs_it() {
            self.halve();
        }
        if news.incarnation > known.incarnation {
            self.end_what_waits_for(node, side);
        }
    }

    /// A newer view has `side` of `node`, or leaves it out: then what waits for it ends, also if a
    /// later life has been heard of than the one that the view has given up.
    pub(super) fn note_member(&self, node: NodeId, side: Side, is_member: bool) {
        let inner = &*self.0;
        if is_member {
            inner.lives.left_out.borrow_mut().remove(&(node, side));
        } else if (node, side) != (inner.here.node, inner.here.side)
            && inner.lives.left_out.borrow_mut().insert((node, side))
        {
            self.end_calls_to(node, side);
        }
    }

    fn end_calls_to(&self, node: NodeId, side: Side) {
        let inner = &*self.0;
        let is_gone = |engine: EngineId| (engine.node, engine.side) == (node, side);
        let ended = inner.calls.borrow_mut().end(is_gone);
        count(&inner.counters.fenced_calls, ended.len() as u64);
        for token in ended {
            inner.completions.resolve(token, Err(FabricError::Unreachable));
        }
    }

    fn end_what_waits_for(&self, node: NodeId, side: Side) {
        self.end_calls_to(node, side);
        let inner = &*self.0;
        let is_gone = |engine: EngineId| (engine.node, engine.side) == (node, side);
        for engine in inner.views.current().engine_ids().filter(|&engine| is_gone(engine)) {
            // Its next life numbers its requests anew, and nothing of the old one is answered.
            self.with_peer(engine, |peer| *peer = super::Peer::default());
            self.forget_frames(engine);
        }
    }
}
