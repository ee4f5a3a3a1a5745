//! An engine thread: it runs rounds of its engines and the orders in between; without work it
//! spins, then parks.
//!
//! It never yields its core. A kernel that shares cores fairly may take a yield for a slice that
//! was used: beside busy processes a thread that yields until work comes has used up its share when
//! it comes, and the threads that wait for it yield theirs. Who parks keeps its share.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use nicol_core::engine::{CrashSabotage, Engine, EngineStats, Life, Loss, Revival, StartOn};
use nicol_core::faults::FaultCounts;
use nicol_core::ids::{EngineId, Incarnation, NodeId, Side};
use nicol_core::serving::{EventLoop, Turn};
use nicol_core::units::Nanos;
use nicol_core::view::{Asking, View};

use crate::control::Control;
use crate::orders::{Order, Orders, Rebirth};
use crate::parker::Parker;
use crate::ring::{self, Incoming, Outgoing};
use crate::view_service::{Request, Requests};
use crate::world::{LiveWorld, Shared};

/// The longest sleep; work always wakes a thread earlier.
const PARK_MAX: Duration = Duration::from_millis(100);

/// The least sleep in an event loop, whose waits are of whole milliseconds.
const LOOP_GRAIN: Duration = Duration::from_millis(1);

/// The longest sleep before a timer that is nearer than that: events of the loop do not end it.
const LOOP_NAP: Duration = Duration::from_micros(100);

/// Turns of busy engines between two of the event loop: enough that a look at the sockets costs
/// little beside them, and few enough that clients do not wait for it.
const TURNS_PER_LOOK: u32 = 16;

/// Sleep instead of a wait that is left out: long, for at the end of a run there are only such
/// waits until somebody stops the cluster, which must not add to the instructions that are counted.
const NAP: Duration = Duration::from_millis(5);

/// The report of a thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadReport {
    pub(crate) turns: u64,
    pub(crate) parks: u64,
    pub(crate) busy: Duration,
    pub(crate) elapsed: Duration,
    /// On a core, in the kernel for the thread too; `None` where the system does not say.
    pub(crate) cpu: Option<Duration>,
    /// The nodes whose engines it ran.
    pub(crate) nodes: Vec<NodeId>,
    pub(crate) stats: EngineStats,
    pub(crate) faults: FaultCounts,
}

/// An engine's rings before its thread exists.
pub(crate) struct EngineSlot {
    pub(crate) index: usize,
    id: EngineId,
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
}

/// A ring for every ordered pair of engines.
pub(crate) fn engine_slots(view: &View) -> Vec<EngineSlot> {
    let count = view.engine_count();
    let mut slots: Vec<EngineSlot> = view
        .engine_ids()
        .enumerate()
        .map(|(index, id)| EngineSlot { index, id, outgoing: Vec::new(), incoming: Vec::new() })
        .collect();
    for from in 0..count {
        for to in 0..count {
            let (outgoing, incoming) = ring::ring();
            slots[from].outgoing.push(outgoing);
            slots[to].incoming.push(incoming);
        }
    }
    for slot in &slots {
        assert!(slot.outgoing.len() == count, "an engine has a ring to every engine");
        assert!(slot.incoming.len() == count, "an engine has a ring from every engine");
    }
    slots
}

/// The setting of a thread.
pub(crate) struct Setting {
    pub(crate) shared: Arc<Shared>,
    pub(crate) start: Arc<dyn StartOn<LiveWorld>>,
    pub(crate) control: Arc<Control>,
    pub(crate) parker: Arc<Parker>,
    pub(crate) orders: Arc<Orders>,
    /// Where leases are asked for, if there is a service of views.
    pub(crate) requests: Option<Arc<Requests>>,
    pub(crate) seed: u64,
    /// Empty turns that the thread spins before it parks.
    pub(crate) spins: u32,
    pub(crate) sabotage: CrashSabotage,
}

