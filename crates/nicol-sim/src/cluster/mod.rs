//! A simulated cluster: one engine per modelled core, driven by one event kernel.
//!
//! This folder owns the engines, what runs on them, and what their ended lives leave behind. Here:
//! the run, event by event. `crash` ends lives and begins new ones, `leases` hands out views, and
//! `held` lets tests choose what arrives next.

mod crash;
mod held;
mod leases;

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use nicol_core::engine::{
    CrashSabotage, DoorbellBatch, Engine, EngineStats, Lives, StartOn, Tuning,
};
use nicol_core::fabric::Local;
use nicol_core::ids::{EngineId, Epoch, NodeId, Side};
use nicol_core::medium::Medium;
use nicol_core::memory::Region;
use nicol_core::rng::{Purpose, Stream};
use nicol_core::trace::Sink;
use nicol_core::units::{Nanos, Picos};
use nicol_core::view::{Halves, View};

use crate::hw::{NodeHardware, NodeModel, picos};
use crate::kernel::{Event, Kernel};
use crate::profile::Profile;
use crate::report::{self, SimReport};
use crate::shared::Shared;
use crate::slab::Slab;
use crate::state::{Core, State};
use crate::trace::HardwareTrace;
use crate::view_service::ViewService;
use crate::world::{SimWorld, Spent};
use crate::{frames, vectors, verbs};
pub use held::{Completes, Held, HeldCompletion};
use nicol_core::faults::{FaultPlan, Faults};

/// A simulated cluster: hardware, view, faults, seed, and what tests may hold back.
#[derive(Clone, Debug)]
pub struct SimConfig {
    pub view: View,
    /// The hardware of each node.
    pub profiles: Vec<Arc<Profile>>,
    /// The seed of every stream of randomness.
    pub seed: u64,
    pub faults: FaultPlan,
    /// Settings of engines. [`SimCluster::new`] turns checksums on if faults damage frames.
    pub tuning: Tuning,
    /// The sink that records the run, if any. The run computes the same with and without.
    pub trace: Option<Arc<Sink>>,
    /// Time after a crash or a restart at which the engines of other nodes learn of it: a perfect
    /// detector, for clusters without a service of views. `None`: they learn from frames only.
    pub detect_after: Option<Nanos>,
    /// Whether a service of views hands out leases. Without one every engine serves for ever.
    pub view_service: bool,
    /// Whether log devices keep what is written, for crashes that [`SimCluster::crash`] brings. A
    /// plan with crashes switches it on.
    pub keeps_content: bool,
    /// Whether frames between nodes wait on the wire until [`SimCluster::release`] lets them
    /// arrive. For tests that explore orders of arrival.
    pub holds_frames: bool,
    /// Whether completions of persists, of the NIC's queues and of crossings to the other side wait
    /// until [`SimCluster::complete`] lets them reach their engines. For such tests as well.
    pub holds_completions: bool,
    /// Whether log devices call a write durable without syncing it. For negative tests only.
    #[doc(hidden)]
    pub syncs_nothing: bool,
    /// Crashes broken on purpose; for negative tests only.
    #[doc(hidden)]
    pub sabotage: CrashSabotage,
}

impl SimConfig {
    /// `view` on `profile` without faults, with every optimisation of the runtime on.
    pub fn new(view: View, profile: Arc<Profile>, seed: u64) -> Self {
        let profiles = vec![profile; view.nodes()];
        Self::mixed(view, profiles, seed)
    }

    /// `view` with a profile for each node, otherwise as [`SimConfig::new`]. A DMA vector has as
    /// many requests as the hardware of its node takes.
    pub fn mixed(view: View, profiles: Vec<Arc<Profile>>, seed: u64) -> Self {
        let vectors = profiles.iter().map(|profile| profile.dma.vector.value as usize);
        let tuning = Tuning {
            aggregation: true,
            dma_vector: vectors.max().unwrap_or(1),
            dma_async: true,
            doorbell_batch: DoorbellBatch::UpTo(DoorbellBatch::MOST),
            burst: 64,
            tasks_per_round: 256,
            retransmit_after: Nanos::from_micros(100),
            one_sided_timeout: Nanos::from_millis(20),
            checksums: false,
        };
        Self {
            view,
            profiles,
            seed,
            faults: FaultPlan::none(),
            tuning,
            trace: None,
            detect_after: None,
            view_service: false,
            keeps_content: false,
            holds_frames: false,
            holds_completions: false,
            syncs_nothing: false,
            sabotage: CrashSabotage::None,
        }
    }
}

