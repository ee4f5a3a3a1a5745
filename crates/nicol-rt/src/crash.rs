//! Crashes and restarts of a live cluster.
//!
//! The threads that run engines of a node stop between two rounds while sides of it crash or start:
//! nothing of the node runs while its memory goes. Each engine is taken apart by its own thread.
//! Crashes and restarts come one after the other.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nicol_core::engine::{CrashSabotage, Ending, Life, Lives, Loss, StartOn, restart_name};
use nicol_core::faults::Crash;
use nicol_core::ids::{Epoch, NodeId, Side};
use nicol_core::medium::MediumCounts;
use nicol_core::memory::Region;
use nicol_core::rng::{Purpose, Stream};
use nicol_core::serving::EventLoop;
use nicol_core::trace::{Tracer, Track, What};
use nicol_core::view::{Asking, View};

use crate::config::{LiveError, Views};
use crate::control::Control;
use crate::log::LogQueue;
use crate::orders::{Handover, Order, Orders, Rebirth};
use crate::world::{LiveWorld, Shared};

const SIDES: [Side; 2] = [Side::Host, Side::Nic];

/// The state that crashes and restarts of a cluster need.
#[derive(Debug)]
pub(crate) struct Crasher {
    shared: Arc<Shared>,
    control: Arc<Control>,
    started: Arc<dyn StartOn<LiveWorld>>,
    orders: Vec<Arc<Orders>>,
    /// By engine: its thread.
    assigned: Vec<usize>,
    views: Views,
    sabotage: CrashSabotage,
    books: Mutex<Books>,
}

/// Held during a crash or a restart.
#[derive(Debug)]
struct Books {
    lives: Lives,
    /// Memory that crashes have taken away.
    lost: Vec<Arc<Region>>,
    medium: MediumCounts,
    dice: Stream,
    /// The newest view that every member of it has installed.
    installed: View,
}

/// An order that threads were given, each by its number there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told(Vec<(usize, u64)>);

/// Threads that stand still until this is dropped.
struct Paused<'a> {
    crasher: &'a Crasher,
    threads: Vec<usize>,
}

impl Drop for Paused<'_> {
    fn drop(&mut self) {
        for &thread in &self.threads {
            self.crasher.give(thread, Order::Resume);
        }
    }
}

/// Log devices that hand nothing back until their host has crashed, or until this is dropped.
struct Held<'a>(Vec<&'a LogQueue>);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|log| log.release());
    }
}

