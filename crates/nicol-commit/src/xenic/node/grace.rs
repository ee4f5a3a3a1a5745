//! When the tables may forget deletions: once no older write can come any more.

use std::sync::{Arc, Mutex};

use super::undecided::Undecided;
use crate::log::LogMemory;

/// What the next deletions to be forgotten wait for.
#[derive(Debug)]
pub(super) struct Grace(Mutex<Vec<Until>>);

/// The same of one log.
#[derive(Clone, Debug, Default)]
struct Until {
    /// Up to where it must have been read.
    read: u64,
    /// And, once it has been, which records must be decided.
    decided: Option<u64>,
}

impl Until {
    fn is_over(&mut self, log: &LogMemory, undecided: Option<&Undecided>) -> bool {
        if log.applied() < self.read {
            return false;
        }
        let Some(undecided) = undecided else { return true };
        let (next, oldest) = undecided.numbers();
        oldest >= *self.decided.get_or_insert(next)
    }
}

impl Grace {
    /// Nothing to wait for yet, with so many logs.
    pub(super) fn new(logs: usize) -> Self {
        Self(Mutex::new(vec![Until::default(); logs]))
    }

    /// Has `forget` called if everything has been applied or dropped that was in any log when it
    /// was called last.
    ///
    /// Cost: a look at two counters per log; nothing if another worker is at it.
    pub(super) fn forget_if_over(
        &self,
        logs: &[Arc<LogMemory>],
        undecided: &[Undecided],
        forget: impl FnOnce(),
    ) {
        let Ok(mut grace) = self.0.try_lock() else { return };
        let mut all = grace.iter_mut().zip(logs).enumerate();
        if all.all(|(core, (until, log))| until.is_over(log, undecided.get(core))) {
            forget();
            for (until, log) in grace.iter_mut().zip(logs) {
                *until = Until { read: log.reserved(), decided: None };
            }
        }
    }
}