/// The part of an event that needs the state to be free again.
enum Next {
    Done,
    Round(u32),
    Crash(u32),
    Restart(u32),
    News(u32),
    LeaseRenewal,
    ViewAnswers,
}

/// The result of handling an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handled {
    /// There is no event by the limit.
    Nothing,
    /// A frame has moved on, and the cluster still works.
    Move,
    /// An event of another kind.
    Event,
}

/// Why a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RunEnd {
    /// The awaited condition holds.
    Done,
    /// The time limit came first.
    Limit,
    /// Nothing is pending: nothing will ever happen again.
    Idle,
}

/// A cluster in simulated time. Lives on one thread; many may run on many threads.
#[derive(Debug)]
pub struct SimCluster {
    shared: Rc<Shared>,
    engines: RefCell<Vec<Engine<SimWorld>>>,
    /// The system that runs on the engines, to tell it of crashes.
    started: RefCell<Option<Arc<dyn StartOn<SimWorld>>>>,
    /// Statistics of engines that have crashed.
    retired: RefCell<EngineStats>,
    /// Memory that crashes have taken away.
    lost: RefCell<Vec<Arc<Region>>>,
    sabotage: CrashSabotage,
}

impl Drop for SimCluster {
    fn drop(&mut self) {
        // A task that has panicked is still being polled: its engine cannot be taken apart.
        if !std::thread::panicking() {
            self.engines.get_mut().iter().for_each(Engine::dismantle);
        }
        if let Some(trace) = &self.shared.trace {
            trace.flush();
        }
    }
}

impl SimCluster {
    /// An idle cluster at time zero.
    ///
    /// # Panics
    /// If there is no profile for a node, or a node has more engines on a side than its profile has
    /// cores; ask [`Profile::check_node`] first where a user chose the numbers.
    pub fn new(config: SimConfig) -> Self {
        let SimConfig { syncs_nothing, holds_frames, holds_completions, .. } = config;
        let SimConfig { view, profiles, seed, faults, mut tuning, sabotage, trace, .. } = config;
        let trace = trace.map(|sink| HardwareTrace::new(&sink, view.node_ids()));
        if let Some(trace) = &trace {
            trace.plan(&faults);
        }
        // Where views are handed out, a node may be given up and read its medium back.
        let keeps_content =
            config.keeps_content || config.view_service || !faults.crashes.is_empty();
        let detect_after = config.detect_after;
        tuning.checksums |= faults.corrupt > 0;
        let models = models(&view, &profiles, &tuning);
        let unreliable = faults.touches_messages();
        let mut kernel = Kernel::default();
        for (index, crash) in faults.crashes.iter().enumerate() {
            kernel.push(crash.at, Event::Crash(index as u32));
        }
        let view_service = config.view_service.then(|| {
            kernel.push(Nanos::ZERO, Event::LeaseRenewal);
            ViewService::new(view.clone(), sabotage == CrashSabotage::LeaseEndless)
        });
        let state = State {
            view_service,
            kernel,
            cores: (0..view.engine_count()).map(|_| Core::default()).collect(),
            nodes: models.iter().map(|model| NodeHardware::new(&model.profile)).collect(),
            frames: Slab::default(),
            held: Vec::new(),
            held_completions: Vec::new(),
            vectors: Slab::default(),
            verbs: Slab::default(),
            faults: Faults::new(faults, seed, 0),
            lives: Lives::new(&view),
            known: vec![None; view.nodes()],
            has_crashes: false,
            news: Vec::new(),
            media: view.node_ids().map(|_| Medium::default()).collect(),
            medium_rng: Stream::new(seed, Purpose::Medium, 0),
        };
        // Engines that know of nothing that they need go on without it.
        let halves = view.halves();
        let known = if sabotage == CrashSabotage::HalfServes { Halves::Apart } else { halves };
        let mut shared = Shared::new(view.with_halves(known), models, tuning, unreliable, state);
        (shared.keeps_content, shared.detect_after) = (keeps_content, detect_after);
        (shared.syncs_nothing, shared.holds_frames) = (syncs_nothing, holds_frames);
        shared.holds_completions = holds_completions;
        shared.links_at_once = !unreliable && !keeps_content && !holds_frames;
        shared.keeps_unsynced = sabotage == CrashSabotage::MediumKeepsAll;
        shared.ignores_fences = sabotage == CrashSabotage::FenceIgnored;
        shared.trace = trace;
        let shared = Rc::new(shared);
        let world = |index| SimWorld::new(&shared, index, seed);
        let engines = shared.engines.iter().enumerate();
        let engines = engines.map(|(index, id)| Engine::new(*id, world(index))).collect();
        Self {
            shared,
            engines: RefCell::new(engines),
            started: RefCell::default(),
            retired: RefCell::default(),
            lost: RefCell::default(),
            sabotage,
        }
    }

