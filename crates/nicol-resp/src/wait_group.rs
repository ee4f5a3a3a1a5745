//! Waits for the fronts of a server to end.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Counts the fronts of a server, wherever they run.
#[derive(Debug, Default)]
pub struct WaitGroup {
    fronts: Mutex<Fronts>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct Fronts {
    running: usize,
    panicked: usize,
}

impl WaitGroup {
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

/// Counts one front while it runs.
#[derive(Debug)]
pub struct WaitGuard(Arc<WaitGroup>);

impl WaitGuard {
    pub fn on(group: &Arc<WaitGroup>) -> Self {
        group.lock().running += 1;
        Self(group.clone())
    }
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let mut fronts = self.0.lock();
        fronts.running -= 1;
        fronts.panicked += usize::from(std::thread::panicking());
        self.0.ended.notify_all();
    }
}
