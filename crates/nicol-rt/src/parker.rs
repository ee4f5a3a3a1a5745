//! Parking an idle engine thread without losing a wake-up.

use std::task::Waker;

use crate::sync::OnceLock;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::thread::{self, Thread};

/// Where one thread sleeps until there is work.
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
        // A wake that comes late, after the thread has got up, writes nothing.
        if self.parked.load(Ordering::SeqCst)
            && self.parked.compare_exchange(true, false, Ordering::SeqCst, Ordering::SeqCst).is_ok()
            && let Some(thread) = self.thread.get()
        {
            // Both, since the loop may have ended: a call too many costs one short sleep.
            thread.unpark();
            self.event_loop.get().into_iter().for_each(Waker::wake_by_ref);
        }
    }
}
