//! What an engine knows of its cluster: the view, the lives of the other sides, and the lease under
//! which it serves others.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use super::Life;
use crate::exec::{Executor, Signal};
use crate::ids::{EngineId, Incarnation, NodeId, Side};
use crate::units::Nanos;
use crate::view::{View, Views};

#[derive(Debug)]
pub(super) struct Membership {
    views: Views,
    changes: Signal,
    lives: KnownLives,
    /// Until when the engine may serve others; `None`: for ever.
    lease: Cell<Option<Nanos>>,
    /// True if the other half has crashed that this side needs.
    halved: Cell<bool>,
    /// Has its node caught up, as it says itself?
    complete: Cell<bool>,
}

impl Membership {
    /// The knowledge of an engine at its start: the first view, and the life of its own side.
    pub(super) fn new(
        view: &View,
        here: EngineId,
        incarnation: Incarnation,
        executor: &Rc<Executor>,
    ) -> Self {
        Self {
            views: Views::new(view.clone()),
            changes: Signal::new(executor.clone()),
            lives: KnownLives::of((here.node, here.side), incarnation),
            lease: Cell::new(None),
            halved: Cell::new(false),
            complete: Cell::new(false),
        }
    }

    #[inline]
    pub(super) fn view(&self) -> &View {
        self.views.current()
    }

    /// Goes on to `view`; false if it is not newer. The caller then [tells](Self::tell_change).
    pub(super) fn install(&self, view: &View) -> bool {
        self.views.install(view.clone())
    }

    /// Wakes what waits for a newer view.
    pub(super) fn tell_change(&self) {
        self.changes.notify();
    }

    /// Notified after each newer view.
    pub(super) const fn changes(&self) -> &Signal {
        &self.changes
    }

    /// The index of an engine that is part of the view.
    #[inline]
    pub(super) fn index_of(&self, engine: EngineId) -> Option<usize> {
        self.view().index_of(engine)
    }

    /// The same, unless its side is known to be down.
    #[inline(always)]
    pub(super) fn reach(&self, to: EngineId) -> Option<usize> {
        let index = self.index_of(to)?;
        (!self.lives.is_down(to)).then_some(index)
    }

    /// The lives that are known of.
    #[inline]
    pub(super) const fn lives(&self) -> &KnownLives {
        &self.lives
    }

    /// Serves until `until`, unless it lacks its other half.
    pub(super) fn grant_lease(&self, until: Nanos) {
        if !self.halved.get() {
            self.lease.set(Some(until));
        }
    }

    pub(super) fn declare_complete(&self) {
        self.complete.set(true);
    }

    /// Has the node said that it has caught up?
    pub(super) const fn is_complete(&self) -> bool {
        self.complete.get()
    }

    pub(super) fn revoke_lease(&self) {
        self.lease.set(Some(Nanos::ZERO));
    }

    /// The other side of this node has crashed, and this one is worth nothing without it: it gets
    /// no further lease.
    pub(super) fn halve(&self) {
        self.halved.set(true);
        self.revoke_lease();
    }

    /// May the engine serve others?
    pub(super) fn is_leased(&self, now: impl FnOnce() -> Nanos) -> bool {
        self.lease.get().is_none_or(|until| now() < until)
    }
}

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
    /// The knowledge of an engine at its start: the life of its own side.
    fn of(own: (NodeId, Side), incarnation: Incarnation) -> Self {
        let known = Life { incarnation, up: true };
        let own = (known != Life::FIRST).then_some((own, known));
        let any = Cell::new(own.is_some());
        let lives = RefCell::new(own.into_iter().collect());
        Self { lives, any, left_out: RefCell::default() }
    }

    /// Notes the life of a side.
    pub(super) fn note(&self, side: (NodeId, Side), life: Life) {
        self.lives.borrow_mut().insert(side, life);
        self.any.set(true);
    }

    /// Notes that the view leaves out a side; false if it did before.
    pub(super) fn leave_out(&self, side: (NodeId, Side)) -> bool {
        self.left_out.borrow_mut().insert(side)
    }

    /// Notes that the view has a side.
    pub(super) fn take_in(&self, side: (NodeId, Side)) {
        self.left_out.borrow_mut().remove(&side);
    }

    /// The newest life of a side that is known of.
    pub(super) fn of_side(&self, side: (NodeId, Side)) -> Life {
        self.lives.borrow().get(&side).copied().unwrap_or(Life::FIRST)
    }

    /// The newest life of the side of `engine` that is known of.
    #[inline]
    pub(super) fn incarnation(&self, engine: EngineId) -> Incarnation {
        if !self.any.get() {
            return Incarnation::FIRST;
        }
        self.of_side((engine.node, engine.side)).incarnation
    }

    /// True if the side of `engine` is known to be down, or left out of the view.
    #[inline]
    pub(super) fn is_down(&self, engine: EngineId) -> bool {
        let side = (engine.node, engine.side);
        self.any.get() && (!self.of_side(side).up || self.left_out.borrow().contains(&side))
    }
}
