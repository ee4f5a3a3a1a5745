//! [`World`] for the engines of a simulated cluster.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::engine::{Charge, Operation, Route, Transfer, Tuning, Wake, World};
use nicol_core::fabric::HasDoorbell;
use nicol_core::ids::{EngineId, Incarnation, NodeId, Side};
use nicol_core::memory::RegionTable;
use nicol_core::rng::{Purpose, Stream};
use nicol_core::trace::Sink;
use nicol_core::units::{Nanos, Picos};
use nicol_core::view::View;

use crate::hw::{Costs, NodeModel, picos};
use crate::in_flight::Launch;
use crate::shared::Shared;
use crate::trace::HardwareTrace;
use crate::{frames, vectors, verbs};

/// The uses of a core's time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Spent {
    Poll,
    Forward,
    Frames,
    Messages,
    DmaSubmit,
    DmaComplete,
    DmaWait,
    Verbs,
    Work,
}

/// The names of what a core's time goes into, in reports.
pub(crate) const SPENT: [&str; 9] = [
    "poll",
    "forward",
    "frames",
    "messages",
    "dma submit",
    "dma complete",
    "dma wait",
    "verbs",
    "work",
];

const fn spent_on(charge: Charge) -> Spent {
    match charge {
        Charge::FrameReceived { .. } | Charge::FrameSent { .. } => Spent::Frames,
        Charge::MessageReceived { .. } | Charge::MessageSent { .. } | Charge::MessageCopied => {
            Spent::Messages
        }
        Charge::DmaSubmitted { .. } => Spent::DmaSubmit,
        Charge::DmaCompleted => Spent::DmaComplete,
        Charge::VerbsPosted { .. } | Charge::VerbCompleted => Spent::Verbs,
        Charge::Access | Charge::Work(_) => Spent::Work,
    }
}

/// The simulated world as one engine sees it: its core's clock, and the shared hardware.
#[derive(Debug)]
pub struct SimWorld {
    pub(crate) shared: Rc<Shared>,
    pub(crate) costs: Costs,
    /// The hardware of its node.
    model: Rc<NodeModel>,
    index: usize,
    here: EngineId,
    local: Cell<Picos>,
    refused: Cell<bool>,
    burst: Cell<usize>,
    /// Whether its engine is in a round.
    in_round: Cell<bool>,
    /// Whether the next round goes on after an access to shared memory.
    resumes: Cell<bool>,
    spent: [Cell<Picos>; SPENT.len()],
    random: RefCell<Stream>,
    rkeys: RefCell<Stream>,
}

impl SimWorld {
    pub(crate) fn new(shared: &Rc<Shared>, index: usize, seed: u64) -> Self {
        let here = shared.engines[index];
        Self {
            costs: Costs::new(&shared.model(here.node).profile, here),
            model: shared.model_of(here.node),
            shared: shared.clone(),
            index,
            here,
            local: Cell::default(),
            refused: Cell::new(false),
            burst: Cell::new(0),
            in_round: Cell::new(false),
            resumes: Cell::new(false),
            spent: Default::default(),
            random: RefCell::new(Stream::new(seed, Purpose::Protocol, here.pack())),
            rkeys: RefCell::new(Stream::new(seed, Purpose::Regions, here.pack())),
        }
    }

    /// The world of the next incarnation. Its random streams go on, so that no key of a region is
    /// ever the same again, and so do the books of its core's time.
    pub(crate) fn reborn(old: &Self) -> Self {
        Self {
            shared: old.shared.clone(),
            costs: old.costs.clone(),
            model: old.model.clone(),
            index: old.index,
            here: old.here,
            local: Cell::default(),
            refused: Cell::new(false),
            burst: Cell::new(0),
            in_round: Cell::new(false),
            resumes: Cell::new(false),
            spent: old.spent.clone(),
            random: old.random.clone(),
            rkeys: old.rkeys.clone(),
        }
    }

    /// Starts a round now: the core's clock begins at the cluster's. A round that only goes on
    /// after an access to shared memory is no poll: the core has been in that access.
    pub(crate) fn begin(&self) {
        self.local.set(picos(self.shared.now.get()));
        self.refused.set(false);
        self.burst.set(0);
        self.in_round.set(true);
        if !self.resumes.take() {
            self.spend(self.costs.poll(), Spent::Poll);
        }
    }

    /// Ends a round: the core's clock then.
    pub(crate) fn end(&self) -> Picos {
        self.in_round.set(false);
        self.local()
    }

    /// Lets the core work for `span`.
    #[inline]
    pub(crate) fn spend(&self, span: Picos, on: Spent) {
        self.local.set(self.local.get() + span);
        let spent = &self.spent[on as usize];
        spent.set(spent.get() + span);
    }

    pub(crate) fn local(&self) -> Picos {
        self.local.get()
    }

    /// Whether the transport refused a frame in this round.
    pub(crate) fn refused(&self) -> bool {
        self.refused.get()
    }

    /// The engine of which this is the world.
    pub(crate) fn here(&self) -> EngineId {
        self.here
    }

    /// The uses of the core's time, in the order of [`SPENT`]
    pub(crate) fn spent(&self) -> [Picos; SPENT.len()] {
        std::array::from_fn(|on| self.spent[on].get())
    }

    /// Whether the next frame rings the doorbell of the host-to-NIC queue. A burst rings once.
    fn rings(&self) -> bool {
        let place = self.burst.get();
        self.burst.set(place + 1);
        !self.shared.tuning.aggregation || place.is_multiple_of(self.shared.tuning.burst.max(1))
    }
}