    /// Installs `start` on every engine, in the view's order, and schedules their first rounds.
    /// It is told of crashes, and asked to start sides again.
    pub fn start(&self, start: Arc<dyn StartOn<SimWorld>>) {
        for (index, engine) in self.engines().iter().enumerate() {
            start.start(engine);
            self.shared.state.borrow_mut().request_round(index, self.now());
        }
        *self.started.borrow_mut() = Some(start);
    }

    pub fn now(&self) -> Nanos {
        self.shared.now.get()
    }

    /// The newest view of the view service, if it is another than that of `epoch`. `None` without a
    /// service.
    ///
    /// Cost: a comparison, and a copy of a newer view.
    pub fn view_after(&self, epoch: Epoch) -> Option<View> {
        let state = self.shared.state.borrow();
        let view = state.view_service.as_ref()?.members.view();
        (view.epoch() != epoch).then(|| view.clone())
    }

    /// Events handled so far.
    pub fn events(&self) -> u64 {
        self.shared.state.borrow().kernel.handled()
    }

    pub fn engine(&self, id: EngineId) -> Option<Engine<SimWorld>> {
        self.engines.borrow().get(self.shared.view.index_of(id)?).cloned()
    }

    /// The engine at a position of the view's order.
    fn engine_at(&self, index: usize) -> Engine<SimWorld> {
        self.engines.borrow()[index].clone()
    }

    /// The engines in the view's order, of sides that are down those of the next incarnation.
    pub fn engines(&self) -> Vec<Engine<SimWorld>> {
        self.engines.borrow().clone()
    }

    /// Runs until `done`, or until the clock shows `limit`. It is asked with the time before each
    /// event, but where all that has happened since is that frames have moved on.
    pub fn run_until(&self, done: &mut dyn FnMut(Nanos) -> bool, limit: Nanos) -> RunEnd {
        loop {
            if done(self.now()) {
                return RunEnd::Done;
            }
            let handled = loop {
                match self.handle_next(limit) {
                    Handled::Move => {}
                    other => break other,
                }
            };
            if handled == Handled::Event {
                continue;
            }
            let state = &mut *self.shared.state.borrow_mut();
            if state.kernel.next_time().is_none() {
                return RunEnd::Idle;
            }
            state.kernel.advance(limit);
            self.shared.now.set(self.now().max(limit));
            return RunEnd::Limit;
        }
    }

    /// Runs until nothing but sleeping is left: no frame, transfer or ready task, and no call in
    /// flight at an engine that lives, and the view service has told every member of every crash.
    /// Retransmission timers of answered calls may be pending.
    pub fn settle(&self, limit: Nanos) -> RunEnd {
        self.run_until(&mut |_| self.is_settled(), limit)
    }

