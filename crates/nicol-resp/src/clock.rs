//! Time: that by which keys expire, and the machine's.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// Milliseconds of Unix time that never go back, whatever is done to the machine's clock after the
/// start: no key that has expired comes back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    /// `None`: it stands still.
    started: Option<Instant>,
    started_ms: i64,
}

impl Clock {
    /// A clock that is right now.
    pub fn start() -> Self {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let started_ms = since.map_or(0, |it| it.as_millis() as i64);
        Self { started: Some(Instant::now()), started_ms }
    }

    /// A clock that always says `unix_ms`.
    pub fn stopped(unix_ms: i64) -> Self {
        Self { started: None, started_ms: unix_ms }
    }

    pub fn unix_ms(&self) -> i64 {
        let since = self.started.map_or(0, |started| started.elapsed().as_millis() as i64);
        self.started_ms + since
    }
}

/// Seconds of Unix time, as the machine has it.
pub fn unix_seconds() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
