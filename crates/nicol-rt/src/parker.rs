//! Parking an idle engine thread without losing a wake-up.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Waker;
use std::thread::{self, Thread};

/// One thread's bed.
///
/// The sleeper raises its flag, looks for work once more, and only then parks; a thread that leaves
/// work does so first and looks at the flag afterwards. Both sides use sequentially consistent
/// operations, so at least one of them sees the other: work is found, or the sleeper is woken.
#[derive(Debug, Default)]
pub(crate) struct Parker {
    parked: AtomicBool,
    thread: OnceLock<Thread>,
    /// Ends the wait of the event loop in which the thread sleeps, if it has one.
    event_loop: OnceLock<Waker>,
}

impl Parker {
    /// Names the current thread as the one that sleeps here.
    pub(crate) fn adopt(&self) {
        let first = self.thread.set(thread::current()).is_ok();
        assert!(first, "a parker has one thread");
    }

    /// From now on the thread sleeps in an event loop, whose wait this ends.
    pub(crate) fn sleeps_in(&self, event_loop: Waker) {
        let first = self.event_loop.set(event_loop).is_ok();
        assert!(first, "a thread has one event loop");
    }

    /// Sleeps unless `has_work` (asked after the flag is up): `sleep` must end when it is time, and
    /// when the thread is unparked or, in an event loop, the loop's waker is called.
    pub(crate) fn park(&self, has_work: impl FnOnce() -> bool, sleep: impl FnOnce()) {
        self.parked.store(true, Ordering::SeqCst);
        if !has_work() {
            sleep();
        }
        self.parked.store(false, Ordering::SeqCst);
    }

    /// Wakes the thread if it sleeps. Called after the work was left.
    pub(crate) fn wake(&self) {
        if self.parked.load(Ordering::SeqCst)
            && self.parked.swap(false, Ordering::SeqCst)
            && let Some(thread) = self.thread.get()
        {
            // Both, since the loop may have ended: a call too many costs one short sleep.
            thread.unpark();
            self.event_loop.get().into_iter().for_each(Waker::wake_by_ref);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn no_wake_up_is_lost() {
        let (parker, work) = (Arc::new(Parker::default()), Arc::new(AtomicU64::new(0)));
        let sleeper = {
            let (parker, work) = (parker.clone(), work.clone());
            thread::spawn(move || {
                parker.adopt();
                let mut done = 0;
                let started = Instant::now();
                while done < 2_000 {
                    let left = work.load(Ordering::SeqCst);
                    if left > done {
                        done = left;
                    } else {
                        let has_work = || work.load(Ordering::SeqCst) > done;
                        parker.park(has_work, || thread::park_timeout(Duration::from_secs(20)));
                    }
                }
                started.elapsed()
            })
        };
        for round in 1..=2_000 {
            work.store(round, Ordering::SeqCst);
            parker.wake();
            if round % 16 == 0 {
                thread::sleep(Duration::from_micros(20));
            }
        }
        // One lost wake-up would cost the whole limit of a sleep.
        assert!(sleeper.join().unwrap() < Duration::from_secs(20));
    }
}
