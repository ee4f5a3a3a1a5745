//! How requests are scheduled: every choice is a value.

use nicol_core::units::Nanos;

use super::decision::{Planes, Ranking};
use super::feedback::Policy;

/// Who decides which worker a request goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Clients, one worker after the other: NetSTO. (B-09)
    RoundRobin,
    /// Clients, by the partition of the first key, or by its table. (B-10, A-16)
    StaticPartition,
    /// The FPGA of the card.
    Alnico,
    /// Two cores that do nothing else.
    AlnicoCpu2,
    /// Each worker, for what clients send it.
    AlnicoCpuN,
    /// One core, for a batch at a time. [Strife20 3]
    Strife,
}

/// When the scheduler learns that a request is done. (AMB-24)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// When the worker replies.
    Reply,
    /// When its client sends the next one.
    Slot,
}

/// How requests are scheduled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScheduleConfig {
    /// Who decides.
    pub kind: Kind,
    /// How ranks are compared.
    pub ranking: Ranking,
    /// Which features are in conflict.
    pub planes: Planes,
    /// When a request counts as done.
    pub completion: Completion,
    /// How often vectors are computed. (C2.03)
    pub feedback: Nanos,
    /// Which of them are published.
    pub policy: Policy,
    /// Workers that take what takes long, and nothing else.
    pub reserved: usize,
    /// Requests of a batch of Strife at most.
    pub batch: usize,
    /// How long a batch of Strife is open at most.
    pub batch_time: Nanos,
    /// Bytes of a request beyond its own, as null RPCs have them. (C2.04)
    pub padding: u32,
    /// How long a client waits for the answer to a request.
    pub timeout: Nanos,
}

impl ScheduleConfig {
    /// The published choices for `kind`, in the improved mode of AMB-22.
    pub const fn published(kind: Kind) -> Self {
        Self {
            kind,
            ranking: Ranking::Improved,
            planes: Planes::Two,
            completion: Completion::Reply,
            feedback: Nanos::from_millis(20),
            policy: Policy::OnChange,
            reserved: 0,
            batch: 10_000,
            batch_time: Nanos::from_millis(5),
            padding: 0,
            timeout: Nanos::from_millis(100),
        }
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
