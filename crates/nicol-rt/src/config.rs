//! The configuration of a live cluster, and the errors with which it does not start or stops.

use std::sync::Arc;

use nicol_core::engine::CrashSabotage;
use nicol_core::faults::FaultPlan;
use nicol_core::trace::Sink;
use nicol_core::units::Nanos;
use nicol_core::view::View;

use crate::log::LogDevice;

/// How long a lease is, unless the configuration says otherwise. Where more threads want the cores
/// than there are, each may wait for tens of milliseconds, and a renewal passes three waits: of the
/// engine that asks, of the service, and of the engine that takes the answer. So a lease is several
/// times what these add up to.
pub const LEASE: Nanos = Nanos::from_millis(500);

/// How engines learn which sides are up, and which may serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Views {
    /// From frames of new lives alone. Every engine serves for ever.
    #[default]
    Frames,
    /// At once, from a perfect detector. Every engine serves for ever.
    Detector,
    /// From a service outside the nodes, which hands out leases of
    /// [`LiveConfig::lease`]: an engine without one serves no request.
    Service,
}

/// The clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Clock {
    #[default]
    Machine,
    /// The turns of the cluster's only thread: each takes so long, and where the thread would wait
    /// for a timer it goes on at that timer's time. Two runs on one thread then take the same
    /// steps, so that what they execute can be counted. The times that such a run measures mean
    /// nothing.
    Turns(Nanos),
}

/// The cluster to launch.
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
    /// The clock.
    pub clock: Clock,
    /// The seed of the engines' protocol streams and of the faults.
    pub seed: u64,
    /// The medium that makes writes durable.
    pub log: LogDevice,
    /// The faults, for tests: between nodes, and crashes at instants since the launch.
    pub faults: Option<FaultPlan>,
    /// How engines learn of crashes.
    pub views: Views,
    /// How long a lease of the view service is: [`LEASE`] where nothing speaks for another.
    pub lease: Nanos,
    /// Where the run is recorded, if it is.
    pub trace: Option<Arc<Sink>>,
    /// Crashes broken on purpose; for negative tests only.
    #[doc(hidden)]
    pub sabotage: CrashSabotage,
}

impl LiveConfig {
    /// Threads as fit the machine, not pinned, spinning, the machine's clock, seed 0, durable
    /// memory, no faults.
    pub fn new(view: View) -> Self {
        Self {
            view,
            threads: None,
            pin: false,
            spin: true,
            clock: Clock::default(),
            seed: 0,
            log: LogDevice::Memory,
            faults: None,
            views: Views::default(),
            lease: LEASE,
            trace: None,
            sabotage: CrashSabotage::None,
        }
    }
}

/// Why a cluster did not launch, or stopped.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// No engine thread was asked for.
    #[error("0 engine threads: give at least 1")]
    NoThreads,
    /// Turns are to tell the time, but something beside one engine thread would wait for it.
    #[error(
        "a clock of turns needs one engine thread, durable memory, no faults and no view service"
    )]
    ClockOfTurns,
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
