//! A cluster of engines on this machine's threads.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nicol_core::engine::{Engine, EngineStats, Start, Tuning};
use nicol_core::faults::{FaultCounts, FaultPlan};
use nicol_core::ids::EngineId;
use nicol_core::memory::RegionTable;
use nicol_core::trace::Sink;
use nicol_core::units::Nanos;
use nicol_core::view::View;

use crate::log::{self, LogDevice, LogFile, LogQueue};
use crate::parker::Parker;
use crate::ring::{self, Incoming, Outgoing, ReadySet};
use crate::world::{LiveWorld, Shared};

/// Empty turns that a thread spins, where it has a core of its own.
const SPINS: u32 = 2_000;
/// Empty turns that it then yields its core before it parks.
const YIELDS: u32 = 50;
/// The first repeat of a request where frames are lost on purpose.
const RETRANSMIT_FAULTY: Nanos = Nanos::from_micros(500);
/// The longest sleep; work always wakes a thread earlier.
const PARK_MAX: Duration = Duration::from_millis(100);

/// What to launch.
#[derive(Clone, Debug)]
pub struct LiveConfig {
    /// The cluster: its servers first, then other nodes.
    pub view: View,
    /// Engine threads; `None` takes one per engine if there are cores for that, else one per node,
    /// and no more than there are cores.
    pub threads: Option<usize>,
    /// Pin threads to cores, where there is a core for each?
    pub pin: bool,
    /// Do idle threads spin for a while? It saves wake-ups, but where other clusters want the cores
    /// it holds up the very threads that this one waits for, and theirs.
    pub spin: bool,
    /// The seed of the engines' protocol streams and of the faults.
    pub seed: u64,
    /// What makes writes durable.
    pub log: LogDevice,
    /// What goes wrong between nodes, for tests.
    pub faults: Option<FaultPlan>,
    /// Where the run is recorded, if it is.
    pub trace: Option<Arc<Sink>>,
}

impl LiveConfig {
    /// Threads as fit the machine, not pinned, spinning, seed 0, durable memory, no faults.
    pub fn new(view: View) -> Self {
        let (threads, log) = (None, LogDevice::Memory);
        Self { view, threads, pin: false, spin: true, seed: 0, log, faults: None, trace: None }
    }
}

/// Why a cluster did not launch, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// No engine thread was asked for.
    #[error("0 engine threads: give at least 1")]
    NoThreads,
    /// The operating system refused a thread.
    #[error("cannot start an engine thread: {0}")]
    Thread(std::io::Error),
    /// A log file cannot be made or written; nothing has been durable at that node since.
    #[error("the log device fails: {0}")]
    LogDevice(String),
    /// An engine panicked: a bug. The whole cluster has stopped.
    #[error("an engine panicked: {0}")]
    Panicked(String),
}

/// What a cluster did.
#[derive(Clone, Debug, Default)]
pub struct LiveReport {
    /// Per thread: the fraction of its time that went to turns which did something. The empty turn
    /// that ends a stretch of them is included, as is time in which the thread was preempted.
    pub busy: Vec<f64>,
    /// Per thread: turns of its engines, empty ones included.
    pub turns: Vec<u64>,
    /// Per thread: how often it went to sleep.
    pub parks: Vec<u64>,
    /// The counters of all engines.
    pub stats: EngineStats,
    /// How often each injected fault struck.
    pub faults: FaultCounts,
    /// From launch to stop.
    pub elapsed: Duration,
}

#[derive(Debug, Default)]
struct Control {
    stop: AtomicBool,
    panicked: Mutex<Option<String>>,
    log_failed: Mutex<Option<String>>,
}

/// A running cluster. Dropping it stops it.
#[derive(Debug)]
pub struct LiveCluster {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<ThreadReport>>,
    logs: Vec<JoinHandle<()>>,
    parkers: Vec<Arc<Parker>>,
    control: Arc<Control>,
    started: Instant,
}

#[derive(Debug, Default)]
struct ThreadReport {
    turns: u64,
    parks: u64,
    busy: Duration,
    elapsed: Duration,
    stats: EngineStats,
    faults: FaultCounts,
}

/// An engine's rings before its thread exists.
struct EngineSlot {
    index: usize,
    id: EngineId,
    outgoing: Vec<Outgoing>,
    incoming: Vec<Incoming>,
}

/// A node's engines on one thread keep its memory in one cache and balance by themselves; spread
/// unevenly over a few threads more, the slowest thread would hold the others back.
fn default_threads(view: &View, cores: usize) -> usize {
    if cores >= view.engine_count() { view.engine_count() } else { cores.min(view.nodes()) }
}

/// The thread of each engine: nodes go round the threads; where there are more threads than nodes,
/// so do the engines, host engines first, so that a node's two sides sit apart.
fn assign(view: &View, threads: usize) -> Vec<usize> {
    let engines: Vec<EngineId> = view.engine_ids().collect();
    if threads <= view.nodes() {
        return engines.iter().map(|engine| usize::from(engine.node.0) % threads).collect();
    }
    let mut order: Vec<usize> = (0..engines.len()).collect();
    order.sort_by_key(|&index| (engines[index].side, index));
    let mut assigned = vec![0; engines.len()];
    for (turn, index) in order.into_iter().enumerate() {
        assigned[index] = turn % threads;
    }
    assigned
}

