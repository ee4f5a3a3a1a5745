//! What all parts of an engine use: its place and its world, and what it counts, pools and records.

use std::rc::Rc;

use super::World;
use super::completions::{Completion, Completions, Token};
use super::membership::Membership;
use super::pool::Pool;
use super::stats::Counters;
use super::tracing::EngineTrace;
use crate::exec::Executor;
use crate::fabric::Message;
use crate::ids::{EngineId, Incarnation};
use crate::units::Nanos;
use crate::wire::Writer;

/// One engine's place and world.
pub(super) struct Site<W: World> {
    here: EngineId,
    index: usize,
    incarnation: Incarnation,
    world: W,
    membership: Membership,
    completions: Rc<Completions>,
    pool: Pool,
    counters: Counters,
    trace: Option<EngineTrace>,
}

impl<W: World> Site<W> {
    /// The place of `here` in its world's first view.
    ///
    /// # Panics
    /// If the view has no such engine.
    pub(super) fn new(here: EngineId, world: W, executor: &Rc<Executor>) -> Self {
        let view = world.first_view();
        let Some(index) = view.index_of(here) else {
            panic!("engine {here} is not part of the view");
        };
        let incarnation = world.incarnation();
        Self {
            here,
            index,
            incarnation,
            membership: Membership::new(view, here, incarnation, executor),
            completions: Completions::new(executor.clone()),
            pool: Pool::default(),
            counters: Counters::default(),
            trace: world.trace().map(|sink| EngineTrace::new(sink, here)),
            world,
        }
    }

    #[inline]
    pub(super) const fn here(&self) -> EngineId {
        self.here
    }

    /// Its index in the view.
    #[inline]
    pub(super) const fn index(&self) -> usize {
        self.index
    }

    /// The life of its side.
    #[inline]
    pub(super) const fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    #[inline]
    pub(super) const fn world(&self) -> &W {
        &self.world
    }

    #[inline]
    pub(super) fn now(&self) -> Nanos {
        self.world.now()
    }

    #[inline]
    pub(super) const fn membership(&self) -> &Membership {
        &self.membership
    }

    #[inline]
    pub(super) const fn completions(&self) -> &Rc<Completions> {
        &self.completions
    }

    #[inline]
    pub(super) const fn pool(&self) -> &Pool {
        &self.pool
    }

    #[inline]
    pub(super) const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Where a trace is taken: what records this engine.
    #[inline]
    pub(super) const fn trace(&self) -> Option<&EngineTrace> {
        self.trace.as_ref()
    }

    /// Are transfers to the other side's memory made at once? A trace shows what is served as
    /// tasks.
    #[inline]
    pub(super) const fn transfers_at_once(&self) -> bool {
        W::SHARED_MEMORY && self.trace.is_none()
    }

    /// Resolves a completion that waits for an event, not for bytes.
    pub(super) fn wake(&self, token: Token) {
        self.completions.resolve(token, Ok(self.pool.payload(Vec::new())));
    }

    /// A completion that is resolved from the start, without bytes.
    #[inline]
    pub(super) fn done(&self) -> Completion {
        Completion::ready(Ok(self.pool.payload(Vec::new())))
    }

    /// Appends the body of `message` to `body`.
    #[inline]
    pub(super) fn emit<M: Message>(&self, message: &M, body: &mut Vec<u8>) {
        if let Some(trace) = &self.trace {
            trace.describe(message);
        }
        message.emit(&mut Writer::new(body));
    }
}