    fn is_settled(&self) -> bool {
        let state = self.shared.state.borrow();
        if state.kernel.is_active() {
            return false;
        }
        let engines = self.engines.borrow();
        let living = || engines.iter().zip(&state.cores).filter(|(_, core)| !core.dead);
        // Without a view service nobody is to learn of a crash by a view. Those that are no
        // members, for want of their other half, are not told.
        let views_are_current = state.view_service.as_ref().is_none_or(|service| {
            let view = service.members.view();
            let is_member = |engine: EngineId| view.side(engine.node, engine.side).up;
            let knows = |engine: &Engine<SimWorld>| Local::view(engine).epoch() == view.epoch();
            let members = living().filter(|(engine, _)| is_member(engine.here()));
            state.lives.are_told_by(view) && members.into_iter().all(|(engine, _)| knows(engine))
        });
        views_are_current && living().all(|(engine, _)| engine.calls_in_flight() == 0)
    }

    /// The report of the run.
    pub fn report(&self) -> SimReport {
        let state = self.shared.state.borrow();
        let engines = self.engines.borrow();
        let mut stats = *self.retired.borrow();
        engines.iter().for_each(|engine| stats.add(&engine.stats()));
        SimReport {
            simulated: self.now(),
            events: state.kernel.handled(),
            digest: state.kernel.digest(),
            resources: report::resources(&self.shared, &state, self.now()),
            spent: [Side::Host, Side::Nic]
                .into_iter()
                .flat_map(|side| report::spent(engines.iter().map(Engine::world), side))
                .collect(),
            faults: state.faults.counts,
            stats,
            packets: report::packets(&self.shared, &state),
        }
    }

    /// Handles the next event that comes by `limit`.
    fn handle_next(&self, limit: Nanos) -> Handled {
        let shared = &*self.shared;
        let next = {
            let state = &mut *shared.state.borrow_mut();
            let Some(event) = state.kernel.pop_by(limit) else { return Handled::Nothing };
            shared.now.set(state.kernel.now());
            match event {
                Event::Core(index) if state.take_round(index as usize) => Next::Round(index),
                Event::Core(_) => Next::Done,
                Event::Timer(index) => {
                    state.timer(index as usize);
                    Next::Done
                }
                Event::Frame(number) => {
                    frames::advance(shared, state, number);
                    // The last frame of a cluster that has settled may have been dropped.
                    if state.kernel.is_active() {
                        return Handled::Move;
                    }
                    Next::Done
                }
                Event::DmaSubmitted(number) => {
                    vectors::begin(shared, state, number);
                    Next::Done
                }
                Event::DmaHalfMoved(number) => {
                    vectors::move_half(shared, state, number);
                    Next::Done
                }
                Event::DmaMoved(number) => {
                    vectors::move_rest(shared, state, number);
                    self.wake_watchers(state, state.kernel.now());
                    Next::Done
                }
                Event::DmaCompleted(number) => {
                    held::complete_or_hold(shared, state, number);
                    Next::Done
                }
                Event::Verb(number) => {
                    verbs::advance(shared, state, number);
                    self.wake_watchers(state, state.kernel.now());
                    Next::Done
                }
                Event::VerbHalfMoved(number) => {
                    verbs::move_half(shared, state, number);
                    Next::Done
                }
                Event::Crash(index) => Next::Crash(index),
                Event::Restart(index) => Next::Restart(index),
                Event::News(number) => Next::News(number),
                Event::LeaseRenewal => Next::LeaseRenewal,
                Event::ViewAnswers => Next::ViewAnswers,
            }
        };
        match next {
            Next::Done => {}
            Next::Round(index) => self.step(index as usize),
            Next::Crash(index) => self.planned_crash(index as usize),
            Next::Restart(index) => self.planned_restart(index as usize),
            Next::News(number) => self.break_news(number as usize),
            Next::LeaseRenewal => leases::renew(self),
            Next::ViewAnswers => leases::take_answers(self),
        }
        Handled::Event
    }

