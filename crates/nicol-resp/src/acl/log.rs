//! What users were refused, the last one first.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Entries that are kept.
const ENTRIES_MAX: usize = 128;
/// How long the same refusal is counted in the same entry.
const SAME: Duration = Duration::from_secs(60);

/// Why something was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    Auth,
    Command,
    Key,
    Channel,
}

impl Reason {
    pub fn name(self) -> &'static str {
        match self {
            Self::Auth => "auth",
            Self::Command => "command",
            Self::Key => "key",
            Self::Channel => "channel",
        }
    }
}

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    pub reason: Reason,
    /// Whether it was between MULTI and EXEC.
    pub in_multi: bool,
    /// The command, the key or the channel.
    pub object: Vec<u8>,
    pub user: Vec<u8>,
}

/// A refusal, as often as it came.
#[derive(Clone, Debug)]
pub struct Entry {
    pub refusal: Refusal,
    pub count: u64,
    pub last: Instant,
    /// The client's line of CLIENT LIST, at the last time.
    pub client: String,
}

#[derive(Debug, Default)]
pub struct Log(Mutex<VecDeque<Entry>>);

impl Log {
    pub fn note(&self, refusal: Refusal, client: String, now: Instant) {
        let mut all = self.entries();
        let same = |entry: &Entry| {
            entry.refusal == refusal && now.saturating_duration_since(entry.last) <= SAME
        };
        let place = all.iter().position(same);
        let count = place.and_then(|place| all.remove(place)).map_or(0, |entry| entry.count);
        all.truncate(ENTRIES_MAX - 1);
        all.push_front(Entry { refusal, count: count + 1, last: now, client });
    }

    /// The entries, the last one first. Held for moments only.
    pub fn entries(&self) -> MutexGuard<'_, VecDeque<Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_refusal_is_counted_and_the_oldest_forgotten() {
        let (log, now) = (Log::default(), Instant::now());
        let refusal = |object: &str| Refusal {
            reason: Reason::Key,
            in_multi: false,
            object: object.into(),
            user: b"u".to_vec(),
        };
        for object in ["a", "b", "a"] {
            log.note(refusal(object), String::new(), now);
        }
        let seen: Vec<_> =
            log.entries().iter().map(|e| (e.refusal.object.clone(), e.count)).collect();
        assert_eq!(seen, [(b"a".to_vec(), 2), (b"b".to_vec(), 1)]);
        log.note(refusal("a"), String::new(), now + SAME + Duration::from_millis(1));
        let counts: Vec<_> = log.entries().iter().map(|entry| entry.count).collect();
        assert_eq!(counts, [1, 2, 1]);
        for number in 0..2 * ENTRIES_MAX {
            log.note(refusal(&number.to_string()), String::new(), now);
        }
        assert_eq!(log.entries().len(), ENTRIES_MAX);
    }
}
