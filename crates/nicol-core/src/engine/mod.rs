//! The engine: one core's executor, calls, queues and vectors, the same in both worlds.
//!
//! A round takes a burst of frames and of finished operations, runs the tasks they made ready,
//! submits the DMA vectors and verbs that these filled, and sends one frame per destination
//! [Xenic21 4.3.2]. Nothing is held back to fill a batch: under load a busy core simply finds more
//! at its next round.
//!
//! Each part owns its state: what the engine asks (`calls`) and is asked (`peers`), what leaves it
//! (`outbox`, `operations`), what it waits for (`timers`, `watches`), and what all of them use
//! (`site`, with the `membership`). What needs several of them is the engine's: rounds and views
//! here, sending in `transmit`, taking in `receive`.

mod calls;
mod completions;
mod durability;
mod lifecycle;
mod lives;
mod local;
mod membership;
mod messages;
mod one_sided;
mod operations;
mod outbox;
mod pcie;
mod peers;
mod pool;
mod receive;
mod shared_memory;
mod site;
mod sparse;
mod stats;
mod timers;
mod tracing;
mod transmit;
mod watches;
mod world;

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

pub use calls::CALLS_MAX;
use calls::Calls;
use completions::Token;
pub use completions::{Completion, Wake};
#[doc(hidden)]
pub use lifecycle::CrashSabotage;
pub use lifecycle::{Ending, Loss, LostSides, Revival, StartOn, restart_name};
pub use lives::{Life, Lives};
use operations::Operations;
use outbox::Outbox;
use peers::Peers;
pub use pool::{Payload, SpareBuffers};
use site::Site;
pub use stats::EngineStats;
use stats::count;
use timers::{Timer, Timers};
use watches::Watches;
pub use world::{Charge, DoorbellBatch, Operation, Route, Transfer, Tuning, World};

use crate::exec::{Executor, Signal};
use crate::fabric::{Fabric, FabricError, RequestId, Service};
use crate::ids::{EngineId, Incarnation, NodeId, Side};
use crate::units::Nanos;
use crate::view::View;

/// Rounds of tasks and loopback messages within one poll round, so that it ends.
const TURNS_MAX: usize = 64;

/// The program that a world starts on each of its engines.
pub trait Start: Send + Sync + 'static {
    /// Installs the system on one engine: its service, its tasks. Called once per engine, on the
    /// engine's own thread, before its first round.
    fn start<F: Fabric>(&self, fabric: &F);

    /// Sides of a node have crashed, and their engines are gone: drop what of the system's own
    /// structures was in their memory. Called once per crash, before anything else happens at the
    /// node. Regions are wiped by the world.
    fn crashed(&self, loss: &Loss) {
        let _nothing_outside_regions = loss;
    }

    /// The lives of these sides are over, though their memory is whole, on nodes of
    /// [such halves](crate::view::Halves::keeps_memory): the next lives find it. Engines, tasks and
    /// regions are gone as in a crash. Default: as if they had crashed.
    fn ended(&self, loss: &Loss) {
        self.crashed(loss);
    }

    /// Installs the system on an engine of a new incarnation, like [`Start::start`] on the engine's
    /// own thread before its first round.
    fn restart<F: Fabric>(&self, fabric: &F, revival: &Revival<'_>) {
        let _as_if_new = revival;
        self.start(fabric);
    }
}

/// The parts of an engine.
struct Inner<W: World> {
    site: Site<W>,
    executor: Rc<Executor>,
    service: RefCell<Option<Rc<dyn Service>>>,
    calls: RefCell<Calls>,
    peers: Peers,
    outbox: Outbox,
    operations: Operations,
    timers: Timers,
    watches: Watches,
    /// Notified as each round begins with its tasks.
    next_round: Signal,
}

/// A handle of one engine; clones are handles of the same engine. Implements [`Fabric`].
pub struct Engine<W: World>(Rc<Inner<W>>);

impl<W: World> Clone for Engine<W> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<W: World> Engine<W> {
    /// The engine `here` of its world's view.
    ///
    /// # Panics
    /// If the view has no such engine.
    pub fn new(here: EngineId, world: W) -> Self {
        let executor = Rc::new(Executor::default());
        let site = Site::new(here, world, &executor);
        Self(Rc::new(Inner {
            calls: RefCell::new(Calls::of(site.incarnation())),
            site,
            service: RefCell::default(),
            peers: Peers::default(),
            outbox: Outbox::default(),
            operations: Operations::default(),
            timers: Timers::default(),
            watches: Watches::default(),
            next_round: Signal::new(executor.clone()),
            executor,
        }))
    }

