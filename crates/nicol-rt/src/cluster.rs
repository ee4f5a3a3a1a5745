//! A cluster of engines on this machine's threads.

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nicol_core::engine::{CrashSabotage, DoorbellBatch, EngineStats, Lives, Loss, StartOn, Tuning};
use nicol_core::faults::FaultCounts;
use nicol_core::ids::{EngineId, Epoch, NodeId, Side};
use nicol_core::medium::{MediumCounts, MediumWrite};
use nicol_core::memory::RegionTable;
use nicol_core::serving::EventLoop;
use nicol_core::units::Nanos;
use nicol_core::view::{Halves, Role, View};

use crate::clock::SharedClock;
use crate::config::{Clock, LiveConfig, LiveError, Views};
use crate::control::Control;
use crate::crash::Crasher;
use crate::log::{self, Absent, Disk, LogDevice, LogFile, LogFolder, LogQueue};
use crate::orders::Orders;
use crate::parker::Parker;
use crate::ring::ReadySet;
use crate::thread::{EngineSlot, Setting, ThreadReport, drive, engine_slots};
use crate::view_service::{self, Requests};
use crate::world::{LiveWorld, Shared};

/// Empty turns that a thread spins, where it has a core of its own.
const SPINS: u32 = 2_000;
/// The first repeat of a request where frames are lost on purpose.
const RETRANSMIT_FAULTY: Nanos = Nanos::from_micros(500);

/// The report of a cluster.
#[derive(Clone, Debug, Default)]
pub struct LiveReport {
    /// Per thread: the fraction of its time that went to turns which did something. The empty turn
    /// that ends a stretch of them is included, as is time in which the thread was preempted.
    pub busy: Vec<f64>,
    /// Per thread: turns of its engines, empty ones included.
    pub turns: Vec<u64>,
    /// Per thread: how often it went to sleep.
    pub parks: Vec<u64>,
    /// Per thread: its time on a core, that which it spun included; `None` where the system does
    /// not say.
    pub cpu: Vec<Option<Duration>>,
    /// Per thread: the nodes whose engines it ran.
    pub nodes: Vec<Vec<NodeId>>,
    /// The counters of all engines.
    pub stats: EngineStats,
    /// How often each injected fault struck.
    pub faults: FaultCounts,
    /// From launch to stop.
    pub elapsed: Duration,
}

/// A running cluster. Dropping it stops it.
#[derive(Debug)]
pub struct LiveCluster {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<ThreadReport>>,
    /// The threads outside the nodes: the view service, and the one that carries out planned
    /// crashes.
    outside: Vec<JoinHandle<()>>,
    logs: Vec<JoinHandle<()>>,
    parkers: Vec<Arc<Parker>>,
    control: Arc<Control>,
    crasher: Arc<Crasher>,
    started: Instant,
    /// The folder of logs that are not read back.
    _folder: Option<LogFolder>,
}

/// A node's engines on one thread keep its memory in one cache and balance by themselves; spread
/// unevenly over a few threads more, the slowest thread would hold the others back.
fn default_threads(view: &View, cores: usize) -> usize {
    if cores >= view.engine_count() { view.engine_count() } else { cores.min(view.nodes()) }
}

/// The thread of each engine: nodes go round the threads as long as each thread gets one; the
/// engines of those that are left over go round by themselves, host engines first, so that a node's
/// two sides sit apart. Whole nodes there would leave some threads with twice the work of others.
fn assign(view: &View, threads: usize) -> Vec<usize> {
    let engines: Vec<EngineId> = view.engine_ids().collect();
    let whole = view.nodes() - view.nodes() % threads;
    let (mut assigned, mut left_over) = (vec![0; engines.len()], Vec::new());
    for (index, engine) in engines.iter().enumerate() {
        match engine.node.index() {
            node if node < whole => assigned[index] = node % threads,
            _ => left_over.push(index),
        }
    }
    left_over.sort_by_key(|&index| (engines[index].side, index));
    for (turn, index) in left_over.into_iter().enumerate() {
        assigned[index] = turn % threads;
    }
    assigned
}

