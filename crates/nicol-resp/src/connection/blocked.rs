//! Clients that wait for a key to change: those of BLPOP and its kin.
//!
//! A waiter stands in the queue of each of its keys from before its first attempt until it has been
//! answered, so no change falls between an attempt that finds nothing and the wait. A transaction
//! that has changed records wakes the first waiter of each; it tries again. If it pops something,
//! its own transaction wakes the next one: so waiters are served in order of arrival, and one
//! element wakes one of them. A waiter that leaves, or that cannot use what is there, wakes the
//! next one, since a wake may have been meant for it.
//!
//! Who takes nothing away, as an XREAD, is woken by every change, and the readers of each group of
//! a stream have a queue of their own: what one group gets is there for the others too.

use std::collections::VecDeque;
use std::collections::btree_map::{BTreeMap, Entry};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nicol_core::ids::Key;

use super::mailbox::{Mailbox, Unblock};

/// In which queue of a record a client waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Turn {
    /// With those who are all woken by a change.
    Each,
    /// Behind those of the same number, of whom a change wakes the first.
    One(u64),
}

impl Turn {
    /// Behind those that pop elements.
    pub const ONE: Self = Self::One(0);
    const LAST: Self = Self::One(u64::MAX);
}

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

/// The clients of all fronts that wait, by record and turn.
#[derive(Debug, Default)]
pub struct Blocked {
    queues: Mutex<BTreeMap<(Key, Turn), VecDeque<Waiter>>>,
    /// Their number: without any, a commit costs one load.
    records: AtomicUsize,
}

impl Blocked {
    /// Puts a client behind those that wait for `rows` already.
    pub fn enter(&self, rows: &[Key], turn: Turn, waiter: &Waiter) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            queues.entry((*row, turn)).or_default().push_back(waiter.clone());
        }
        self.records.store(queues.len(), Ordering::SeqCst);
    }

    /// The connection waits no longer for `rows`; who stands first there now tries again.
    pub fn leave(&self, rows: &[Key], turn: Turn, connection: u64) {
        let mut queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            let Entry::Occupied(mut queue) = queues.entry((*row, turn)) else { continue };
            queue.get_mut().retain(|waiter| waiter.connection != connection);
            match queue.get().front() {
                Some(waiter) if turn != Turn::Each => waiter.wake(),
                Some(_) => {}
                None => _ = queue.remove(),
            }
        }
        self.records.store(queues.len(), Ordering::SeqCst);
    }

    /// `rows` have changed: who stands first at each, in every turn, tries again.
    pub fn changed(&self, rows: &[Key]) {
        if self.records.load(Ordering::SeqCst) == 0 {
            return;
        }
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for row in rows {
            for ((_, turn), queue) in queues.range((*row, Turn::Each)..=(*row, Turn::LAST)) {
                let woken = if *turn == Turn::Each { queue.len() } else { 1 };
                queue.iter().take(woken).for_each(Waiter::wake);
            }
        }
    }

    /// The connection cannot use what is there: who stands behind it at each of `rows` tries.
    pub fn pass(&self, rows: &[Key], turn: Turn, connection: u64) {
        if turn == Turn::Each {
            return;
        }
        let queues = self.queues.lock().unwrap_or_else(PoisonError::into_inner);
        for queue in rows.iter().filter_map(|row| queues.get(&(*row, turn))) {
            let behind = queue.iter().skip_while(|waiter| waiter.connection != connection).nth(1);
            if let Some(waiter) = behind {
                waiter.wake();
            }
        }
    }
}
