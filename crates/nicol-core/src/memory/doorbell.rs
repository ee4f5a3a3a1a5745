//! A counter that one side rings and the other side watches.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Rung after work was left for an engine; watched with `Fabric::wait_for_doorbell`. Threads
/// that may park install a notifier so that a ring wakes them.
#[derive(Default)]
pub struct Doorbell {
    rings: AtomicU64,
    notifier: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl Doorbell {
    /// Counts one ring and wakes the watcher. All that was written before is visible to a watcher
    /// that sees the new count.
    #[inline]
    pub fn ring(&self) {
        self.rings.fetch_add(1, Ordering::SeqCst);
        if let Some(notify) = self.notifier.get() {
            notify();
        }
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
        self.notifier.get().is_none() && self.notifier.set(Box::new(notify)).is_ok()
    }
}

impl fmt::Debug for Doorbell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Doorbell").field("rings", &self.rings()).finish_non_exhaustive()
    }
}
