//! How an engine runs: every choice is a value.

use nicol_core::units::{Bytes, Nanos};
use nicol_schedule::{FeatureMap, ScheduleConfig, Transcripts};

use super::broken::{Hooks, Sabotage};

/// How an engine runs.
#[derive(Clone, Debug)]
pub struct EngineConfig {
    /// The scheduler that picks a request's core; `None`: clients are on the cores themselves.
    pub schedule: Option<ScheduleConfig>,
    /// Which features keys have, for scheduling.
    pub features: FeatureMap,
    /// The records of a server's clients for the judge alone.
    pub transcripts: Transcripts,
    /// Bytes of the longest value of a table of which nothing is loaded.
    pub value_bytes: usize,
    /// Memory for further records that is taken before anything runs.
    pub reserve: Bytes,
    /// How often the epoch moves on.
    pub epoch: Nanos,
    /// Are transactions logged, and answered when their epoch is durable?
    pub log: bool,
    /// The reaction to a locked record, in an engine that locks for reading.
    pub waiting: Waiting,
    /// Looks at a record that somebody has locked before an optimistic transaction aborts.
    pub spins: u32,
    /// The longest of the stalls that some steps suffer, as if the core had other things to do;
    /// none if it is zero. Rare interleavings then show in short runs.
    pub stall: Nanos,
    #[doc(hidden)]
    pub sabotage: Sabotage,
    /// The same of a scheduler in front, if there is one.
    #[doc(hidden)]
    pub schedule_sabotage: nicol_schedule::Sabotage,
}

/// The reaction to a locked record. [Bernstein87 3.4; Rosenkrantz78]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    NoWait,
    /// It waits if it is older than everybody who holds the lock, else it aborts: nobody ever waits
    /// in a circle.
    WaitDie,
    /// It waits whoever holds the lock, perhaps in a circle. For negative tests.
    #[doc(hidden)]
    Always,
}

impl EngineConfig {
    /// The questions of the steps that a planted fault may answer otherwise.
    pub(super) const fn hooks(&self) -> Hooks {
        Hooks(self.sabotage)
    }

    /// How long a transaction may wait for what the settings ask to wait for: one that is logged is
    /// answered when the epoch after its own has ended, and one of reserve; it stalls at a few
    /// steps, each time behind others that hold its locks and stall: ten times in all, as a bound.
    /// Before it, its request may wait for a batch.
    pub fn longest_wait(&self) -> Nanos {
        let epochs = if self.log { self.epoch * 3 } else { Nanos::ZERO };
        let batches = self.schedule.as_ref().map_or(Nanos::ZERO, ScheduleConfig::longest_batch);
        epochs.saturating_add(self.stall * 10).saturating_add(batches)
    }

    /// The published choices, for values of so many bytes at most, without scheduling.
    pub fn published(value_bytes: usize, features: FeatureMap) -> Self {
        Self {
            schedule: None,
            features,
            transcripts: Transcripts::default(),
            value_bytes,
            reserve: Bytes(0),
            // [Silo13 4.1]
            epoch: Nanos::from_millis(40),
            log: false,
            waiting: Waiting::NoWait,
            spins: 64,
            stall: Nanos::ZERO,
            sabotage: Sabotage::None,
            schedule_sabotage: nicol_schedule::Sabotage::None,
        }
    }
}
