//! What a run of scripts may take, and why it was ended.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::transactions::stop::Stop;

/// Instructions of Lua that the scripts of one transaction may take in one run: some 50 ms of a
/// core, a tenth of the lease that a node must renew (500 ms), since the engine does nothing else
/// meanwhile.
pub const INSTRUCTIONS_MAX: u64 = 5_000_000;
/// Time of such a run, whatever it does: half a lease. It ends a run whose instructions take
/// unusually long, such as those on long texts.
pub const TIME_MAX: Duration = Duration::from_millis(250);
/// Bytes that a machine may take for scripts beside what it has when one begins.
pub const MEMORY_MAX: usize = 16 << 20;
/// Instructions between two looks at the meter.
pub const STEP: u32 = 100;
/// Instructions that a command counts, besides those for its bytes.
pub const COMMAND_COST: u64 = 200;
/// Bytes that a command or a function reads or writes for an instruction.
pub const BYTES_PER_INSTRUCTION: u64 = 8;

pub const TOO_LONG: &[u8] =
    b"ERR the script takes too long (limit 5000000 instructions, 250 ms): it had no effect";

/// The meter of a machine.
#[derive(Debug, Default)]
pub struct Meter {
    left: Cell<u64>,
    until: Cell<Option<Instant>>,
    stopped: Cell<Option<Stop>>,
}

impl Meter {
    /// A run begins with so many instructions left, and ends at the latest when `until` says.
    pub fn begin(&self, left: u64, until: Option<Instant>) {
        self.left.set(left);
        self.until.set(until);
        self.stopped.set(None);
    }

    /// What is left, and until when.
    pub fn budget(&self) -> (u64, Option<Instant>) {
        (self.left.get(), self.until.get())
    }

    /// Goes on with what was left, behind work that is not the script's.
    pub fn resume(&self, (left, until): (u64, Option<Instant>)) {
        self.begin(left, until);
    }

    /// Takes instructions off; `false`: the run is over.
    pub fn charge(&self, instructions: u64) -> bool {
        match self.left.get().checked_sub(instructions) {
            Some(left) if self.until.get().is_none_or(|until| Instant::now() < until) => {
                self.left.set(left);
            }
            _ => self.stop(Stop::Spent(TOO_LONG)),
        }
        self.stopped.get().is_none()
    }

    /// Ends the run: the first reason counts.
    pub fn stop(&self, why: Stop) {
        if self.stopped.get().is_none() {
            self.stopped.set(Some(why));
        }
    }

    /// Why the run was ended, if it was.
    pub fn stopped(&self) -> Option<Stop> {
        self.stopped.get()
    }

    /// Instructions that are left.
    pub fn left(&self) -> u64 {
        self.left.get()
    }
}