/// One thread's life. `cargo xtask instructions` counts what is executed in here, by this name.
#[inline(never)]
pub(crate) fn drive(slots: Vec<EngineSlot>, setting: Setting) -> ThreadReport {
    let Setting { shared, seed, .. } = &setting;
    let engine = |slot: EngineSlot| {
        let rings = (slot.outgoing, slot.incoming);
        let world = LiveWorld::new(shared.clone(), slot.index, slot.id, *seed, rings);
        Engine::new(slot.id, world)
    };
    let nodes = slots.iter().map(|slot| slot.id.node).collect();
    let living: Vec<_> = slots.into_iter().map(engine).collect();
    let attends = setting.requests.is_some();
    let mut thread = EngineThread {
        living,
        down: Vec::new(),
        attends,
        asks_at: Nanos::ZERO,
        event_loop: None,
        unlooked: 0,
        report: ThreadReport { nodes, ..ThreadReport::default() },
        setting,
    };
    for engine in &thread.living {
        if let Some(requests) = &thread.setting.requests {
            engine.grant_lease(requests.lease());
        }
        thread.setting.start.start(engine);
    }
    thread.run();
    thread.end()
}

struct EngineThread {
    /// In the view's order.
    living: Vec<Engine<LiveWorld>>,
    /// Engines of sides that are down, as they will be in their next lives.
    down: Vec<Engine<LiveWorld>>,
    /// True if there is anything to attend to besides rounds.
    attends: bool,
    /// When leases are asked for again.
    asks_at: Nanos,
    /// The event loop that runs between the rounds, if there is one.
    event_loop: Option<Box<dyn EventLoop>>,
    /// Turns since it ran.
    unlooked: u32,
    report: ThreadReport,
    setting: Setting,
}

/// The time that this thread has been on a core.
fn cpu() -> Option<Duration> {
    let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    told.split_whitespace().next()?.parse().map(Duration::from_nanos).ok()
}

/// Turns in a row that did something. The clock is read between them only, so that a loaded thread
/// pays nothing for being measured.
struct Stretch {
    /// The end of the last empty turn or sleep.
    since: Instant,
    working: bool,
    /// The time that earlier stretches took.
    busy: Duration,
}

impl Stretch {
    fn end(&mut self) {
        let now = Instant::now();
        if std::mem::take(&mut self.working) {
            self.busy += now - self.since;
        }
        self.since = now;
    }
}

impl EngineThread {
    fn run(&mut self) {
        let Setting { spins, .. } = self.setting;
        let mut idle = 0_u32;
        let (begun, cpu) = (Instant::now(), cpu());
        let mut stretch = Stretch { since: begun, working: false, busy: Duration::ZERO };
        while !self.setting.control.stops() {
            if self.setting.orders.any() {
                stretch.end();
                self.follow_orders();
            }
            if self.attends {
                self.attend();
            }
            let mut progress = false;
            for engine in &self.living {
                if engine.world().stalled_until().is_none() {
                    progress |= engine.round();
                }
            }
            self.report.turns += 1;
            self.setting.shared.clock.end_turn();
            progress |= self.look_for_events(progress);
            if progress {
                stretch.working = true;
                idle = 0;
                continue;
            }
            stretch.end();
            if self.skips_wait() {
                // Nothing may be left but timers that repeat, until somebody stops the cluster.
                thread::sleep(NAP);
                continue;
            }
            idle = idle.saturating_add(1);
            // By turns, how often a thread looks before it parks would depend on the machine's
            // load.
            let spins = if self.setting.shared.clock.counts_turns() { 0 } else { spins };
            if idle < spins {
                std::hint::spin_loop();
            } else {
                let worked = self.sleep();
                stretch.since = Instant::now();
                if worked {
                    stretch.working = true;
                    idle = 0;
                }
            }
        }
        stretch.end();
        (self.report.busy, self.report.elapsed) = (stretch.busy, begun.elapsed());
        self.report.cpu = cpu.and_then(|before| self::cpu()?.checked_sub(before));
    }

    fn end(mut self) -> ThreadReport {
        for engine in self.living.iter().chain(&self.down) {
            self.report.stats.add(&engine.stats());
            self.report.faults.add(&engine.world().fault_counts());
            engine.dismantle();
        }
        self.report
    }

