//! The live world as one engine sees it.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use nicol_core::engine::{Charge, Operation, Route, SpareBuffers, Transfer, Tuning, Wake, World};
use nicol_core::fabric::{FabricError, HasDoorbell};
use nicol_core::faults::{FaultCounts, FaultPlan};
use nicol_core::ids::{EngineId, Incarnation, NodeId};
use nicol_core::memory::RegionTable;
use nicol_core::rng::{Purpose, Stream};
use nicol_core::trace::{Sink, Tracer, Track};
use nicol_core::units::Nanos;
use nicol_core::view::{Asking, View};

use crate::clock::SharedClock;
use crate::faults::FaultyWire;
use crate::log::{LogQueue, Persisted};
use crate::parker::Parker;
use crate::ring::{Incoming, Outgoing, ReadySet};

/// The state that all engines of a cluster share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) view: View,
    pub(crate) tuning: Tuning,
    pub(crate) regions: Vec<RegionTable>,
    pub(crate) clock: SharedClock,
    /// Per engine: the engines that have left frames for it.
    pub(crate) ready: Vec<ReadySet>,
    /// Per engine: its thread's parker.
    pub(crate) parkers: Vec<Arc<Parker>>,
    /// Per node: the way to its log file. Empty where memory is durable.
    pub(crate) logs: Vec<LogQueue>,
    /// Per engine: persists that are done.
    pub(crate) persisted: Vec<Persisted>,
    pub(crate) faults: Option<FaultPlan>,
    /// Broken on purpose: frames of and for earlier incarnations are taken.
    pub(crate) ignores_fences: bool,
    /// Where the run is recorded, if it is.
    pub(crate) trace: Option<Arc<Sink>>,
}

impl Shared {
    /// The time since the launch.
    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        self.clock.now()
    }
}

/// One engine's world: rings to the others, shared memory, the machine's clock.
#[derive(Debug)]
pub struct LiveWorld {
    shared: Arc<Shared>,
    index: usize,
    here: EngineId,
    life: Incarnation,
    random: RefCell<Stream>,
    outgoing: RefCell<Vec<Outgoing>>,
    incoming: RefCell<Vec<Incoming>>,
    marks: RefCell<Vec<u64>>,
    source: Cell<usize>,
    spare: RefCell<SpareBuffers>,
    finished: RefCell<VecDeque<Operation>>,
    /// Between nodes, where faults are injected.
    wire: Option<RefCell<FaultyWire>>,
}

impl LiveWorld {
    pub(crate) fn new(
        shared: Arc<Shared>,
        index: usize,
        here: EngineId,
        seed: u64,
        rings: (Vec<Outgoing>, Vec<Incoming>),
    ) -> Self {
        let words = shared.view.engine_count().div_ceil(64);
        let wire = |plan: &FaultPlan| {
            let trace = shared.trace.as_ref();
            let trace = trace.map(|sink| Tracer::new(sink, Track::Hardware(here.node)));
            RefCell::new(FaultyWire::new(plan.clone(), seed, index, trace))
        };
        let wire = shared.faults.as_ref().map(wire);
        Self {
            shared,
            index,
            here,
            life: Incarnation::FIRST,
            random: RefCell::new(Stream::new(seed, Purpose::Protocol, index as u32)),
            outgoing: RefCell::new(rings.0),
            incoming: RefCell::new(rings.1),
            marks: RefCell::new(vec![0; words]),
            source: Cell::new(0),
            spare: RefCell::default(),
            finished: RefCell::default(),
            wire,
        }
    }

    /// The world of `life`, which follows that of `old`: it takes over the rings, the frames on the
    /// wire and the random streams. What has arrived for `old` is lost.
    pub(crate) fn reborn(old: &Self, life: Incarnation) -> Self {
        old.shared.persisted[old.index].begin(life);
        let wire = old.wire.as_ref();
        Self {
            shared: old.shared.clone(),
            index: old.index,
            here: old.here,
            life,
            random: old.random.clone(),
            outgoing: RefCell::new(old.outgoing.take()),
            incoming: RefCell::new(old.incoming.take()),
            marks: RefCell::new(old.marks.take()),
            source: Cell::new(0),
            spare: RefCell::new(old.spare.take()),
            finished: RefCell::default(),
            wire: wire.map(|wire| RefCell::new(wire.borrow_mut().pass_on())),
        }
    }