/// The state that all engines share.
fn shared(config: &LiveConfig, assigned: &[usize], parkers: &[Arc<Parker>], logs: usize) -> Shared {
    let view = &config.view;
    // Engines that know of nothing that they need go on without it.
    let broken = config.sabotage == CrashSabotage::HalfServes;
    let halves = if broken { Halves::Apart } else { view.halves() };
    Shared {
        view: view.clone().with_halves(halves),
        tuning: tuning(config.faults.is_some()),
        faults: config.faults.clone(),
        ignores_fences: config.sabotage == CrashSabotage::FenceIgnored,
        trace: config.trace.clone(),
        regions: view.node_ids().map(|_| RegionTable::default()).collect(),
        clock: SharedClock::new(config.clock),
        ready: view.engine_ids().map(|_| ReadySet::new(view.engine_count())).collect(),
        parkers: assigned.iter().map(|&thread| parkers[thread].clone()).collect(),
        logs: (0..logs).map(|_| LogQueue::default()).collect(),
        persisted: view.engine_ids().map(|_| Default::default()).collect(),
    }
}

/// Spinning helps only where no other thread waits for the core.
fn spins(spin: bool, threads: usize, cores: usize) -> u32 {
    match spin {
        true if threads < cores => SPINS,
        true => SPINS / 20,
        false => 0,
    }
}

impl LiveCluster {
    /// Starts `start` on every engine, each on its thread, with the log device of `config`.
    ///
    /// # Errors
    /// If no threads are asked for, or the operating system refuses one or a log file.
    pub fn launch(
        config: &LiveConfig,
        start: Arc<dyn StartOn<LiveWorld>>,
    ) -> Result<Self, LiveError> {
        let LogDevice::File { dir } = &config.log else {
            return Self::launch_on(config, start, Vec::new());
        };
        let (folder, files) = log::create(dir, &config.view)
            .map_err(|error| LiveError::LogDevice(error.to_string()))?;
        let mut cluster = Self::launch_on(config, start, files)?;
        cluster._folder = Some(folder);
        Ok(cluster)
    }

    /// Starts `start` on every engine, each on its thread. What the servers write is made durable
    /// in `files`, one for each; without any, memory counts as durable.
    ///
    /// # Errors
    /// If no threads are asked for, or the operating system refuses one.
    ///
    /// # Panics
    /// If there are files, but not one for each server.
    pub fn launch_on(
        config: &LiveConfig,
        start: Arc<dyn StartOn<LiveWorld>>,
        files: Vec<LogFile>,
    ) -> Result<Self, LiveError> {
        Self::launch_over(config, start, files.into_iter().map(boxed).collect())
    }

    /// The same where the disk has no room for files: nothing becomes durable until the logs
    /// [go on](LiveCluster::switch_logs) in some.
    pub fn launch_without_room(
        config: &LiveConfig,
        start: Arc<dyn StartOn<LiveWorld>>,
    ) -> Result<Self, LiveError> {
        let servers = config.view.nodes_of(Role::Server);
        let disks = servers.map(|_| Box::new(Absent) as Box<dyn Disk + Send>).collect();
        Self::launch_over(config, start, disks)
    }

