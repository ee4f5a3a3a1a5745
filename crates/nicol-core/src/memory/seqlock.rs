//! The seqlocks of a region: its memory is divided into spans, each under one (odd while somebody
//! writes). Writers hold it for the few words they move; readers look at it before and after.

use std::hint::spin_loop;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Bytes under one seqlock: a READ or WRITE of a record passes few seqlocks, and operations on
/// different records rarely meet.
pub(super) const SPAN: u64 = 256;
/// Seqlocks of a region; larger regions share them. 8 KiB, which stay in the cache.
const SEQLOCKS_MAX: u64 = 1_024;
/// Turns that a waiter spins before it lets the holder's thread run.
const SPINS: u32 = 128;

/// The seqlocks of a region.
#[derive(Debug)]
pub(super) struct Seqlocks(Box<[AtomicU64]>);

impl Seqlocks {
    pub(super) fn new(size: u64) -> Self {
        let count = size.div_ceil(SPAN).clamp(1, SEQLOCKS_MAX);
        Self((0..count).map(|_| AtomicU64::new(0)).collect())
    }

    /// The seqlock of the span at `offset`.
    pub(super) fn of(&self, offset: u64) -> &AtomicU64 {
        &self.0[(offset / SPAN % self.0.len() as u64) as usize]
    }

    /// Takes the span at `offset` for writing.
    pub(super) fn hold(&self, offset: u64) -> Held<'_> {
        let seqlock = self.of(offset);
        let mut turn = 0;
        loop {
            let seen = seqlock.load(Ordering::Relaxed);
            let taken = seen.is_multiple_of(2)
                && seqlock
                    .compare_exchange_weak(seen, seen + 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok();
            if taken {
                return Held(seqlock);
            }
            pause(&mut turn);
        }
    }
}

/// A span that is being written; ends when dropped.
pub(super) struct Held<'a>(&'a AtomicU64);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

/// Waits a little for whoever writes a span.
pub(super) fn pause(turn: &mut u32) {
    *turn += 1;
    if turn.is_multiple_of(SPINS) { thread::yield_now() } else { spin_loop() }
}