    /// One iteration of a core's loop: frames to pass on, then a round of its engine.
    fn step(&self, index: usize) {
        let engine = &self.engines.borrow()[index].clone();
        let world = engine.world();
        world.begin();
        let due = {
            let state = &mut *self.shared.state.borrow_mut();
            self.pass_on(state, index, world);
            let core = &state.cores[index];
            core.next_frame().is_some_and(|at| at <= self.now()) || !core.done.is_empty()
        };
        let is_due = |now: Nanos| engine.next_deadline().is_some_and(|deadline| deadline <= now);
        let due = due || engine.is_ready() || is_due(world.local().to_nanos_up());
        let progress = due && engine.round();
        let state = &mut *self.shared.state.borrow_mut();
        // What it persists itself, it does once its frames have left.
        let flushed = state.cores[index].flushes.free_at();
        if flushed > world.local() {
            world.spend(Picos(flushed.0 - world.local().0), Spent::Work);
        }
        let end = world.end();
        let ready = engine.is_ready();
        let waits_for_room = ready && world.refused() && !progress;
        let core = &mut state.cores[index];
        core.busy += Picos(end.0 - picos(self.now()).0);
        core.busy_until = end;
        // Space may have been made between the refusal and now only by later events.
        core.blocked = waits_for_room;
        let next_frame = core.next_frame();
        let again = !core.done.is_empty()
            || !core.forward.is_empty()
            || is_due(end.to_nanos_up())
            || ready && !waits_for_room;
        let end = end.to_nanos_up();
        if again {
            state.request_round(index, end);
        } else if let Some(arrival) = next_frame {
            state.request_round(index, arrival);
        }
        if waits_for_room && let Some(leaves) = state.cores[index].leaving.front() {
            state.request_round(index, end.max(*leaves));
        }
        // A round that found its timers answered early must still look at the next one.
        if let Some(deadline) = engine.next_deadline() {
            state.request_timer(index, deadline);
        }
        if let Some(trace) = &self.shared.trace {
            let node = world.here().node;
            trace.backlogs(end, node, &state.nodes[usize::from(node.0)]);
        }
        self.wake_watchers(state, end);
        self.check_lost_memory();
    }

    /// Passes a burst of frames on between the host and the wire.
    fn pass_on(&self, state: &mut State, index: usize, world: &SimWorld) {
        for _ in 0..self.shared.tuning.burst {
            let Some(number) = state.cores[index].forward.pop_front() else { return };
            let bytes = frames::bytes_of(state, number);
            world.spend(world.costs.forward(bytes), Spent::Forward);
            let at = world.local().to_nanos_up();
            frames::passed_on(state, number, at);
        }
    }

    #[inline]
    fn wake_watchers(&self, state: &mut State, at: Nanos) {
        self.shared.doorbells.borrow_mut().drain(|index| state.request_round(index, at));
    }

    pub fn nodes(&self) -> impl Iterator<Item = NodeId> + use<> {
        self.shared.view.node_ids()
    }
}

/// The hardware of each node; those of one profile share one model.
fn models(view: &View, profiles: &[Arc<Profile>], tuning: &Tuning) -> Vec<Rc<NodeModel>> {
    assert!(profiles.len() == view.nodes(), "every node has a profile");
    let mixed = profiles.iter().any(|profile| !Arc::ptr_eq(profile, &profiles[0]));
    let mut models: Vec<Rc<NodeModel>> = Vec::with_capacity(profiles.len());
    let mut known: Vec<Rc<NodeModel>> = Vec::new();
    for (node, profile) in view.node_ids().zip(profiles) {
        let fits = profile.check_node(view, node);
        assert!(fits.is_ok(), "the view fits the hardware: {fits:?}");
        let same = known.iter().find(|model| Arc::ptr_eq(&model.profile, profile)).cloned();
        models.push(same.unwrap_or_else(|| {
            let most = if mixed { profile.dma.vector.value as usize } else { usize::MAX };
            let dma_vector = tuning.dma_vector.min(most);
            let model = Rc::new(NodeModel::new(profile, Tuning { dma_vector, ..tuning.clone() }));
            known.push(model.clone());
            model
        }));
    }
    models
}