impl LiveCluster {
    /// Starts `start` on every engine, each on its thread.
    ///
    /// # Errors
    /// If no threads are asked for, or the operating system refuses one or a log file.
    pub fn launch<S: Start>(config: &LiveConfig, start: &Arc<S>) -> Result<Self, LiveError> {
        let view = &config.view;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = config.threads.unwrap_or_else(|| default_threads(view, cores));
        let threads = threads.min(view.engine_count());
        if threads == 0 {
            return Err(LiveError::NoThreads);
        }
        let files = match &config.log {
            LogDevice::Memory => Vec::new(),
            LogDevice::File { dir } => {
                log::create(dir, view).map_err(|error| LiveError::LogDevice(error.to_string()))?
            }
        };
        let assigned = assign(view, threads);
        let parkers: Vec<Arc<Parker>> = (0..threads).map(|_| Arc::default()).collect();
        let started = Instant::now();
        let shared = Arc::new(Shared {
            view: view.clone(),
            tuning: tuning(config.faults.is_some()),
            faults: config.faults.clone(),
            trace: config.trace.clone(),
            regions: view.node_ids().map(|_| RegionTable::default()).collect(),
            started,
            ready: view.engine_ids().map(|_| ReadySet::new(view.engine_count())).collect(),
            parkers: assigned.iter().map(|&thread| parkers[thread].clone()).collect(),
            logs: files.iter().map(|_| LogQueue::default()).collect(),
            persisted: view.engine_ids().map(|_| Default::default()).collect(),
        });
        let mut slots: Vec<Vec<EngineSlot>> = (0..threads).map(|_| Vec::new()).collect();
        for slot in engine_slots(view) {
            slots[assigned[slot.index]].push(slot);
        }
        // Spinning helps only where nobody waits for the core.
        let spins = match config.spin {
            true if threads < cores => SPINS,
            true => SPINS / 20,
            false => 0,
        };
        let pins =
            core_affinity::get_core_ids().filter(|cores| config.pin && cores.len() >= threads);
        let mut cluster = Self {
            shared: shared.clone(),
            threads: Vec::new(),
            logs: Vec::new(),
            parkers,
            control: Arc::default(),
            started,
        };
        for (node, file) in files.into_iter().enumerate() {
            cluster.start_log(node, file)?;
        }
        for (number, slots) in slots.into_iter().enumerate() {
            let (shared, start) = (shared.clone(), start.clone());
            let (control, parker) = (cluster.control.clone(), cluster.parkers[number].clone());
            let pin = pins.as_ref().map(|cores| cores[number]);
            let seed = config.seed;
            let body = move || {
                if let Some(core) = pin {
                    core_affinity::set_for_current(core);
                }
                parker.adopt();
                let run = || drive(slots, &shared, &*start, &control, &parker, (seed, spins));
                panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|cause| {
                    control.fail(&*cause);
                    ThreadReport::default()
                })
            };
            let builder = thread::Builder::new().name(format!("nicol-engine-{number}"));
            cluster.threads.push(builder.spawn(body).map_err(LiveError::Thread)?);
        }
        Ok(cluster)
    }

    /// Waits until `done`, looking every `poll`.
    ///
    /// # Errors
    /// If an engine panicked or a log device failed.
    pub fn run_until(
        &self,
        mut done: impl FnMut() -> bool,
        poll: Duration,
    ) -> Result<(), LiveError> {
        while !done() {
            self.control.check()?;
            thread::sleep(poll);
        }
        self.control.check()
    }

    /// Stops every engine and says what they did.
    ///
    /// # Errors
    /// If an engine panicked or a log device failed.
    pub fn stop(mut self) -> Result<LiveReport, LiveError> {
        let mut report = LiveReport::default();
        for one in self.halt() {
            report.busy.push(one.busy.as_secs_f64() / one.elapsed.as_secs_f64().max(1e-9));
            report.turns.push(one.turns);
            report.parks.push(one.parks);
            report.stats.add(&one.stats);
            report.faults.add(&one.faults);
        }
        report.elapsed = self.started.elapsed();
        self.control.check()?;
        Ok(report)
    }

    /// Starts the log thread of a node.
    fn start_log(&mut self, node: usize, file: LogFile) -> Result<(), LiveError> {
        let (shared, control) = (self.shared.clone(), self.control.clone());
        let body = move || {
            let done = |persist: log::Persist| {
                let Some(index) = shared.view.index_of(persist.from) else { return };
                shared.persisted[index].leave(persist.operation);
                shared.parkers[index].wake();
            };
            let failed = |error: &_| control.fail_log(node, error);
            let run = || log::serve(&shared.logs[node], file, done, failed);
            if let Err(cause) = panic::catch_unwind(AssertUnwindSafe(run)) {
                control.fail(&*cause);
            }
        };
        let builder = thread::Builder::new().name(format!("nicol-log-{node}"));
        self.logs.push(builder.spawn(body).map_err(LiveError::Thread)?);
        Ok(())
    }

    /// Ends every thread, the engines' before the logs', and returns what the engines' did. A panic
    /// was caught inside its thread and is in `control`.
    fn halt(&mut self) -> Vec<ThreadReport> {
        self.control.stop.store(true, Ordering::SeqCst);
        self.parkers.iter().for_each(|parker| parker.wake());
        let reports = self.threads.drain(..).filter_map(|thread| thread.join().ok()).collect();
        self.shared.logs.iter().for_each(LogQueue::close);
        for thread in self.logs.drain(..) {
            let _ended = thread.join();
        }
        reports
    }
}