    fn now(&self) -> Nanos {
        self.setting.shared.now()
    }

    /// Where turns tell the time: is something due, now or after a wait that is left out?
    fn skips_wait(&self) -> bool {
        let clock = &self.setting.shared.clock;
        if !clock.counts_turns() {
            return false;
        }
        if self.living.iter().any(|engine| engine.is_ready() || engine.world().has_arrivals()) {
            return true;
        }
        let deadline = self.living.iter().filter_map(Engine::next_deadline).min();
        deadline.map(|deadline| clock.skip_to(deadline)).is_some()
    }

    /// Looks for events and gives the event loop its turn, if there is nothing else to do or the
    /// last one was long ago; returns whether it did something.
    fn look_for_events(&mut self, busy: bool) -> bool {
        let Some(event_loop) = &mut self.event_loop else { return false };
        self.unlooked += 1;
        // A thread that sleeps at once looks as it does so.
        let sleeps = !busy && self.setting.spins == 0;
        if sleeps || busy && self.unlooked < TURNS_PER_LOOK {
            return false;
        }
        event_loop.wait(Duration::ZERO);
        self.turn_event_loop()
    }

    /// Gives the event loop its turn; returns whether it did something.
    fn turn_event_loop(&mut self) -> bool {
        let Some(event_loop) = &mut self.event_loop else { return false };
        self.unlooked = 0;
        match event_loop.turn() {
            Turn::Idle => false,
            Turn::Worked => true,
            Turn::Ended => {
                self.event_loop = None;
                true
            }
        }
    }

    /// How long the thread may sleep unless somebody leaves work.
    fn longest_sleep(&self) -> Duration {
        let deadlines = self.living.iter().filter_map(Engine::next_deadline);
        let every = self.living.iter().chain(&self.down).map(Engine::world);
        let faults = every.filter_map(LiveWorld::next_fault);
        let asks = self.setting.requests.as_ref().map(|_| self.asks_at);
        let deadline = deadlines.chain(faults).chain(asks).min();
        let left = |deadline: Nanos| Duration::from_nanos(deadline.since(self.now()).0);
        deadline.map_or(PARK_MAX, left).min(PARK_MAX)
    }

    /// True if somebody has left work, or is any left.
    fn has_work(&self) -> bool {
        self.setting.control.stops_before_sleep()
            || self.setting.orders.any_before_sleep()
            || self.living.iter().any(Engine::is_ready)
            || self.living.iter().chain(&self.down).any(|engine| engine.world().has_arrivals())
    }

    /// Sleeps until there is work, a timer is due or the event loop has events; returns whether the
    /// loop then did something.
    fn sleep(&mut self) -> bool {
        let until = self.longest_sleep();
        self.report.parks += 1;
        let parker = self.setting.parker.clone();
        let Some(mut event_loop) = self.event_loop.take() else {
            parker.park(|| self.has_work(), || thread::park_timeout(until));
            return false;
        };
        let is_short = until < LOOP_GRAIN;
        if is_short {
            event_loop.wait(Duration::ZERO);
        } else {
            let until = Duration::from_millis(until.as_millis() as u64);
            parker.park(|| self.has_work(), || event_loop.wait(until));
        }
        self.event_loop = Some(event_loop);
        let worked = self.turn_event_loop();
        if is_short && !worked {
            // Rather a look at the events too many than a timer that is late.
            parker.park(|| self.has_work(), || thread::park_timeout(until.min(LOOP_NAP)));
        }
        worked
    }

    fn attach(&mut self, event_loop: Option<Box<dyn EventLoop>>) {
        let Some(event_loop) = event_loop else { return };
        self.setting.parker.sleeps_in(event_loop.waker());
        self.event_loop = Some(event_loop);
    }