    fn launch_over(
        config: &LiveConfig,
        start: Arc<dyn StartOn<LiveWorld>>,
        disks: Vec<Box<dyn Disk + Send>>,
    ) -> Result<Self, LiveError> {
        let view = &config.view;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = config.threads.unwrap_or_else(|| default_threads(view, cores));
        let threads = threads.min(view.engine_count());
        if threads == 0 {
            return Err(LiveError::NoThreads);
        }
        let alone = threads == 1 && disks.is_empty() && config.faults.is_none();
        if config.clock != Clock::Machine && (!alone || config.views != Views::Frames) {
            return Err(LiveError::ClockOfTurns);
        }
        let servers = view.nodes_of(Role::Server).count();
        assert!(disks.is_empty() || disks.len() == servers, "a log for each server");
        let assigned = assign(view, threads);
        let parkers: Vec<Arc<Parker>> = (0..threads).map(|_| Arc::default()).collect();
        let orders: Vec<Arc<Orders>> = (0..threads).map(|_| Arc::default()).collect();
        let shared = Arc::new(shared(config, &assigned, &parkers, disks.len()));
        let mut slots: Vec<Vec<EngineSlot>> = (0..threads).map(|_| Vec::new()).collect();
        for slot in engine_slots(view) {
            slots[assigned[slot.index]].push(slot);
        }
        let control = Arc::<Control>::default();
        let requests =
            (config.views == Views::Service).then(|| Arc::new(Requests::new(config.lease)));
        let crasher = Arc::new(Crasher::new(
            (shared.clone(), control.clone()),
            start.clone(),
            (orders.clone(), assigned),
            config.views,
            view,
            (config.seed, config.sabotage),
        ));
        let started = shared.clock.started();
        let (threads, outside, logs) = (Vec::new(), Vec::new(), Vec::new());
        let _folder = None;
        let mut cluster =
            Self { shared, threads, outside, logs, parkers, control, crasher, started, _folder };
        for (node, disk) in disks.into_iter().enumerate() {
            cluster.start_log(node, disk)?;
        }
        let pins =
            core_affinity::get_core_ids().filter(|cores| config.pin && cores.len() >= slots.len());
        let spins = spins(config.spin, slots.len(), cores);
        for (number, (slots, orders)) in slots.into_iter().zip(orders).enumerate() {
            let setting = Setting {
                shared: cluster.shared.clone(),
                start: start.clone(),
                control: cluster.control.clone(),
                parker: cluster.parkers[number].clone(),
                orders,
                requests: requests.clone(),
                seed: config.seed,
                spins,
                sabotage: config.sabotage,
            };
            let pin = pins.as_ref().map(|cores| cores[number]);
            cluster.start_thread(number, slots, setting, pin)?;
        }
        if let Some(requests) = requests {
            let serve = move |crasher: &_| view_service::serve(&requests, crasher);
            cluster.start_outside("nicol-views", serve)?;
        }
        let planned = config.faults.as_ref().map(|plan| plan.crashes.clone()).unwrap_or_default();
        if !planned.is_empty() {
            cluster.start_outside("nicol-crashes", move |crasher| crasher.carry_out(&planned))?;
        }
        Ok(cluster)
    }

