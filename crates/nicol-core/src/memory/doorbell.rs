//! A counter that one side rings and the other side watches.

use std::fmt;

use crate::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// In the flags: the first notifier is there.
const FIRST: u8 = 1;
/// In the flags: there are others.
const OTHERS: u8 = 2;

/// The callback of a ring.
type Notify = Box<dyn Fn() + Send + Sync>;

/// A watcher, and what a ring calls for it.
type Notifier = (usize, Notify);

/// Rung after work was left for an engine; watched with `Fabric::wait_for_doorbell`. Threads
/// that may park install a notifier each, so that a ring wakes them.
#[derive(Default)]
pub struct Doorbell {
    rings: AtomicU64,
    flags: AtomicU8,
    /// Most doorbells have one watcher.
    first: OnceLock<Notifier>,
    others: Mutex<Vec<Notifier>>,
}

impl Doorbell {
    /// Counts one ring and wakes the watchers. All that was written before is visible to a watcher
    /// that sees the new count.
    #[inline]
    pub fn ring(&self) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        // A watcher raises a flag before it looks at the count: one of the two sees the other.
        let flags = self.flags.load(Ordering::SeqCst);
        if flags & FIRST != 0
            && let Some((_, notify)) = self.first.get()
        {
            notify();
        }
        if flags & OTHERS != 0 {
            self.notify_others();
        }
    }

    #[cold]
    fn notify_others(&self) {
        self.others().iter().for_each(|(_, notify)| notify());
    }

    fn others(&self) -> MutexGuard<'_, Vec<Notifier>> {
        self.others.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often it was rung.
    #[inline]
    pub fn rings(&self) -> u64 {
        self.rings.load(Ordering::SeqCst)
    }

    /// Sets what a ring calls besides counting. Only the first call has an effect; returns whether
    /// this one was it.
    pub fn notify_with(&self, notify: impl Fn() + Send + Sync + 'static) -> bool {
        // Looked at first, so that watching a doorbell again allocates nothing.
        self.first.get().is_none() && self.set_first((0, Box::new(notify))).is_ok()
    }

    /// Has a ring call what `notify` makes as well, once for each `watcher`: a number that is not
    /// 0. Watching again allocates nothing.
    pub fn notify_each<N: Fn() + Send + Sync + 'static>(
        &self,
        watcher: usize,
        notify: impl FnOnce() -> N,
    ) {
        match self.first.get() {
            Some((first, _)) if *first == watcher => {}
            Some(_) => self.add(watcher, || Box::new(notify())),
            None => {
                if let Err((_, notify)) = self.set_first((watcher, Box::new(notify()))) {
                    self.add(watcher, || notify);
                }
            }
        }
    }

    fn set_first(&self, notifier: Notifier) -> Result<(), Notifier> {
        self.first.set(notifier)?;
        self.flags.fetch_or(FIRST, Ordering::SeqCst);
        Ok(())
    }

    fn add(&self, watcher: usize, notify: impl FnOnce() -> Notify) {
        let mut others = self.others();
        if others.iter().all(|(other, _)| *other != watcher) {
            others.push((watcher, notify()));
            self.flags.fetch_or(OTHERS, Ordering::SeqCst);
        }
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorbell").field("rings", &self.rings()).finish_non_exhaustive()
    }
}
