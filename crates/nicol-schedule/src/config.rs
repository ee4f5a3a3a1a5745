//! How requests are scheduled: every choice is a value.

use nicol_core::units::Nanos;

use super::broken::Sabotage;
use super::decision::{Planes, Ranking};
use super::feedback::{Policy, WINDOW};

/// The rule that picks the worker of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Clients, one worker after the other: NetSTO. [AlNiCo22, setup]
    RoundRobin,
    /// Clients, by the partition of the first key, or by its table: StaticPart. [AlNiCo22, setup]
    StaticPartition,
    /// The FPGA of the card.
    Alnico,
    /// Two cores that do nothing else. [AlNiCo22, comparison]
    AlnicoCpu2,
    /// Each worker, for what clients send it. [AlNiCo22, comparison]
    AlnicoCpuN,
    /// One core, for a batch at a time. [Strife20 3]
    Strife,
}

impl Kind {
    /// Does it compare requests by their features, and learn from aborts how much each weighs?
    pub const fn weighs_features(self) -> bool {
        matches!(self, Self::Alnico | Self::AlnicoCpu2 | Self::AlnicoCpuN)
    }

    /// Does it gather requests in batches?
    pub const fn batches(self) -> bool {
        matches!(self, Self::Strife)
    }
}

/// When the scheduler learns that a request is done. (AMB-24)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// When the worker replies.
    Reply,
    /// When its client sends the next one.
    Slot,
}

/// How a request reaches the card's scheduler and the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RpcPath {
    /// The client writes the data to the host and the vector to the FPGA, and the worker starts
    /// when both are there. [AlNiCo22, implementation]
    TwoWrites,
    /// One message carries both, through the card: what suits a card on the packets' path.
    OneMessage,
}

/// How requests are scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleConfig {
    pub kind: Kind,
    /// How a request comes to the card's scheduler.
    pub path: RpcPath,
    pub ranking: Ranking,
    /// Which features are in conflict.
    pub planes: Planes,
    /// When a request counts as done.
    pub completion: Completion,
    /// How often vectors are computed. (C2.03)
    pub feedback: Nanos,
    /// Which of them are published.
    pub policy: Policy,
    /// Aborts that a worker remembers, on which they rest. (AMB-21)
    pub window: usize,
    /// Workers that execute long transactions only. (AMB-39)
    pub reserved: usize,
    /// Requests that a worker executes at a time.
    pub at_a_time: usize,
    /// True if an FPGA on the card decides, which takes the same time for every request.
    /// Else it is a core.
    pub fpga: bool,
    /// Most requests of a batch of Strife. [AlNiCo22, setup]
    pub batch: usize,
    /// The time after which a batch of Strife is closed. [AlNiCo22, setup]
    pub batch_time: Nanos,
    /// Bytes of a request beyond its own, as null RPCs have them. (C2.04)
    pub padding: u32,
    /// How long a client waits for the answer to a request, beyond the time that it waits for a
    /// batch or, of an engine that logs, for an epoch to end.
    pub timeout: Nanos,
    /// Broken on purpose; for negative tests only.
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

impl ScheduleConfig {
    /// The published choices for `kind`, in the improved mode of AMB-22.
    pub const fn published(kind: Kind) -> Self {
        Self {
            kind,
            path: RpcPath::TwoWrites,
            ranking: Ranking::Improved,
            planes: Planes::Two,
            completion: Completion::Reply,
            feedback: Nanos::from_millis(20),
            policy: Policy::OnChange,
            window: WINDOW,
            reserved: 0,
            at_a_time: 1,
            fpga: true,
            batch: 10_000,
            batch_time: Nanos::from_millis(5),
            padding: 0,
            timeout: Nanos::from_millis(100),
            sabotage: Sabotage::None,
        }
    }

    /// Do data and vector of a request go apart?
    pub const fn writes_twice(&self) -> bool {
        matches!((self.kind, self.path), (Kind::Alnico, RpcPath::TwoWrites))
    }

    /// Does a worker tell the scheduler that a request is done? Strife's waits for its batch,
    /// whatever counts.
    pub const fn tells_who_is_done(&self) -> bool {
        matches!(self.completion, Completion::Reply) || self.kind.batches()
    }

    /// How long requests wait for the end of a batch, if they are gathered in batches: they may
    /// come while one is gathered, and wait for the next.
    pub fn longest_batch(&self) -> Nanos {
        if self.kind.batches() { self.batch_time * 2 } else { Nanos::ZERO }
    }

    /// The same, whose clients wait so much longer for an answer.
    pub fn waiting_longer(&self, by: Nanos) -> Self {
        Self { timeout: self.timeout.saturating_add(by), ..self.clone() }
    }

    /// Host cores that schedule and execute nothing.
    pub const fn dispatchers(&self) -> usize {
        match self.kind {
            Kind::AlnicoCpu2 => 2,
            Kind::Strife => 1,
            Kind::RoundRobin | Kind::StaticPartition | Kind::Alnico | Kind::AlnicoCpuN => 0,
        }
    }
}
