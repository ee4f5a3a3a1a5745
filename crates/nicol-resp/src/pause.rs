//! CLIENT PAUSE: commands of all clients wait until a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Which commands wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Paused {
    /// Those that write or publish.
    Writes,
    All,
}

/// The pause of a server, if there is one.
#[derive(Debug, Default)]
pub struct Pause {
    /// Without it nobody looks further.
    is_on: AtomicBool,
    until: Mutex<Option<(Paused, Instant)>>,
}

impl Pause {
    /// Lets commands wait for so long. A pause that is longer, or of more commands, goes on.
    pub fn begin(&self, paused: Paused, time: Duration) {
        let (mut until, now) = (self.until(), Instant::now());
        // A time that no clock can say does not end.
        let end = now.checked_add(time).unwrap_or(now + Duration::from_secs(u32::MAX.into()));
        let (before, later) = until.filter(|(_, at)| *at > now).unwrap_or((paused, end));
        *until = Some((before.max(paused), later.max(end)));
        self.is_on.store(true, Ordering::SeqCst);
    }

    /// Lets commands go on.
    pub fn end(&self) {
        *self.until() = None;
        self.is_on.store(false, Ordering::SeqCst);
    }

    /// Which commands wait now. Cost: a load where none do.
    pub fn now(&self) -> Option<Paused> {
        if !self.is_on.load(Ordering::SeqCst) {
            return None;
        }
        let mut until = self.until();
        *until = until.filter(|(_, at)| *at > Instant::now());
        self.is_on.store(until.is_some(), Ordering::SeqCst);
        until.map(|(paused, _)| paused)
    }

    /// When it ends.
    pub fn ends_at(&self) -> Option<Instant> {
        let is_on = self.is_on.load(Ordering::SeqCst);
        is_on.then(|| self.until().map(|(_, at)| at)).flatten()
    }

    fn until(&self) -> MutexGuard<'_, Option<(Paused, Instant)>> {
        self.until.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
