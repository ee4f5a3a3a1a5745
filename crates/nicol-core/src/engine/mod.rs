//! The engine: one core's executor, calls, queues and vectors, the same in both worlds.
//!
//! A round takes a burst of frames and of finished operations, runs the tasks they made ready,
//! submits the DMA vectors and verbs that these filled, and sends one frame per destination
//! [Xenic21 4.3.2]. Nothing is held back to fill a batch: under load a busy core simply finds more
//! at its next round.

mod calls;
mod completions;
mod durability;
mod fencing;
mod lifecycle;
mod lives;
mod local;
mod membership;
mod messages;
mod one_sided;
mod outbox;
mod pcie;
mod peers;
mod pool;
mod receive;
mod shared_memory;
mod sparse;
mod stats;
mod tracing;
mod transmit;
mod world;

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

pub use calls::CALLS_MAX;
use calls::Calls;
pub use completions::{Completion, Wake};
use completions::{Completions, Token};
use fencing::KnownLives;
#[doc(hidden)]
pub use lifecycle::CrashSabotage;
pub use lifecycle::{Ending, Loss, LostSides, Revival, StartOn, restart_name};
pub use lives::{Life, Lives};
use outbox::{Gather, Loopback};
use peers::Peer;
pub use pool::Payload;
use pool::Pool;
use sparse::Sparse;
pub use stats::EngineStats;
use stats::{Counters, count};
use tracing::EngineTrace;
pub use world::{Charge, DoorbellBatch, Operation, Route, Transfer, Tuning, World};

use crate::exec::{Executor, Signal};
use crate::fabric::{Fabric, HasDoorbell, RequestId, Service};
use crate::ids::{EngineId, Incarnation, NodeId};
use crate::units::Nanos;
use crate::view::Views;

/// Rounds of tasks and loopback messages within one poll round, so that it ends.
const TURNS_MAX: usize = 64;

/// What a world starts on each of its engines.
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Timer {
    Wake(Token),
    Retransmit { slot: u16, sequence: u32 },
    GiveUp { slot: u16, sequence: u32 },
}

struct Watch {
    doorbell: Arc<dyn HasDoorbell>,
    seen: u64,
    token: Token,
}

/// Operations gathered for one submission.
#[derive(Debug, Default)]
struct Batches {
    dma_reads: Vec<Operation>,
    dma_writes: Vec<Operation>,
    persists: Vec<Operation>,
    /// Fillings of queue entries.
    fills: Vec<Operation>,
    /// By node.
    verbs: Sparse<Vec<Operation>>,
    /// The nodes for which verbs wait.
    posted: Vec<NodeId>,
}

