//! The vFIFO and the dFIFO of a node's NIC: how many entries are in use, and what waits in the
//! vFIFO. [MINOS24 V-B4]
//!
//! What is in the dFIFO is durable, and on the node's medium until the host's log has it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::fabric::{Fabric, HasDoorbell};
use nicol_core::ids::Key;
use nicol_core::memory::Doorbell;
use nicol_core::system::Taken;
use nicol_core::units::Nanos;

use super::config::WhenFull;
use super::timestamp::Timestamp;
use super::value::Value;

/// Writes that wait for an entry of a queue where they may wait, at most; further requests are
/// rejected. Several times the writes that a node of the paper's runs has under way.
pub(super) const QUEUE_WAITERS_MAX: u32 = 256;

/// One of the queues. What stands in its entries is its users'.
#[derive(Debug)]
pub(super) struct Queue {
    entries: Option<u32>,
    when_full: WhenFull,
    used: AtomicU32,
    waiting: AtomicU32,
    left: Arc<Doorbell>,
    /// The time in which entries that were given back had been in use, summed up, in nanoseconds.
    in_use_ns: AtomicU64,
    /// The number of times that its users were forgotten.
    forgotten: AtomicU32,
}

/// An entry in use.
#[must_use = "an entry is given back when its update has drained"]
#[derive(Debug)]
pub(super) struct Entry {
    /// The queue's `forgotten` when the entry was taken.
    forgotten: u32,
    since: Nanos,
}

impl Queue {
    /// A queue of so many entries; `None`: as many as are asked for.
    pub(super) fn new(entries: Option<u32>, when_full: WhenFull) -> Self {
        let (used, waiting, forgotten, in_use_ns) = Default::default();
        Self { entries, when_full, used, waiting, left: Arc::default(), in_use_ns, forgotten }
    }

    /// The time in which its entries were in use, called `name`; `None` if entries are unlimited.
    pub(super) fn taken(&self, name: &'static str) -> Option<Taken> {
        let time = Nanos(self.in_use_ns.load(Ordering::Relaxed));
        self.entries.map(|places| Taken { name, places, time })
    }

    /// Whether to reject a request. One that is not rejected may still have to wait, since another
    /// may take the free entry first.
    pub(super) fn is_full(&self) -> bool {
        match self.when_full {
            WhenFull::Wait => self.waiting.load(Ordering::Relaxed) >= QUEUE_WAITERS_MAX,
            WhenFull::Reject => {
                self.entries.is_some_and(|most| self.used.load(Ordering::Relaxed) >= most)
            }
        }
    }

    /// Takes an entry; waits until one is free.
    pub(super) async fn enter<F: Fabric>(&self, fabric: &F) -> Entry {
        if let Some(entry) = self.try_enter(fabric.now()) {
            return entry;
        }
        let forgotten = self.forgotten.load(Ordering::Relaxed);
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let bell: Arc<dyn HasDoorbell> = self.left.clone();
        let entry = loop {
            let rings = self.left.rings();
            match self.try_enter(fabric.now()) {
                Some(entry) => break entry,
                None => fabric.wait_for_doorbell(&bell, rings).await,
            }
        };
        if entry.forgotten == forgotten {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        entry
    }

    fn try_enter(&self, since: Nanos) -> Option<Entry> {
        let most = self.entries.unwrap_or(u32::MAX);
        let more = |used: u32| (used < most).then_some(used + 1);
        let taken = self.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        let forgotten = self.forgotten.load(Ordering::Relaxed);
        taken.ok().map(|_| Entry { forgotten, since })
    }

    /// Gives an entry back at `now`. One of a user that was forgotten is free already: a host that
    /// recovers persists into the dFIFO, and its NIC may crash meanwhile.
    pub(super) fn leave(&self, entry: Entry, now: Nanos) {
        if entry.forgotten != self.forgotten.load(Ordering::Relaxed) {
            return;
        }
        let before = self.used.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "an entry is given back once");
        self.in_use_ns.fetch_add(now.since(entry.since).0, Ordering::Relaxed);
        self.left.ring();
    }

    /// Forgets all users, whose lives are over.
    pub(super) fn forget_users(&self) {
        self.forgotten.fetch_add(1, Ordering::Relaxed);
        self.used.store(0, Ordering::Relaxed);
        self.waiting.store(0, Ordering::Relaxed);
    }
}

/// An update on its way through the vFIFO into the host's memory.
#[derive(Clone, Debug)]
pub(super) struct Queued {
    pub(super) key: Key,
    pub(super) ts: Timestamp,
    /// `None` removes the record.
    pub(super) value: Option<Value>,
    /// Whether the NIC has crashed since. Then nobody may read the entry: this checks what crashes
    /// lose.
    lost: bool,
}

/// The content of the vFIFO's entries, which is memory of the NIC.
#[derive(Debug, Default)]
pub(super) struct VolatileEntries(Mutex<(u64, BTreeMap<u64, Queued>)>);

impl VolatileEntries {
    fn lock(&self) -> MutexGuard<'_, (u64, BTreeMap<u64, Queued>)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An entry has been filled; its number.
    pub(super) fn fill(&self, key: Key, ts: Timestamp, value: Option<Value>) -> u64 {
        let (last, entries) = &mut *self.lock();
        *last += 1;
        entries.insert(*last, Queued { key, ts, value, lost: false });
        *last
    }

    /// Applies `look` to the content of an entry, unless it is lost.
    pub(super) fn look<T>(&self, number: u64, look: impl FnOnce(&Queued) -> T) -> Option<T> {
        self.lock().1.get(&number).map(look)
    }

    /// Whether an update of `key` is in an entry.
    pub(super) fn has(&self, key: Key) -> bool {
        self.lock().1.values().any(|entry| entry.key == key)
    }

    /// Whether no entry is filled.
    pub(super) fn is_empty(&self) -> bool {
        self.lock().1.is_empty()
    }

    /// Takes an entry out.
    pub(super) fn take(&self, number: u64) -> Option<Queued> {
        self.lock().1.remove(&number)
    }

    /// Takes everything out, in the order in which it came in: what the next life of a host finds
    /// in the vFIFO of a NIC that has lived on.
    ///
    /// # Panics
    /// If the NIC has crashed since an entry was filled.
    pub(super) fn take_all(&self) -> impl Iterator<Item = Queued> + use<> {
        let entries = std::mem::take(&mut self.lock().1);
        entries.into_values().inspect(|entry| assert!(!entry.lost, "a vFIFO is lost with its NIC"))
    }

    /// The crash of the NIC. `keeps`: broken on purpose, everything is still there.
    pub(super) fn lose(&self, keeps: bool) {
        let entries = &mut self.lock().1;
        if keeps {
            entries.values_mut().for_each(|entry| entry.lost = true);
        } else {
            entries.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_of_a_life_that_is_over_is_not_given_back_again() {
        let queue = Queue::new(Some(1), WhenFull::Reject);
        let old = queue.try_enter(Nanos(3)).expect("one is free");
        assert!(queue.is_full() && queue.try_enter(Nanos(3)).is_none());
        queue.forget_users();
        queue.leave(old, Nanos(5));
        let new = queue.try_enter(Nanos(3)).expect("one is free");
        assert!(queue.is_full());
        queue.leave(new, Nanos(7));
        assert!(!queue.is_full());
        let taken = queue.taken("entries").map(|taken| (taken.places, taken.time));
        assert_eq!(taken, Some((1, Nanos(4))), "of the life that is not over");
    }
}