    fn start_thread(
        &mut self,
        number: usize,
        slots: Vec<EngineSlot>,
        setting: Setting,
        pin: Option<core_affinity::CoreId>,
    ) -> Result<(), LiveError> {
        let (control, parker) = (self.control.clone(), setting.parker.clone());
        let body = move || {
            if let Some(core) = pin {
                core_affinity::set_for_current(core);
            }
            parker.adopt();
            let run = || drive(slots, setting);
            panic::catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|cause| {
                control.fail(&*cause);
                ThreadReport::default()
            })
        };
        let builder = thread::Builder::new().name(format!("nicol-engine-{number}"));
        self.threads.push(builder.spawn(body).map_err(LiveError::Thread)?);
        Ok(())
    }

    /// Starts a thread that is of no node.
    fn start_outside(
        &mut self,
        name: &str,
        body: impl FnOnce(&Arc<Crasher>) + Send + 'static,
    ) -> Result<(), LiveError> {
        let (crasher, control) = (self.crasher.clone(), self.control.clone());
        let body = move || {
            let run = || body(&crasher);
            if let Err(cause) = panic::catch_unwind(AssertUnwindSafe(run)) {
                control.fail(&*cause);
            }
        };
        let builder = thread::Builder::new().name(name.to_owned());
        self.outside.push(builder.spawn(body).map_err(LiveError::Thread)?);
        Ok(())
    }

    /// The number of engine threads.
    pub fn threads(&self) -> usize {
        self.parkers.len()
    }

    /// Has an engine thread run an event loop between the rounds of its engines, and sleep in it,
    /// until the loop or the cluster ends. It is dropped then. Returns when the thread has it.
    ///
    /// # Errors
    /// If an engine panicked or a log device failed.
    ///
    /// # Panics
    /// If there is no such thread, or it has been given one before.
    pub fn attach(&self, thread: usize, event_loop: Box<dyn EventLoop>) -> Result<(), LiveError> {
        assert!(thread < self.threads(), "thread {thread} of {}", self.threads());
        self.crasher.attach(thread, event_loop);
        self.control.check()
    }

    /// Crashes what lives of these sides, all at one time: their engines are taken apart, and what
    /// is lost is lost. Returns when that has happened, or the cluster stops.
    ///
    /// # Errors
    /// If an engine panicked or a log device failed.
    pub fn crash(&self, losses: &[Loss]) -> Result<(), LiveError> {
        let living = |lives: &Lives| losses.iter().filter_map(|&loss| lives.living(loss)).collect();
        self.crasher.crash(living);
        self.control.check()
    }

    /// Starts a new incarnation of each of these sides that is down. Returns when that has
    /// happened, or the cluster stops.
    ///
    /// # Errors
    /// If an engine panicked or a log device failed.
    pub fn restart(&self, sides: &[(NodeId, Side)]) -> Result<(), LiveError> {
        let is_down = |lives: &Lives, &(node, side): &(NodeId, Side)| !lives.is_up(node, side);
        let down =
            |lives: &Lives| sides.iter().filter(|side| is_down(lives, side)).copied().collect();
        self.crasher.restart(down);
        self.control.check()
    }

    /// Looks at what the engines share while nothing crashes or starts: what is lost meanwhile must
    /// not be accessed. `None` before the view service, if there is one, has told every side of
    /// every crash.
    pub fn when_views_are_current<T>(&self, look: impl FnOnce() -> T) -> Option<T> {
        self.crasher.when_views_are_current(look)
    }

    /// The newest view that all its members have installed, if it is another than that of `epoch`.
    /// Only of a view service.
    pub fn view_after(&self, epoch: Epoch) -> Option<View> {
        self.crasher.installed_after(epoch)
    }

    /// The effects of crashes on writes that log devices had not synced.
    pub fn medium_counts(&self) -> MediumCounts {
        self.crasher.medium_counts()
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
    /// If an engine panicked, a log device failed, or memory was accessed that a crash had taken
    /// away.
    pub fn stop(mut self) -> Result<LiveReport, LiveError> {
        let mut report = LiveReport::default();
        for one in self.halt() {
            report.busy.push(one.busy.as_secs_f64() / one.elapsed.as_secs_f64().max(1e-9));
            report.turns.push(one.turns);
            report.parks.push(one.parks);
            report.cpu.push(one.cpu);
            report.nodes.push(one.nodes);
            report.stats.add(&one.stats);
            report.faults.add(&one.faults);
        }
        report.elapsed = self.started.elapsed();
        self.control.check()?;
        self.crasher.check_lost_memory()?;
        Ok(report)
    }

    /// Bytes in the current log files.
    pub fn log_bytes(&self) -> u64 {
        self.shared.logs.iter().map(LogQueue::bytes).sum()
    }

    /// Why the log of a node has no room, in words, if one has none.
    pub fn logs_full(&self) -> Option<String> {
        self.shared.logs.iter().find_map(LogQueue::full)
    }

    /// Records that are durable in the current log files, by node.
    pub fn log_records(&self) -> Vec<u64> {
        self.shared.logs.iter().map(LogQueue::records).collect()
    }

    /// What the log device of `node` holds, read back from its file; nothing of a node without one.
    pub fn medium_writes(&self, node: NodeId) -> Vec<MediumWrite> {
        let content =
            |logs: &[LogQueue]| logs.get(node.index()).map(LogQueue::content).unwrap_or_default();
        self.crasher.with_logs(content)
    }

    /// Has the logs go on in other files, one for each server. For a cluster that is quiet: what is
    /// made durable meanwhile may be in the old file or the new one.
    ///
    /// # Errors
    /// If an engine panicked or a log device failed.
    ///
    /// # Panics
    /// If there is not one for each log.
    pub fn switch_logs(&self, files: Vec<LogFile>) -> Result<(), LiveError> {
        assert!(files.len() == self.shared.logs.len(), "a log for each server");
        self.crasher.with_logs(|logs| {
            for (queue, file) in logs.iter().zip(files) {
                // One that has ended has failed, and that is told below.
                let _switched = queue.switch(boxed(file));
            }
        });
        self.control.check()
    }

    fn start_log(&mut self, node: usize, disk: Box<dyn Disk + Send>) -> Result<(), LiveError> {
        let (shared, control) = (self.shared.clone(), self.control.clone());
        let body = move || {
            let done = |persist: log::Persist| {
                let Some(index) = shared.view.index_of(persist.from) else { return };
                shared.persisted[index].leave(persist.life, persist.operation);
                shared.parkers[index].wake();
            };
            let failed = |error: &_| control.fail_log(node, error);
            let run = || log::serve(&shared.logs[node], disk, done, failed);
            if let Err(cause) = panic::catch_unwind(AssertUnwindSafe(run)) {
                control.fail(&*cause);
            }
            shared.logs[node].end();
        };
        let builder = thread::Builder::new().name(format!("nicol-log-{node}"));
        self.logs.push(builder.spawn(body).map_err(LiveError::Thread)?);
        Ok(())
    }

    /// Ends every thread, the engines' before the logs', and returns what the engines' did. A panic
    /// was caught inside its thread and is in `control`.
    fn halt(&mut self) -> Vec<ThreadReport> {
        self.control.stop();
        self.parkers.iter().for_each(|parker| parker.wake());
        let reports = self.threads.drain(..).filter_map(|thread| thread.join().ok()).collect();
        for thread in self.outside.drain(..) {
            let _ended = thread.join();
        }
        self.shared.logs.iter().for_each(LogQueue::close);
        for thread in self.logs.drain(..) {
            let _ended = thread.join();
        }
        reports
    }
}

