//! Doorbells and the engines that watch them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use nicol_core::fabric::HasDoorbell;
use nicol_core::memory::Doorbell;

struct Watched {
    doorbell: Arc<dyn HasDoorbell>,
    watchers: Vec<usize>,
    /// The number of rings seen so far, for doorbells that notify another cluster.
    seen: u64,
}

/// Doorbells that have rung and whose engines have not been told.
#[derive(Default)]
struct Pending {
    /// Whether any has rung. It is asked after every event, so the list is locked only then.
    any: AtomicBool,
    /// Places of doorbells that have rung, in order.
    places: Mutex<Vec<usize>>,
}

/// The doorbells that a cluster's engines watch.
#[derive(Default)]
pub struct Doorbells {
    watched: Vec<Watched>,
    /// Places by address: looked up, never iterated. The doorbells are held, so addresses are
    /// theirs.
    positions: BTreeMap<usize, usize>,
    pending: Arc<Pending>,
    /// Doorbells whose one notifier was taken before: their counts are compared instead.
    compared: Vec<usize>,
}

impl Doorbells {
    /// Lets engine `index` have a round whenever `doorbell` rings.
    pub fn watch(&mut self, doorbell: &Arc<dyn HasDoorbell>, index: usize) {
        let address = std::ptr::from_ref::<Doorbell>(doorbell.doorbell()).addr();
        let position = *self.positions.entry(address).or_insert_with(|| {
            let position = self.watched.len();
            // Weak: a region that outlives the cluster must not collect rings for it.
            let pending = Arc::downgrade(&self.pending);
            let installed = doorbell.doorbell().notify_with(move || {
                if let Some(pending) = pending.upgrade() {
                    let places = pending.places.lock();
                    places.unwrap_or_else(|poison| poison.into_inner()).push(position);
                    pending.any.store(true, Ordering::Release);
                }
            });
            if !installed {
                self.compared.push(position);
            }
            let seen = doorbell.doorbell().rings();
            self.watched.push(Watched { doorbell: doorbell.clone(), watchers: Vec::new(), seen });
            position
        });
        let watchers = &mut self.watched[position].watchers;
        if !watchers.contains(&index) {
            watchers.push(index);
        }
    }

    /// Calls `wake` with every engine that watches a doorbell that has rung since the last call.
    #[inline]
    pub fn drain(&mut self, wake: impl FnMut(usize)) {
        // After most rounds none has.
        if self.pending.any.load(Ordering::Acquire) || !self.compared.is_empty() {
            self.drain_rung(wake);
        }
    }

    fn drain_rung(&mut self, mut wake: impl FnMut(usize)) {
        if self.pending.any.load(Ordering::Acquire) {
            let places = self.pending.places.lock();
            let mut places = places.unwrap_or_else(|poison| poison.into_inner());
            self.pending.any.store(false, Ordering::Relaxed);
            for position in places.drain(..) {
                self.watched[position].watchers.iter().copied().for_each(&mut wake);
            }
        }
        for position in &self.compared {
            let watched = &mut self.watched[*position];
            let rings = watched.doorbell.doorbell().rings();
            if rings != watched.seen {
                watched.seen = rings;
                watched.watchers.iter().copied().for_each(&mut wake);
            }
        }
    }
}

impl fmt::Debug for Doorbells {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Doorbells({})", self.watched.len())
    }
}