struct Inner<W: World> {
    here: EngineId,
    index: usize,
    world: W,
    executor: Rc<Executor>,
    completions: Rc<Completions>,
    pool: Pool,
    service: RefCell<Option<Rc<dyn Service>>>,
    calls: RefCell<Calls>,
    lives: KnownLives,
    views: Views,
    view_changes: Signal,
    /// Until when the engine may serve others; `None`: for ever.
    lease: Cell<Option<Nanos>>,
    /// Has the other half crashed that this side needs?
    halved: Cell<bool>,
    incarnation: Incarnation,
    /// By engine: what it has asked of this one.
    peers: RefCell<Sparse<Peer>>,
    /// By engine: the frame in the making for it.
    gathers: RefCell<Sparse<Gather>>,
    /// The engines for which frames are in the making.
    listed: RefCell<Vec<EngineId>>,
    /// The engines for which frames are held back, by their index in the view.
    holding: RefCell<Vec<(usize, EngineId)>>,
    loopback: RefCell<Loopback>,
    batches: RefCell<Batches>,
    timers: RefCell<BinaryHeap<Reverse<(Nanos, u64, Timer)>>>,
    timer_order: Cell<u64>,
    watches: RefCell<Vec<Watch>>,
    /// Notified as each round begins with its tasks.
    next_round: Signal,
    counters: Counters,
    trace: Option<EngineTrace>,
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
        let view = world.first_view();
        let Some(index) = view.index_of(here) else {
            panic!("engine {here} is not part of the view");
        };
        let incarnation = world.incarnation();
        let views = Views::new(view.clone());
        let trace = world.trace().map(|sink| EngineTrace::new(sink, here));
        let executor = Rc::new(Executor::default());
        let view_changes = Signal::new(executor.clone());
        let next_round = Signal::new(executor.clone());
        let completions = Completions::new(executor.clone());
        Self(Rc::new(Inner {
            here,
            index,
            world,
            executor,
            completions,
            pool: Pool::default(),
            service: RefCell::default(),
            calls: RefCell::new(Calls::of(incarnation)),
            lives: KnownLives::of((here.node, here.side), incarnation),
            views,
            view_changes,
            lease: Cell::new(None),
            halved: Cell::new(false),
            incarnation,
            peers: RefCell::default(),
            gathers: RefCell::default(),
            listed: RefCell::default(),
            holding: RefCell::default(),
            loopback: RefCell::default(),
            batches: RefCell::default(),
            timers: RefCell::default(),
            timer_order: Cell::new(0),
            watches: RefCell::default(),
            next_round,
            counters: Counters::default(),
            trace,
        }))
    }

    /// The world it lives in.
    pub fn world(&self) -> &W {
        &self.0.world
    }

    /// What it has counted.
    pub fn stats(&self) -> EngineStats {
        self.0.counters.snapshot()
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
        if let Some(trace) = &self.0.trace {
            trace.ends(self.0.world.now());
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
            || !inner.holding.borrow().is_empty()
            || inner.next_round.is_awaited()
            || !inner.listed.borrow().is_empty()
            || !inner.loopback.borrow().queue.is_empty()
            || inner.doorbell_has_rung()
    }

    /// When the earliest timer is due.
    pub fn next_deadline(&self) -> Option<Nanos> {
        self.0.timers.borrow().peek().map(|Reverse((deadline, _, _))| *deadline)
    }

    /// One poll round. True if anything was done.
    pub fn round(&self) -> bool {
        let inner = &*self.0;
        if let Some(trace) = &inner.trace {
            trace.round_begins(inner.world.now());
        }
        let mut progress = self.take_frames();
        progress |= self.take_finished();
        progress |= self.0.fire_timers(self);
        progress |= self.0.poll_doorbells();
        progress |= inner.next_round.is_awaited();
        inner.next_round.notify();
        for _ in 0..TURNS_MAX {
            let limit = inner.world.tuning().tasks_per_round;
            let polled = match &inner.trace {
                None => inner.executor.run(limit),
                Some(_) => inner.executor.run_observed(limit, inner),
            };
            count(&self.0.counters.tasks, polled as u64);
            let looped = self.take_loopback();
            progress |= looped || polled > 0;
            if polled < limit && !looped {
                break;
            }
        }
        self.flush_operations();
        progress |= self.flush_frames();
        if progress {
            count(&self.0.counters.rounds, 1);
        }
        if let Some(trace) = &inner.trace {
            let counted = [inner.executor.live(), self.calls_in_flight()];
            trace.round_ends(inner.world.now(), counted.map(|count| count as u64));
        }
        progress
    }

    fn take_finished(&self) -> bool {
        let inner = &*self.0;
        let mut progress = false;
        while let Some(done) = inner.world.finished() {
            progress = true;
            let Some(done) = self.persist_landed(done) else { continue };
            if let Some(trace) = &inner.trace {
                trace.transfer_ends(inner.world.now(), &done);
            }
            let result = match done.result {
                Ok(()) => Ok(inner.pool.payload(done.buffer)),
                Err(error) => {
                    inner.pool.give(done.buffer);
                    Err(error)
                }
            };
            inner.completions.resolve(Token(done.token), result);
        }
        progress
    }
}

impl<W: World> Inner<W> {
    fn wake(&self, token: Token) {
        self.completions.resolve(token, Ok(self.pool.payload(Vec::new())));
    }

    fn set_timer(&self, deadline: Nanos, timer: Timer) {
        let order = self.timer_order.get();
        self.timer_order.set(order + 1);
        self.timers.borrow_mut().push(Reverse((deadline, order, timer)));
        self.world.wake_at(deadline);
    }

    fn fire_timers(&self, engine: &Engine<W>) -> bool {
        if self.timers.borrow().is_empty() {
            return false;
        }
        let now = self.world.now();
        let mut progress = false;
        loop {
            let timer = {
                let mut timers = self.timers.borrow_mut();
                match timers.peek() {
                    Some(Reverse((deadline, _, _))) if *deadline <= now => timers.pop(),
                    Some(Reverse((deadline, _, _))) => {
                        self.world.wake_at(*deadline);
                        None
                    }
                    None => None,
                }
            };
            let Some(Reverse((_, _, timer))) = timer else { return progress };
            progress = true;
            match timer {
                Timer::Wake(token) => self.wake(token),
                Timer::Retransmit { slot, sequence } => {
                    engine.retransmit(RequestId { slot, sequence }, now);
                }
                Timer::GiveUp { slot, sequence } => engine.give_up(RequestId { slot, sequence }),
            }
        }
    }

    fn doorbell_has_rung(&self) -> bool {
        self.watches.borrow().iter().any(|watch| watch.doorbell.doorbell().rings() > watch.seen)
    }

    fn poll_doorbells(&self) -> bool {
        let mut progress = false;
        let mut watches = self.watches.borrow_mut();
        // Most engines watch none.
        if watches.is_empty() {
            return false;
        }
        watches.retain(|watch| {
            let rung = watch.doorbell.doorbell().rings() > watch.seen;
            if rung {
                self.wake(watch.token);
                progress = true;
            }
            !rung
        });
        progress
    }
}

impl<W: World> fmt::Debug for Engine<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Engine({})", self.0.here)
    }
}