fn boxed(file: LogFile) -> Box<dyn Disk + Send> {
    Box::new(file)
}

impl Drop for LiveCluster {
    fn drop(&mut self) {
        let _reports = self.halt();
    }
}

/// Frames between threads of one process need no checksum and no repeat; those that are damaged and
/// lost on purpose do.
fn tuning(faulty: bool) -> Tuning {
    Tuning {
        aggregation: true,
        dma_vector: 15,
        dma_async: true,
        doorbell_batch: DoorbellBatch::UpTo(DoorbellBatch::MOST),
        burst: 64,
        tasks_per_round: 256,
        retransmit_after: if faulty { RETRANSMIT_FAULTY } else { Nanos::from_millis(10) },
        one_sided_timeout: Nanos::from_secs(2),
        checksums: faulty,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The engines of each thread, where a node has a host engine and a NIC engine.
    fn engines(nodes: usize, threads: usize) -> Vec<String> {
        let view = View::new(nodes, 1, 1, 1).unwrap();
        let mut of = vec![String::new(); threads];
        for (engine, thread) in view.engine_ids().zip(assign(&view, threads)) {
            let side = if engine.side == Side::Host { 'h' } else { 'n' };
            of[thread] += &format!("{side}{}", engine.node.0);
        }
        of
    }

    #[test]
    fn threads_get_whole_nodes_and_share_those_that_are_left_over() {
        assert_eq!(engines(4, 2), ["h0n0h2n2", "h1n1h3n3"]);
        assert_eq!(engines(3, 2), ["h0n0h2", "h1n1n2"]);
        assert_eq!(engines(5, 3), ["h0n0h3n4", "h1n1h4", "h2n2n3"]);
        assert_eq!(engines(3, 1), ["h0n0h1n1h2n2"]);
        assert_eq!(engines(2, 3), ["h0n1", "h1", "n0"], "more threads than nodes");
        assert_eq!(engines(2, 4), ["h0", "h1", "n0", "n1"]);
    }
}