impl Crasher {
    pub(crate) fn new(
        (shared, control): (Arc<Shared>, Arc<Control>),
        started: Arc<dyn StartOn<LiveWorld>>,
        (orders, assigned): (Vec<Arc<Orders>>, Vec<usize>),
        views: Views,
        first: &View,
        (seed, sabotage): (u64, CrashSabotage),
    ) -> Self {
        let books = Mutex::new(Books {
            lives: Lives::new(first),
            lost: Vec::new(),
            medium: MediumCounts::default(),
            dice: Stream::new(seed, Purpose::Medium, 0),
            installed: first.clone(),
        });
        Self { shared, control, started, orders, assigned, views, sabotage, books }
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The first view, as the view service has it.
    pub(crate) fn first_view(&self) -> View {
        self.shared.view.clone().with_halves(self.books().lives.halves())
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    pub(crate) fn sabotage(&self) -> CrashSabotage {
        self.sabotage
    }

    pub(crate) fn stops(&self) -> bool {
        self.control.stops()
    }

    pub(crate) fn medium_counts(&self) -> MediumCounts {
        self.books().medium
    }

    /// Asks the log devices for something while nothing crashes or starts: they answer one thing at
    /// a time.
    pub(crate) fn with_logs<T>(&self, ask: impl FnOnce(&[LogQueue]) -> T) -> T {
        let _books = self.books();
        ask(&self.shared.logs)
    }

    /// Every side that is up in `view` has installed it.
    pub(crate) fn have_installed(&self, view: &View) {
        self.books().installed = view.clone();
    }

    /// That view, if it is another than that of `epoch`.
    pub(crate) fn installed_after(&self, epoch: Epoch) -> Option<View> {
        let books = self.books();
        (books.installed.epoch() != epoch).then(|| books.installed.clone())
    }

    /// Looks at what engines share while nothing crashes or starts, if the view service has told of
    /// every crash.
    pub(crate) fn when_views_are_current<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        let books = self.books();
        let told = self.views != Views::Service || books.lives.are_told_by(&books.installed);
        told.then(look)
    }

    /// Crashes what of these sides lives, all at one time.
    pub(crate) fn crash(&self, losses: impl FnOnce(&Lives) -> Vec<Loss>) {
        let books = &mut *self.books();
        let losses = losses(&books.lives);
        self.crash_all(books, &losses);
    }

    fn crash_all(&self, books: &mut Books, losses: &[Loss]) {
        let nodes: Vec<NodeId> = losses.iter().map(|loss| loss.node).collect();
        // What is not durable when the crash begins stays undecided, however long the threads take
        // to stop.
        let _held = self.hold_logs(books, losses);
        let Some(_paused) = self.pause(&nodes) else { return };
        for &loss in losses {
            if !self.take_apart(books, loss, Ending::Crash) {
                return;
            }
            // What waits between two lives is lost as well.
            let waiting = books.lives.end_waiting(loss);
            waiting.into_iter().for_each(|loss| self.started.crashed(&loss));
        }
    }

    /// Begins a new life of a side that the view service has given up, unless the old one is over
    /// already; and of its other half, if that needs it. Without a half that it needs it waits for
    /// it.
    pub(crate) fn begin_anew(&self, (node, side, incarnation): Asking) {
        let books = &mut *self.books();
        if books.lives.of(node, side) != (Life { up: true, incarnation }) {
            return;
        }
        let Some(_paused) = self.pause(&[node]) else { return };
        let [host, nic] = SIDES.map(|of| of == side);
        let given_up = Loss { node, host, nic };
        if self.take_apart(books, given_up, Ending::Anew) {
            let again = books.lives.start_again(given_up);
            self.start_with_halves(books, &again);
        }
    }

    /// Starts sides that are down, and with them their other halves that need them: what lives of
    /// these ends first.
    fn start_with_halves(&self, books: &mut Books, sides: &[(NodeId, Side)]) {
        let along = books.lives.start_along(sides);
        for &(node, side) in &along {
            let loss = Loss { node, host: side == Side::Host, nic: side == Side::Nic };
            if !self.take_apart(books, loss, Ending::Anew) {
                return;
            }
        }
        self.bring_back(books, &[sides, &along].concat());
    }

    /// Starts what is down of these sides.
    pub(crate) fn restart(&self, sides: impl FnOnce(&Lives) -> Vec<(NodeId, Side)>) {
        let books = &mut *self.books();
        let sides = sides(&books.lives);
        let nodes: Vec<NodeId> = sides.iter().map(|&(node, _)| node).collect();
        let Some(_paused) = self.pause(&nodes) else { return };
        self.start_with_halves(books, &sides);
    }

    /// Carries out the crashes of a plan, until the last one or until the cluster stops.
    pub(crate) fn carry_out(&self, crashes: &[Crash]) {
        let mut due: Vec<_> = crashes.iter().map(|crash| (crash.at, false, crash)).collect();
        let back = crashes.iter().filter_map(|crash| Some((crash.restarts_at()?, true, crash)));
        due.extend(back);
        due.sort_by_key(|&(at, ..)| at);
        for (at, restarts, crash) in due {
            if self.control.wait_until(self.shared.clock.started() + Duration::from_nanos(at.0)) {
                return;
            }
            if restarts {
                self.restart(|lives| lives.returns(crash));
            } else {
                self.crash(|lives| lives.losses(crash));
            }
        }
    }

    /// # Errors
    /// If anything has accessed memory that a crash has taken away: a bug.
    pub(crate) fn check_lost_memory(&self) -> Result<(), LiveError> {
        let books = self.books();
        let accessed = books.lost.iter().find(|region| region.lost_accesses() > 0);
        accessed.map_or(Ok(()), |region| {
            let text = format!("{region:?} was lost in a crash and is accessed afterwards");
            Err(LiveError::Panicked(text))
        })
    }

    /// Leaves an order for every thread with engines of `node`.
    pub(crate) fn tell(&self, node: NodeId, order: &Order) -> Told {
        let threads = self.threads_of(|of| of == node).into_iter();
        Told(threads.map(|thread| (thread, self.give(thread, order.clone()))).collect())
    }

    /// Have all threads followed what they were told?
    pub(crate) fn have_followed(&self, told: &Told) -> bool {
        told.0.iter().all(|&(thread, number)| self.orders[thread].have_been_followed(number))
    }

    fn threads_of(&self, hit: impl Fn(NodeId) -> bool) -> Vec<usize> {
        let engines = self.shared.view.engine_ids().zip(&self.assigned);
        let mut threads: Vec<usize> =
            engines.filter(|(engine, _)| hit(engine.node)).map(|(_, &thread)| thread).collect();
        threads.sort_unstable();
        threads.dedup();
        threads
    }

    fn give(&self, thread: usize, order: Order) -> u64 {
        let number = self.orders[thread].give(order);
        let engine = self.assigned.iter().position(|&of| of == thread);
        engine.into_iter().for_each(|engine| self.shared.parkers[engine].wake());
        number
    }

    /// Has an engine thread run an event loop; the loop is dropped if the cluster stops instead.
    pub(crate) fn attach(&self, thread: usize, event_loop: Box<dyn EventLoop>) {
        let handover = Arc::new(Handover::new(event_loop));
        if !self.have(&[thread], &Order::Attach(handover.clone())) {
            drop(handover.take());
        }
    }

    /// Gives an order to these threads and waits until they have followed it; false if the cluster
    /// stops instead.
    fn have(&self, threads: &[usize], order: &Order) -> bool {
        let given: Vec<_> =
            threads.iter().map(|&thread| (thread, self.give(thread, order.clone()))).collect();
        let stops = || self.control.stops();
        given.into_iter().all(|(thread, number)| self.orders[thread].wait_for(number, stops))
    }

    /// Stops the threads with engines of these nodes; `None` if there is nothing to stop, or the
    /// cluster stops.
    fn pause(&self, nodes: &[NodeId]) -> Option<Paused<'_>> {
        let threads = self.threads_of(|node| nodes.contains(&node));
        if threads.is_empty() {
            return None;
        }
        let stopped = self.have(&threads, &Order::Pause);
        let paused = Paused { crasher: self, threads };
        stopped.then_some(paused)
    }

