//! The vFIFO and the dFIFO of a node's NIC: how many entries are in use. [MINOS24 V-B4]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use nicol_core::fabric::{Fabric, HasDoorbell};
use nicol_core::memory::Doorbell;

/// Writes that wait for an entry of a queue, at most; further requests are rejected. Several times the
/// writes that a node of the paper's runs has under way.
pub(super) const QUEUE_WAITERS_MAX: u32 = 256;

/// One of the queues. What stands in its entries is its users'.
#[derive(Debug)]
pub(super) struct Queue {
    entries: Option<u32>,
    used: AtomicU32,
    waiting: AtomicU32,
    left: Arc<Doorbell>,
}

/// An entry in use.
#[must_use = "an entry is given back when its update has drained"]
#[derive(Debug)]
pub(super) struct Entry(());

impl Queue {
    /// A queue of so many entries; `None`: as many as are asked for.
    pub(super) fn new(entries: Option<u32>) -> Self {
        let left = Arc::default();
        Self { entries, used: AtomicU32::new(0), waiting: AtomicU32::new(0), left }
    }

    /// Is nobody else allowed to wait?
    pub(super) fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= QUEUE_WAITERS_MAX
    }

    /// Takes an entry; waits until one is free.
    pub(super) async fn enter<F: Fabric>(&self, fabric: &F) -> Entry {
        if let Some(entry) = self.try_enter() {
            return entry;
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let bell: Arc<dyn HasDoorbell> = self.left.clone();
        let entry = loop {
            let rings = self.left.rings();
            match self.try_enter() {
                Some(entry) => break entry,
                None => fabric.wait_for_doorbell(&bell, rings).await,
            }
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        entry
    }

    fn try_enter(&self) -> Option<Entry> {
        let most = self.entries.unwrap_or(u32::MAX);
        let more = |used: u32| (used < most).then_some(used + 1);
        self.used.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more).ok().map(|_| Entry(()))
    }

    /// Gives an entry back.
    pub(super) fn leave(&self, entry: Entry) {
        let Entry(()) = entry;
        let before = self.used.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "an entry is given back once");
        self.left.ring();
    }

    /// Forgets who is in it: its users have crashed.
    pub(super) fn lose(&self) {
        self.used.store(0, Ordering::Relaxed);
        self.waiting.store(0, Ordering::Relaxed);
    }
}