    /// Loses what comes for engines that are down, and asks for leases.
    fn attend(&mut self) {
        self.down.iter().for_each(|engine| engine.world().lose_arrivals());
        let Some(requests) = &self.setting.requests else { return };
        let now = self.now();
        if now < self.asks_at {
            return;
        }
        self.asks_at = now + requests.renewal();
        // The first engine of a side asks for the side.
        let asks = |engine: &&Engine<LiveWorld>| {
            let world = engine.world();
            world.here().core == 0 && world.stalled_until().is_none() && !world.is_cut_off()
        };
        requests.leave(self.living.iter().filter(asks).map(|engine| Request {
            side: engine.world().life(),
            at: now,
            complete: engine.is_complete(),
        }));
    }

    fn follow_orders(&mut self) {
        let orders = self.setting.orders.clone();
        while let Some(order) = orders.take() {
            let pauses = matches!(order, Order::Pause);
            self.follow(order);
            orders.done();
            if pauses {
                self.stay_paused(&orders);
            }
        }
        self.attends = self.setting.requests.is_some() || !self.down.is_empty();
    }

    /// Follows orders until one says to go on, or the cluster stops.
    fn stay_paused(&mut self, orders: &Orders) {
        let control = self.setting.control.clone();
        while let Some(order) = orders.wait(|| control.stops()) {
            let resumes = matches!(order, Order::Resume);
            self.follow(order);
            orders.done();
            if resumes {
                return;
            }
        }
    }

    fn follow(&mut self, order: Order) {
        match order {
            Order::Pause | Order::Resume => {}
            Order::TakeApart(loss, next) => self.take_apart(loss, next),
            Order::Restart(rebirth) => self.restart(&rebirth),
            Order::Learn { node, side, life, near, far } => {
                let news = (node, side, life);
                self.learn(news, near, far);
            }
            Order::Serve { side, view, until } => self.serve(side, &view, until),
            Order::Attach(handover) => self.attach(handover.take()),
        }
    }

    fn take_apart(&mut self, loss: Loss, next: [Incarnation; 2]) {
        if self.setting.sabotage == CrashSabotage::TimersFire {
            return;
        }
        let is_hit = |engine: &Engine<LiveWorld>| {
            let here = engine.world().here();
            here.node == loss.node && loss.of(here.side)
        };
        let (hit, living) = std::mem::take(&mut self.living).into_iter().partition(is_hit);
        self.living = living;
        let hit: Vec<Engine<LiveWorld>> = hit;
        for old in hit {
            let here = old.world().here();
            // It takes the rings: what the ends of tasks still send goes nowhere.
            let world = LiveWorld::reborn(old.world(), next[here.side as usize]);
            world.lose_arrivals();
            self.report.stats.add(&old.stats());
            old.dismantle();
            self.down.push(Engine::new(here, world));
        }
    }

    fn restart(&mut self, rebirth: &Rebirth) {
        let Rebirth { incarnation, ref medium, memory_is_durable, .. } = *rebirth;
        let is_it = |engine: &Engine<LiveWorld>| engine.world().index() == rebirth.engine;
        if let Some(place) = self.down.iter().position(is_it) {
            let engine = self.down.remove(place);
            if rebirth.needs_lease {
                engine.revoke_lease();
            }
            for &(node, side, life) in &rebirth.known {
                engine.learn(node, side, life);
            }
            self.living.push(engine);
            self.living.sort_by_key(|engine| engine.world().index());
            // It asks at once.
            self.asks_at = Nanos::ZERO;
        }
        let revival = Revival { incarnation, medium, memory_is_durable };
        if let Some(engine) = self.living.iter().find(|engine| is_it(engine)) {
            self.setting.start.restart(engine, &revival);
        }
    }

    fn learn(&self, (node, side, life): (NodeId, Side, Life), near: bool, far: bool) {
        for engine in &self.living {
            let of_node = engine.world().here().node == node;
            if of_node && near || !of_node && far {
                engine.learn(node, side, life);
            }
        }
    }

    fn serve(&self, (node, side, incarnation): Asking, view: &View, until: Nanos) {
        for engine in &self.living {
            if engine.world().life() == (node, side, incarnation) {
                engine.install_view(view);
                engine.grant_lease(until);
            }
        }
    }
}
