//! The clock of a cluster: the machine's, or the number of turns of its only thread, so that a run
//! repeats.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use nicol_core::units::Nanos;

use crate::config::Clock;

#[derive(Debug)]
pub(crate) struct SharedClock {
    started: Instant,
    turns: Option<Turns>,
}

#[derive(Debug)]
struct Turns {
    /// The time that a turn takes.
    step: Nanos,
    /// The time. Only the engine thread moves it.
    now: AtomicU64,
}

impl SharedClock {
    /// A clock that starts now.
    pub(crate) fn new(clock: Clock) -> Self {
        let turns = match clock {
            Clock::Machine => None,
            Clock::Turns(step) => Some(Turns { step, now: AtomicU64::new(0) }),
        };
        Self { started: Instant::now(), turns }
    }

    /// When the cluster started, by the machine.
    pub(crate) fn started(&self) -> Instant {
        self.started
    }

    /// The time since the launch.
    #[inline]
    pub(crate) fn now(&self) -> Nanos {
        // The machine is asked in any case, so that counted instructions include it.
        let machine = Nanos(self.started.elapsed().as_nanos() as u64);
        self.turns.as_ref().map_or(machine, |turns| Nanos(turns.now.load(Ordering::Relaxed)))
    }

    /// Do turns tell the time?
    pub(crate) fn counts_turns(&self) -> bool {
        self.turns.is_some()
    }

    pub(crate) fn end_turn(&self) {
        if let Some(turns) = &self.turns {
            turns.now.fetch_add(turns.step.0, Ordering::Relaxed);
        }
    }

    /// Nothing happens before `deadline`.
    pub(crate) fn skip_to(&self, deadline: Nanos) {
        if let Some(turns) = &self.turns {
            turns.now.fetch_max(deadline.0, Ordering::Relaxed);
        }
    }
}
