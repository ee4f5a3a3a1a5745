//! The memory that CONFIG SET maxmemory allows the store: no more than it was started with.
//!
//! The limit of the start is the store's own, which refuses a transaction that needs more. A lower
//! one is kept by the fronts, as Redis keeps its own: while the memory used is above it, commands
//! that may need more are refused, and all others go on.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How old a count of the memory may be.
const FRESH: Duration = Duration::from_millis(10);

/// A limit below that of the start, if there is one.
#[derive(Debug)]
pub struct MemoryLimit {
    /// 0: none.
    bytes: AtomicU64,
    start: Instant,
    /// The memory counted last, and the nanoseconds behind the start until which that is fresh.
    used: AtomicU64,
    fresh_until: AtomicU64,
}

impl Default for MemoryLimit {
    fn default() -> Self {
        let [bytes, used, fresh_until] = [const { AtomicU64::new(0) }; 3];
        Self { bytes, start: Instant::now(), used, fresh_until }
    }
}

impl MemoryLimit {
    /// The limit; `None`: that of the start.
    pub fn get(&self) -> Option<u64> {
        Some(self.bytes.load(Ordering::Relaxed)).filter(|bytes| *bytes > 0)
    }

    /// 0: that of the start.
    pub fn set(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
        self.fresh_until.store(0, Ordering::Relaxed);
    }

    /// Whether more than the limit is in use. `count` tells how much; it is asked now and then.
    ///
    /// Cost: a load where there is no limit.
    pub fn is_exceeded(&self, count: impl FnOnce() -> u64) -> bool {
        let Some(limit) = self.get() else { return false };
        let now = nanos(self.start.elapsed());
        if now >= self.fresh_until.load(Ordering::Acquire) {
            self.used.store(count(), Ordering::Relaxed);
            self.fresh_until.store(now + nanos(FRESH), Ordering::Release);
        }
        self.used.load(Ordering::Relaxed) > limit
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_above_the_limit_is_noticed_and_without_one_nobody_counts() {
        let limit = MemoryLimit::default();
        assert!(!limit.is_exceeded(|| unreachable!("there is no limit")));
        limit.set(100);
        assert!(limit.is_exceeded(|| 101));
        assert!(limit.is_exceeded(|| 101), "counted a moment ago");
        limit.set(101);
        assert!(!limit.is_exceeded(|| 101), "a new limit counts anew");
        limit.set(0);
        assert_eq!(limit.get(), None);
    }
}