    /// Loses what has arrived for an engine that is down, and lets frames of its earlier lives
    /// arrive elsewhere.
    pub(crate) fn lose_arrivals(&self) {
        while let Some(frame) = self.receive() {
            if let Some(sink) = self.trace() {
                sink.frame_ended(&frame);
            }
            self.recycle(frame);
            if let Some(wire) = &self.wire {
                wire.borrow_mut().count_dead();
            }
        }
    }

    /// The engine's position in the view.
    pub(crate) fn index(&self) -> usize {
        self.index
    }

    pub(crate) fn here(&self) -> EngineId {
        self.here
    }

    /// The engine's side and its life.
    pub(crate) fn life(&self) -> Asking {
        (self.here.node, self.here.side, self.life)
    }

    /// Does a cut of the network separate the engine's node from the service of views?
    pub(crate) fn is_cut_off(&self) -> bool {
        let cut = |wire: &RefCell<FaultyWire>| wire.borrow().cuts_off(self.now(), self.here.node);
        self.wire.as_ref().is_some_and(cut)
    }

    /// True if a frame, or a result of the log device, is waiting.
    pub(crate) fn has_arrivals(&self) -> bool {
        self.shared.ready[self.index].any()
            || self.shared.persisted[self.index].any()
            || self.marks.borrow().iter().any(|&word| word != 0)
    }

    /// Until when an injected stall holds this engine, if one does now.
    pub(crate) fn stalled_until(&self) -> Option<Nanos> {
        let wire = self.wire.as_ref()?.borrow();
        wire.stalled_until(self.now(), self.index, self.shared.view.engine_count())
    }

    /// When this engine must look again on account of injected faults.
    pub(crate) fn next_fault(&self) -> Option<Nanos> {
        let late = self.wire.as_ref()?.borrow().next();
        late.into_iter().chain(self.stalled_until()).min()
    }

    /// How often each injected fault struck here.
    pub(crate) fn fault_counts(&self) -> FaultCounts {
        self.wire.as_ref().map(|wire| wire.borrow().counts()).unwrap_or_default()
    }

    /// Puts a frame into the ring of an engine; gives it back if there is no space.
    fn put(&self, engine: usize, frame: Vec<u8>) -> Result<(), Vec<u8>> {
        // A life that is over has no rings any more.
        let outgoing = &mut *self.outgoing.borrow_mut();
        let Some(ring) = outgoing.get_mut(engine) else { return Ok(()) };
        while let Ok(returned) = ring.returned.pop() {
            self.keep(returned);
        }
        if let Err(rtrb::PushError::Full(frame)) = ring.frames.push(frame) {
            return Err(frame);
        }
        self.shared.ready[engine].mark(self.index);
        self.shared.parkers[engine].wake();
        Ok(())
    }

    /// Lets the frames arrive that the faulty wire has held long enough.
    fn release(&self, wire: &RefCell<FaultyWire>) {
        let mut wire = wire.borrow_mut();
        let now = self.now();
        while let Some((engine, frame)) = wire.due(now) {
            // A full ring loses it, as a full switch would.
            if let Err(frame) = self.put(engine, frame) {
                wire.lost(now, self.here.node, &frame);
            }
        }
    }

    fn keep(&self, frame: Vec<u8>) {
        self.spare.borrow_mut().give(frame);
    }
}

/// What a scheduling point resolves to: ready at once, of no size and no state, so that nothing of
/// it is left in compiled code.
#[derive(Clone, Copy, Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Immediate;
const _: () = assert!(size_of::<Immediate>() == 0, "an access point costs no memory");

impl Future for Immediate {
    type Output = ();

    #[inline(always)]
    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        Poll::Ready(())
    }
}

impl World for LiveWorld {
    const SHARED_MEMORY: bool = true;
    type Access = Immediate;
    const ACCESS_POINTS: bool = false;

    fn now(&self) -> Nanos {
        self.shared.now()
    }

    fn trace(&self) -> Option<&Arc<Sink>> {
        self.shared.trace.as_ref()
    }

    fn charge(&self, _charge: Charge) {}

    fn access(&self, _wait: impl FnOnce() -> Wake) -> Immediate {
        Immediate
    }