impl World for SimWorld {
    const SHARED_MEMORY: bool = false;
    type Access = Wake;
    const ACCESS_POINTS: bool = true;

    fn now(&self) -> Nanos {
        self.local.get().to_nanos_up().max(self.shared.now.get())
    }

    fn fences(&self) -> bool {
        !self.shared.ignores_fences
    }

    fn access(&self, wait: impl FnOnce() -> Wake) -> Wake {
        self.charge(Charge::Access);
        self.within_access(wait)
    }

    fn within_access(&self, wait: impl FnOnce() -> Wake) -> Wake {
        self.resumes.set(true);
        wait()
    }

    fn is_ahead(&self) -> bool {
        self.local.get() > picos(self.shared.now.get())
    }

    fn trace(&self) -> Option<&Arc<Sink>> {
        self.shared.trace.as_ref().map(HardwareTrace::sink)
    }

    #[inline]
    fn charge(&self, charge: Charge) {
        self.spend(self.costs.of(charge), spent_on(charge));
    }

    fn random(&self) -> u64 {
        self.random.borrow_mut().bits()
    }

    fn draw_rkey(&self) -> u32 {
        self.rkeys.borrow_mut().bits() as u32
    }

    fn first_view(&self) -> &View {
        &self.shared.view
    }

    fn incarnation(&self) -> Incarnation {
        let state = self.shared.state.borrow();
        state.lives.of(self.here.node, self.here.side).incarnation
    }

    fn tuning(&self) -> &Tuning {
        &self.model.tuning
    }

    fn route(&self, other: EngineId) -> Route {
        if self.shared.unreliable && other.node != self.here.node {
            Route::Unreliable
        } else {
            Route::Reliable
        }
    }

    fn regions(&self) -> &RegionTable {
        &self.shared.tables[usize::from(self.here.node.0)]
    }

    fn memory_is_durable(&self) -> bool {
        self.model.memory_is_durable()
    }

    fn keeps_persisted(&self) -> bool {
        self.shared.keeps_content || self.shared.holds_completions
    }

    /// The memory that persists is the host's, or on the card.
    fn shares_medium(&self) -> bool {
        false
    }

    #[inline]
    fn receive(&self) -> Option<Vec<u8>> {
        frames::receive(&self.shared, &mut self.shared.state.borrow_mut(), self.index)
    }

    fn frame_buffer(&self) -> Vec<u8> {
        self.shared.frame_buffer()
    }

    fn recycle(&self, frame: Vec<u8>) {
        self.shared.recycle_frame(frame);
    }

    fn transmit(&self, to: EngineId, frame: Vec<u8>) -> Result<(), Vec<u8>> {
        let rings = self.here.side == Side::Host && self.rings();
        let way = if rings { Launch::Rings } else { Launch::Rides };
        let launched = frames::launch(&self.shared, self.index, to, frame, self.now(), way);
        self.refused.set(self.refused.get() || launched.is_err());
        launched
    }

    fn broadcasts(&self) -> bool {
        self.model.profile.link.broadcast.as_ref().is_some_and(|module| module.value)
    }

    fn transmit_copy(&self, to: EngineId, frame: Vec<u8>) -> Result<(), Vec<u8>> {
        let launched =
            frames::launch(&self.shared, self.index, to, frame, self.now(), Launch::Copy);
        self.refused.set(self.refused.get() || launched.is_err());
        launched
    }

    fn submit(&self, batch: &mut Vec<Operation>) {
        let dma = &self.model.profile.dma;
        let wait = match batch.first() {
            _ if self.shared.tuning.dma_async => Picos(0),
            None => Picos(0),
            Some(Operation {
                transfer: Transfer::Persist { .. } | Transfer::Fill { .. }, ..
            }) => Picos(0),
            Some(first) if first.reads() => dma.read_latency.value,
            Some(_) => dma.write_latency.value,
        };
        vectors::submit(&self.shared, self.index, batch, self.now());
        // What waits in the DMA queue comes on top, and is waited for by the task alone.
        self.spend(wait, Spent::DmaWait);
    }

    fn card_executes(&self, node: NodeId, chains: bool) -> bool {
        // A card posts verbs to cards: without one here, or there, software does the work. Chains
        // go to whatever executes them at the target.
        let target = self.shared.model(node);
        self.model.has_verbs() && if chains { target.runs_chains() } else { target.has_verbs() }
    }

    fn doorbell_pays(&self, verbs: usize) -> bool {
        let card = self.model.profile.card.as_ref();
        let side = self.model.memory_of(self.here);
        card.is_none_or(|card| card.endpoint(side).doorbell_pays(verbs as u64))
    }

    fn post(&self, node: NodeId, batch: &mut Vec<Operation>) {
        verbs::post(&self.shared, self.index, node, batch, self.now());
    }

    #[inline]
    fn finished(&self) -> Option<Operation> {
        let next = self.shared.state.borrow_mut().cores[self.index].done.pop_front();
        let (operation, charge) = next?;
        if let Some(charge) = charge {
            self.charge(charge);
        }
        Some(operation)
    }

    /// A round that ends asks for its engine's next deadline.
    fn wake_at(&self, deadline: Nanos) {
        if self.in_round.get() {
            return;
        }
        self.shared.state.borrow_mut().request_timer(self.index, deadline);
    }

    fn watch(&self, doorbell: &Arc<dyn HasDoorbell>) {
        self.shared.doorbells.borrow_mut().watch(doorbell, self.index);
    }
}