    /// The world it lives in.
    pub fn world(&self) -> &W {
        self.site().world()
    }

    #[inline]
    fn site(&self) -> &Site<W> {
        &self.0.site
    }

    /// Its counters.
    pub fn stats(&self) -> EngineStats {
        self.site().counters().snapshot()
    }

    /// Drops its tasks and its service, which hold handles of the engine: without this their
    /// memory would outlive the world. The engine must not be used afterwards.
    ///
    /// # Panics
    /// If called by one of its tasks.
    pub fn dismantle(&self) {
        self.0.executor.clear();
        let service = self.0.service.take();
        drop(service);
        if let Some(trace) = self.site().trace() {
            trace.ends(self.site().now());
        }
    }

    /// Tasks that are not finished.
    pub fn live_tasks(&self) -> usize {
        self.0.executor.live()
    }

    /// Requests that wait for a reply.
    pub fn calls_in_flight(&self) -> usize {
        self.0.calls.borrow().in_flight()
    }

    /// Would another round do something now?
    pub fn is_ready(&self) -> bool {
        let inner = &*self.0;
        inner.executor.has_ready()
            || inner.next_round.is_awaited()
            || !inner.outbox.is_empty()
            || inner.watches.have_rung()
    }

    /// When the earliest timer is due.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.0.timers.earliest()
    }

    /// One poll round. True if anything was done.
    pub fn round(&self) -> bool {
        let (inner, site) = (&*self.0, self.site());
        if let Some(trace) = site.trace() {
            trace.round_begins(site.now());
        }
        let mut progress = self.take_frames();
        progress |= self.take_finished();
        progress |= self.fire_timers();
        progress |= inner.watches.poll(site);
        progress |= inner.next_round.is_awaited();
        inner.next_round.notify();
        for _ in 0..TURNS_MAX {
            let limit = site.world().tuning().tasks_per_round;
            let polled = match site.trace() {
                None => inner.executor.run(limit),
                Some(_) => inner.executor.run_observed(limit, inner),
            };
            count(&site.counters().tasks, polled as u64);
            let looped = self.take_loopback();
            progress |= looped || polled > 0;
            if polled < limit && !looped {
                break;
            }
        }
        inner.operations.flush(site);
        progress |= inner.outbox.flush(site);
        if progress {
            count(&site.counters().rounds, 1);
        }
        if let Some(trace) = site.trace() {
            let counted = [inner.executor.live(), self.calls_in_flight()];
            trace.round_ends(site.now(), counted.map(|count| count as u64));
        }
        progress
    }

    fn take_finished(&self) -> bool {
        let site = self.site();
        let mut progress = false;
        while let Some(done) = site.world().finished() {
            progress = true;
            let Some(done) = self.0.operations.landed(site, done) else { continue };
            if let Some(trace) = site.trace() {
                trace.transfer_ends(site.now(), &done);
            }
            let result = match done.result {
                Ok(()) => Ok(site.pool().payload(done.buffer)),
                Err(error) => {
                    site.pool().give(done.buffer);
                    Err(error)
                }
            };
            site.completions().resolve(Token(done.token), result);
        }
        progress
    }

    fn fire_timers(&self) -> bool {
        let (timers, world) = (&self.0.timers, self.world());
        if timers.are_none() {
            return false;
        }
        let now = world.now();
        let mut progress = false;
        while let Some(timer) = timers.take_due(world, now) {
            progress = true;
            match timer {
                Timer::Wake(token) => self.site().wake(token),
                Timer::Retransmit { slot, sequence } => {
                    self.retransmit(RequestId { slot, sequence }, now);
                }
                Timer::GiveUp { slot, sequence } => self.give_up(RequestId { slot, sequence }),
            }
        }
        progress
    }

    #[inline]
    fn start_transfer(&self, transfer: Transfer, buffer: Vec<u8>) -> Completion {
        self.0.operations.start(self.site(), transfer, buffer)
    }

    /// Goes on to `view` if it is newer than the one that the engine has; false if not. What waits
    /// for sides that are down in it ends as in [`Engine::fence`], sides of a new incarnation are
    /// [welcomed](Engine::welcome), and tasks that wait for a
    /// [change](crate::fabric::Local::view_changes) are woken.
    pub fn install_view(&self, view: &View) -> bool {
        let membership = self.site().membership();
        let before = membership.view().clone();
        if !membership.install(view) {
            return false;
        }
        for node in view.node_ids() {
            for side in [Side::Host, Side::Nic] {
                let state = view.side(node, side);
                if state == before.side(node, side) {
                    continue;
                }
                if state.up {
                    self.welcome(node, side, state.incarnation);
                } else {
                    self.fence(node, side, state.incarnation);
                }
                self.note_member(node, side, state.up);
            }
        }
        membership.tell_change();
        true
    }

    /// Lets the engine serve until its clock shows `until`. An engine that has never been given a
    /// lease serves for ever: its cluster has no service of views.
    ///
    /// One that lacks the other half that it needs gets none: its next life begins with that one's.
    pub fn grant_lease(&self, until: Nanos) {
        self.site().membership().grant_lease(until);
    }

    /// Has the node [said](crate::fabric::Local::declare_complete) that it has caught up? The world
    /// tells the service of views when the engine asks for a lease.
    pub fn is_complete(&self) -> bool {
        self.site().membership().is_complete()
    }

    /// Revokes the lease: the engine serves no request until it is granted another.
    pub fn revoke_lease(&self) {
        self.site().membership().revoke_lease();
    }

    /// May the engine serve others now?
    fn is_leased(&self) -> bool {
        self.site().membership().is_leased(|| self.site().now())
    }

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

    /// True if `side` of `node` is known to be down.
    pub fn is_fenced(&self, node: NodeId, side: Side) -> bool {
        !self.site().membership().lives().of_side((node, side)).up
    }

    /// Learns the state of a side: [fences](Engine::fence) it if it is down, otherwise
    /// [welcomes](Engine::welcome) it. An engine whose own other half has crashed serves no further
    /// request if it [needs](crate::view::Halves) it.
    pub fn learn(&self, node: NodeId, side: Side, news: Life) {
        let (here, membership) = (self.site().here(), self.site().membership());
        if (node, side) == (here.node, here.side) {
            return;
        }
        let known = membership.lives().of_side((node, side));
        // A life that is up is newer than the same life expected.
        if (news.incarnation, news.up) <= (known.incarnation, known.up) {
            return;
        }
        membership.lives().note((node, side), news);
        let needs_it = || membership.view().halves().needs_other(here.side);
        if node == here.node && !news.up && needs_it() {
            membership.halve();
        }
        if news.incarnation > known.incarnation {
            self.end_what_waits_for(node, side);
        }
    }

    /// A newer view has `side` of `node`, or leaves it out: then what waits for it ends, also if a
    /// later life has been heard of than the one that the view has given up.
    fn note_member(&self, node: NodeId, side: Side, is_member: bool) {
        let (here, lives) = (self.site().here(), self.site().membership().lives());
        if is_member {
            lives.take_in((node, side));
        } else if (node, side) != (here.node, here.side) && lives.leave_out((node, side)) {
            self.end_calls_to(node, side);
        }
    }

    fn end_calls_to(&self, node: NodeId, side: Side) {
        let site = self.site();
        let is_gone = |engine: EngineId| (engine.node, engine.side) == (node, side);
        let ended = self.0.calls.borrow_mut().end(is_gone);
        count(&site.counters().fenced_calls, ended.len() as u64);
        for token in ended {
            site.completions().resolve(token, Err(FabricError::Unreachable));
        }
    }

    fn end_what_waits_for(&self, node: NodeId, side: Side) {
        self.end_calls_to(node, side);
        let view = self.site().membership().view();
        let engines = view.engine_ids().filter(|one| (one.node, one.side) == (node, side));
        for index in engines.filter_map(|engine| view.index_of(engine)) {
            // Its next life numbers its requests anew, and nothing of the old one is answered.
            self.0.peers.forget(index);
            self.0.outbox.forget(index);
        }
    }
}

impl<W: World> fmt::Debug for Engine<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({})", self.site().here())
    }
}
