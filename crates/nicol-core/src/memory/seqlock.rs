//! The seqlocks of a region: its memory is divided into spans, each under one. Writers hold it for
//! the few words they move; readers look at it before and after.
//!
//! Every access ends in bounded time [PRISM21 4.1]: writers are served in the order in which they
//! come, and a reader that has met writers [`READS_FREE`] times waits in their queue. So an access
//! waits for no more others than there are threads, each of which moves one span at most.

use std::hint::spin_loop;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

/// Bytes under one seqlock: a READ or WRITE of a record passes few seqlocks, and operations on
/// different records rarely meet.
pub(super) const SPAN: u64 = 256;
/// Seqlocks of a region; larger regions share them. 16 KiB, which stay in the cache.
const SEQLOCKS_MAX: u64 = 1_024;
/// Turns that a waiter spins before it lets the holder's thread run.
const SPINS: u32 = 128;
/// How often a reader tries without a ticket, which delays no writer.
const READS_FREE: u32 = 8;

/// The seqlocks of a region. They take memory from the first access on: most regions are never
/// accessed under them.
#[derive(Debug)]
pub(super) struct Seqlocks {
    count: u64,
    all: OnceLock<Box<[Seqlock]>>,
}

/// One of them: a ticket lock. Taking a ticket changes its word, so that readers notice a writer.
#[derive(Debug, Default)]
pub(super) struct Seqlock {
    /// Places taken so far.
    taken: AtomicU64,
    /// Places whose holders are done.
    done: AtomicU64,
}

impl Seqlocks {
    pub(super) fn new(size: u64) -> Self {
        Self { count: size.div_ceil(SPAN).clamp(1, SEQLOCKS_MAX), all: OnceLock::new() }
    }

    /// The seqlock of the span at `offset`.
    pub(super) fn of(&self, offset: u64) -> &Seqlock {
        let all = || (0..self.count).map(|_| Seqlock::default()).collect();
        &self.all.get_or_init(all)[(offset / SPAN % self.count) as usize]
    }

    /// Takes the span at `offset` for writing.
    pub(super) fn hold(&self, offset: u64) -> Held<'_> {
        self.of(offset).hold()
    }
}

impl Seqlock {
    fn hold(&self) -> Held<'_> {
        let place = self.taken.fetch_add(1, Ordering::Relaxed);
        let mut turn = 0;
        while self.done.load(Ordering::Acquire) != place {
            turn += 1;
            pause(turn);
        }
        Held(self)
    }

    /// Calls `read` until no writer has come between its beginning and its end.
    pub(super) fn read<E>(&self, mut read: impl FnMut() -> Result<(), E>) -> Result<(), E> {
        for turn in 1..=READS_FREE {
            let done = self.done.load(Ordering::Acquire);
            if self.taken.load(Ordering::Relaxed) == done {
                read()?;
                // The words were read with acquire: had one of them been new, so were this.
                if self.taken.load(Ordering::Relaxed) == done {
                    return Ok(());
                }
            }
            pause(turn);
        }
        let _held = self.hold();
        read()
    }
}

/// A span that is being written; ends when dropped.
pub(super) struct Held<'a>(&'a Seqlock);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.done.fetch_add(1, Ordering::Release);
    }
}

/// Waits a little for the holder of a span.
fn pause(turn: u32) {
    if turn.is_multiple_of(SPINS) { thread::yield_now() } else { spin_loop() }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Waits until `places` have been taken.
    fn await_places(seqlock: &Seqlock, places: u64) {
        while seqlock.taken.load(Ordering::Relaxed) < places {
            thread::yield_now();
        }
    }

    #[test]
    fn writers_are_served_in_order_and_a_reader_waits_among_them() {
        let all = Arc::new(Seqlocks::new(64));
        let order = Arc::<Mutex<Vec<&str>>>::default();
        let held = all.hold(0);
        let mut threads = Vec::new();
        for (place, who) in (2..).zip(["first", "reader", "last"]) {
            let (seqlocks, order) = (all.clone(), order.clone());
            threads.push(thread::spawn(move || {
                let done = || order.lock().unwrap().push(who);
                if who == "reader" {
                    // It looks in vain, takes a place, and reads once it is its turn.
                    let read = seqlocks.of(0).read(|| {
                        done();
                        Ok::<(), ()>(())
                    });
                    read.unwrap();
                } else {
                    let held = seqlocks.hold(0);
                    done();
                    drop(held);
                }
            }));
            await_places(all.of(0), place);
        }
        assert!(order.lock().unwrap().is_empty());
        drop(held);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*order.lock().unwrap(), ["first", "reader", "last"]);
    }

    #[test]
    fn a_reader_reads_again_if_a_writer_came_between_and_a_bounded_number_of_times() {
        let seqlocks = Seqlocks::new(64);
        let mut reads = 0;
        let read = seqlocks.of(0).read(|| {
            reads += 1;
            if reads <= READS_FREE {
                drop(seqlocks.hold(0));
            }
            Ok::<(), ()>(())
        });
        // The last one holds the writers up.
        assert_eq!((read, reads), (Ok(()), READS_FREE + 1));
        let mut reads = 0;
        let read = seqlocks.of(0).read(|| {
            reads += 1;
            Ok::<(), ()>(())
        });
        assert_eq!((read, reads), (Ok(()), 1), "nobody came between");
        assert_eq!(seqlocks.of(0).read(|| Err(7)), Err(7));
        drop(seqlocks.hold(0));
    }
}
