//! Clients that wait for a key to change: those of BLPOP and its kin.
//!
//! A waiter stands in the queue of each of its keys from before its first attempt until it has been
//! answered, so no change falls between an attempt that finds nothing and the wait. A transaction
//! that has changed records wakes the first waiter of each; it tries again. If it pops something,
//! its own transaction wakes the next one: so waiters are served in order of arrival, and one
//! element wakes one of them. A waiter that leaves, or that cannot use what is there, wakes the
//! next one, since a wake may have been meant for it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nicol_core::ids::Key;

use super::mailbox::{Mailbox, Unblock};

/// A client that waits.
#[derive(Clone, Debug)]
pub struct Waiter {
    pub mailbox: Arc<Mailbox>,
    /// The place of its connection, and its id.
    pub slot: usize,
    pub connection: u64,
}

impl Waiter {
    fn wake(&self) {
        self.mailbox.unblock(self.slot, self.connection, Unblock::TryAgain);
    }
}

/// The clients of all fronts that wait, by record.
#[derive(Debug, Default)]
pub struct Blocked {
    queues: Mutex<BTreeMap<Key, VecDeque<Waiter>>>,
    /// The records that are waited for: without any, a commit costs one load.
    records: AtomicUsize,
}

impl Blocked {
    /// Puts a client behind those that wait for `rows` already.
    pub fn enter(&self, rows: &[Key], waiter: &Waiter) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            queues.entry(*row).or_default().push_back(waiter.clone());
        }
        self.records.store(queues.len(), Ordering::SeqCst);
    }

    /// The connection waits no longer for `rows`; who stands first there now tries again.
    pub fn leave(&self, rows: &[Key], connection: u64) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            let Some(queue) = queues.get_mut(row) else { continue };
            queue.retain(|waiter| waiter.connection != connection);
            match queue.front() {
                Some(waiter) => waiter.wake(),
                None => _ = queues.remove(row),
            }
        }
        self.records.store(queues.len(), Ordering::SeqCst);
    }

    /// `rows` have changed: who stands first at each tries again.
    pub fn changed(&self, rows: &[Key]) {
        if self.records.load(Ordering::SeqCst) == 0 {
            return;
        }
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for waiter in rows.iter().filter_map(|row| queues.get(row)?.front()) {
            waiter.wake();
        }
    }

    /// The connection cannot use what is there: who stands behind it at each of `rows` tries.
    pub fn pass(&self, rows: &[Key], connection: u64) {
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for queue in rows.iter().filter_map(|row| queues.get(row)) {
            let behind = queue.iter().skip_while(|waiter| waiter.connection != connection).nth(1);
            if let Some(waiter) = behind {
                waiter.wake();
            }
        }
    }
}