    /// Stops the log devices of hosts that are about to crash.
    fn hold_logs(&self, books: &Books, losses: &[Loss]) -> Held<'_> {
        let crash = |loss: &&Loss| books.lives.living(**loss).is_some_and(|living| living.host);
        let logs = losses.iter().filter(crash);
        let logs: Vec<_> =
            logs.filter_map(|loss| self.shared.logs.get(loss.node.index())).collect();
        logs.iter().for_each(|log| log.hold());
        Held(logs)
    }

    /// Takes apart what of `loss` lives, while the threads of the node stand still; false if the
    /// cluster stops.
    fn take_apart(&self, books: &mut Books, loss: Loss, ending: Ending) -> bool {
        let Some(loss) = books.lives.living(loss) else { return true };
        let node = loss.node;
        self.trace(node, loss.name(ending));
        let loses = ending.loses_memory(books.lives.halves());
        let hit = || SIDES.into_iter().filter(|&side| loss.of(side));
        hit().for_each(|side| books.lives.take_down(node, side));
        let next = SIDES.map(|side| books.lives.of(node, side).incarnation);
        let threads = self.threads_of(|of| of == node);
        if !self.have(&threads, &Order::TakeApart(loss, next)) {
            return false;
        }
        let log = self.shared.logs.get(node.index());
        if let Some(log) = log.filter(|_| loss.host && loses) {
            let keeps_all = self.sabotage == CrashSabotage::MediumKeepsAll;
            books.medium.add(&log.crash(books.dice.bits(), keeps_all));
        }
        let regions = &self.shared.regions[node.index()];
        for side in hit() {
            books.lost.extend(regions.lose(side, self.memory_is_durable()));
        }
        if loss.nic {
            // NIC engines execute the chains here.
            regions.forget_chains();
        }
        if loses {
            self.started.crashed(&loss)
        } else {
            self.started.ended(&loss)
        }
        hit().all(|side| self.spread(books, node, side))
    }

    fn memory_is_durable(&self) -> bool {
        self.shared.logs.is_empty()
    }

    /// Starts sides that are down, while the threads of their nodes stand still.
    fn bring_back(&self, books: &mut Books, sides: &[(NodeId, Side)]) {
        for &(node, side) in sides {
            books.lives.bring_up(node, side);
            self.trace(node, restart_name(side));
        }
        let mut content: Option<(NodeId, Arc<[_]>)> = None;
        for (index, id) in self.shared.view.engine_ids().enumerate() {
            if !sides.contains(&(id.node, id.side)) {
                continue;
            }
            let medium = match &content {
                Some((node, medium)) if *node == id.node => medium.clone(),
                _ => self
                    .shared
                    .logs
                    .get(id.node.index())
                    .map(|log| log.content())
                    .into_iter()
                    .flatten()
                    .collect(),
            };
            content = Some((id.node, medium.clone()));
            let up = books.lives.iter().filter(|(.., life)| life.up);
            let rebirth = Order::Restart(Arc::new(Rebirth {
                engine: index,
                incarnation: books.lives.of(id.node, id.side).incarnation,
                medium,
                memory_is_durable: self.memory_is_durable(),
                known: up.collect(),
                needs_lease: self.views == Views::Service,
            }));
            if !self.have(&[self.assigned[index]], &rebirth) {
                return;
            }
        }
        for &(node, side) in sides {
            self.spread(books, node, side);
        }
    }

    /// Lets engines learn what has happened to a side: the node's other side, which sees it over
    /// PCIe, and the others if somebody tells them. False if the cluster stops.
    fn spread(&self, books: &Books, node: NodeId, side: Side) -> bool {
        let life = books.lives.of(node, side);
        let (near, far) = (true, self.views == Views::Detector);
        let order = Order::Learn { node, side, life, near, far };
        let threads = self.threads_of(|of| of == node);
        let others = self.threads_of(|_| far);
        let told = self.have(&threads, &order);
        let others = others.into_iter().filter(|thread| !threads.contains(thread));
        others.for_each(|thread| {
            self.give(thread, order.clone());
        });
        told
    }

    fn trace(&self, node: NodeId, fault: &'static str) {
        if let Some(sink) = &self.shared.trace {
            let tracer = Tracer::new(sink, Track::Hardware(node));
            tracer.record(self.shared.now(), What::Fault(fault));
        }
    }
}