impl Drop for LiveCluster {
    fn drop(&mut self) {
        let _reports = self.halt();
    }
}

/// What a caught panic said.
pub fn panic_text(cause: &(dyn Any + Send)) -> String {
    cause
        .downcast_ref::<String>()
        .cloned()
        .or_else(|| cause.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_else(|| "no message".to_owned())
}

impl Control {
    fn fail(&self, cause: &(dyn Any + Send)) {
        let text = panic_text(cause);
        self.panicked.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(text);
        self.stop.store(true, Ordering::SeqCst);
    }

    fn fail_log(&self, node: usize, error: &std::io::Error) {
        let mut failed = self.log_failed.lock().unwrap_or_else(PoisonError::into_inner);
        failed.get_or_insert_with(|| format!("node {node}: {error}"));
    }

    fn check(&self) -> Result<(), LiveError> {
        let failed = self.log_failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(text) = failed {
            return Err(LiveError::LogDevice(text));
        }
        match &*self.panicked.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(text) => Err(LiveError::Panicked(text.clone())),
            None => Ok(()),
        }
    }
}

/// Frames between threads of one process need no checksum and no repeat; those that are damaged and
/// lost on purpose do.
fn tuning(faulty: bool) -> Tuning {
    Tuning {
        aggregation: true,
        dma_vector: 15,
        dma_async: true,
        doorbell_batch: 64,
        burst: 64,
        tasks_per_round: 256,
        retransmit_after: if faulty { RETRANSMIT_FAULTY } else { Nanos::from_millis(10) },
        one_sided_timeout: Nanos::from_secs(2),
        checksums: faulty,
    }
}

/// A ring for every ordered pair of engines.
fn engine_slots(view: &View) -> Vec<EngineSlot> {
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

/// Turns in a row that did something. The clock is read between them only, so that a loaded thread
/// pays nothing for being measured.
struct Stretch {
    /// The end of the last empty turn or sleep.
    since: Instant,
    working: bool,
    /// What earlier stretches took.
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

/// One thread's life: rounds of its engines, then less and less eager waiting.
fn drive<S: Start>(
    slots: Vec<EngineSlot>,
    shared: &Arc<Shared>,
    start: &S,
    control: &Control,
    parker: &Parker,
    (seed, spins): (u64, u32),
) -> ThreadReport {
    let engines: Vec<Engine<LiveWorld>> = slots
        .into_iter()
        .map(|slot| {
            let rings = (slot.outgoing, slot.incoming);
            let world = LiveWorld::new(shared.clone(), slot.index, slot.id, seed, rings);
            Engine::new(slot.id, world)
        })
        .collect();
    for engine in &engines {
        start.start(engine);
    }
    let mut report = ThreadReport::default();
    let mut idle = 0_u32;
    let begun = Instant::now();
    let mut stretch = Stretch { since: begun, working: false, busy: Duration::ZERO };
    while !control.stop.load(Ordering::Relaxed) {
        let mut progress = false;
        for engine in &engines {
            if engine.world().stalled_until().is_none() {
                progress |= engine.round();
            }
        }
        report.turns += 1;
        if progress {
            stretch.working = true;
            idle = 0;
            continue;
        }
        stretch.end();
        idle = idle.saturating_add(1);
        if idle < spins {
            std::hint::spin_loop();
        } else if idle < spins + YIELDS {
            thread::yield_now();
        } else {
            report.parks += 1;
            sleep(&engines, shared, control, parker);
            stretch.since = Instant::now();
        }
    }
    stretch.end();
    (report.busy, report.elapsed) = (stretch.busy, begun.elapsed());
    for engine in &engines {
        report.stats.add(&engine.stats());
        report.faults.add(&engine.world().fault_counts());
        engine.dismantle();
    }
    report
}

fn sleep(engines: &[Engine<LiveWorld>], shared: &Shared, control: &Control, parker: &Parker) {
    let now = Nanos(shared.started.elapsed().as_nanos() as u64);
    let deadlines = engines.iter().filter_map(Engine::next_deadline);
    let faults = engines.iter().filter_map(|engine| engine.world().next_fault());
    let deadline = deadlines.chain(faults).min();
    let until = deadline.map_or(PARK_MAX, |deadline| Duration::from_nanos(deadline.since(now).0));
    parker.park(until.min(PARK_MAX), || {
        control.stop.load(Ordering::SeqCst)
            || engines.iter().any(|engine| engine.is_ready() || engine.world().has_arrivals())
    });
}
