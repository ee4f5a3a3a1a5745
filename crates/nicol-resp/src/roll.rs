//! Which fronts of a server still run.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Counts the fronts of a server, wherever they run.
#[derive(Debug, Default)]
pub struct Roll {
    fronts: Mutex<Fronts>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Fronts {
    running: usize,
    panicked: usize,
}

impl Roll {
    fn lock(&self) -> MutexGuard<'_, Fronts> {
        self.fronts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until every front has ended; returns how many panicked.
    pub fn wait(&self) -> usize {
        let mut fronts = self.lock();
        while fronts.running > 0 {
            fronts = self.ended.wait(fronts).unwrap_or_else(PoisonError::into_inner);
        }
        fronts.panicked
    }
}

/// A front's place on the roll. It ends with the front.
#[derive(Debug)]
pub struct Enrolled(Arc<Roll>);

impl Enrolled {
    /// One front more.
    pub fn on(roll: &Arc<Roll>) -> Self {
        roll.lock().running += 1;
        Self(roll.clone())
    }
}

impl Drop for Enrolled {
    fn drop(&mut self) {
        let mut fronts = self.0.lock();
        fronts.running -= 1;
        fronts.panicked += usize::from(std::thread::panicking());
        self.0.ended.notify_all();
    }
}