    fn within_access(&self, _wait: impl FnOnce() -> Wake) -> Immediate {
        Immediate
    }

    fn random(&self) -> u64 {
        self.random.borrow_mut().bits()
    }

    fn draw_rkey(&self) -> u32 {
        match getrandom::u32() {
            Ok(bits) => bits,
            // Predictable keys would let anyone in: better no cluster than such a one.
            Err(error) => panic!("the system's random source fails: {error}"),
        }
    }

    fn first_view(&self) -> &View {
        &self.shared.view
    }

    fn incarnation(&self) -> Incarnation {
        self.life
    }

    fn fences(&self) -> bool {
        !self.shared.ignores_fences
    }

    fn tuning(&self) -> &Tuning {
        &self.shared.tuning
    }

    fn route(&self, other: EngineId) -> Route {
        match self.wire {
            Some(_) if other.node != self.here.node => Route::Unreliable,
            _ => Route::Reliable,
        }
    }

    fn regions(&self) -> &RegionTable {
        &self.shared.regions[usize::from(self.here.node.0)]
    }

    fn receive(&self) -> Option<Vec<u8>> {
        if let Some(wire) = &self.wire {
            self.release(wire);
        }
        let mut marks = self.marks.borrow_mut();
        let mut incoming = self.incoming.borrow_mut();
        loop {
            while let Some(word) = marks.iter().position(|&word| word != 0) {
                let source = word * 64 + marks[word].trailing_zeros() as usize;
                if let Ok(frame) = incoming[source].frames.pop() {
                    self.source.set(source);
                    return Some(frame);
                }
                marks[word] &= marks[word] - 1;
            }
            if !self.shared.ready[self.index].take(&mut marks) {
                return None;
            }
        }
    }

    fn frame_buffer(&self) -> Vec<u8> {
        self.spare.borrow_mut().take()
    }

    fn recycle(&self, mut frame: Vec<u8>) {
        if !SpareBuffers::keeps(&frame) {
            return;
        }
        frame.clear();
        let source = &mut self.incoming.borrow_mut()[self.source.get()];
        // A full return ring means that its sender has buffers enough.
        if let Err(rtrb::PushError::Full(frame)) = source.returned.push(frame) {
            self.keep(frame);
        }
    }

    fn transmit(&self, to: EngineId, frame: Vec<u8>) -> Result<(), Vec<u8>> {
        let Some(index) = self.shared.view.index_of(to) else { return Ok(()) };
        match &self.wire {
            Some(wire) if to.node != self.here.node => {
                let ends = (self.here.node, to.node);
                wire.borrow_mut().take(self.now(), ends, index, frame);
                self.release(wire);
                Ok(())
            }
            _ => self.put(index, frame),
        }
    }

    fn memory_is_durable(&self) -> bool {
        self.shared.logs.is_empty()
    }

    /// A node has one log file.
    fn shares_medium(&self) -> bool {
        true
    }

    fn submit(&self, batch: &mut Vec<Operation>) {
        // Only persists come here, and only where there is a log device.
        let queue = &self.shared.logs[usize::from(self.here.node.0)];
        queue.add((self.here, self.life), batch.drain(..));
    }

    fn card_executes(&self, _node: NodeId, _chains: bool) -> bool {
        false
    }

    fn post(&self, _node: NodeId, batch: &mut Vec<Operation>) {
        for mut operation in batch.drain(..) {
            assert!(!matches!(operation.transfer, Transfer::Persist { .. }), "not a verb");
            operation.result = Err(FabricError::Unreachable);
            self.finished.borrow_mut().push_back(operation);
        }
    }

    fn finished(&self) -> Option<Operation> {
        let mut finished = self.finished.borrow_mut();
        if finished.is_empty() && !self.memory_is_durable() {
            self.shared.persisted[self.index].take(&mut finished);
        }
        finished.pop_front()
    }

    fn wake_at(&self, _deadline: Nanos) {
        // The thread asks its engines for their next deadline before it parks.
    }

    fn watch(&self, doorbell: &Arc<dyn HasDoorbell>) {
        // Engines of other threads may watch it as well. A thread's bed tells it from the others.
        let parker = &self.shared.parkers[self.index];
        doorbell.doorbell().notify_each(Arc::as_ptr(parker).addr(), || {
            let parker = parker.clone();
            move || parker.wake()
        });
    }
}
