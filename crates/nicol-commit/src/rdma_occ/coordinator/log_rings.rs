//! The writer's end of a log ring at another node.
//!
//! Each host engine has a ring of its own at each other node and WRITEs into it. A record counts
//! once all that were reserved before it in its ring have landed, as completions on one queue pair
//! come in order.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use nicol_core::exec::Signal;

use crate::log::Tail;

/// A ring that this engine alone writes.
#[derive(Debug)]
pub(super) struct LogRing {
    size: u64,
    tail: Cell<Tail>,
    /// Bytes that the backup has applied, as last read.
    freed: Cell<u64>,
    /// Everything below has landed.
    landed: Cell<u64>,
    /// The ends of WRITEs above, in order, and whether each has landed.
    flying: RefCell<VecDeque<(u64, bool)>>,
    progress: Signal,
}

impl LogRing {
    pub(super) fn new(size: u64, progress: Signal) -> Self {
        Self {
            size,
            tail: Cell::new(Tail::new(size)),
            freed: Cell::new(0),
            landed: Cell::new(0),
            flying: RefCell::default(),
            progress,
        }
    }

    /// Bytes of the ring.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Where the next record goes.
    pub(super) fn tail(&self) -> Tail {
        self.tail.get()
    }

    /// Moves the tail behind what has been posted.
    pub(super) fn advance(&self, tail: Tail) {
        self.tail.set(tail);
    }

    /// True if there is space for records with bodies of these lengths.
    pub(super) fn has_space(&self, bodies: impl Iterator<Item = usize>) -> bool {
        let mut tail = self.tail.get();
        bodies.for_each(|body| tail.pass(body));
        tail.at() - self.freed.get() <= self.size
    }

    /// Notes how far the backup has applied it; is that further than before?
    pub(super) fn free(&self, applied: u64) -> bool {
        applied > self.freed.replace(applied.max(self.freed.get()))
    }

    /// Notes that the WRITE that ends at `end` is under way.
    pub(super) fn post(&self, end: u64) {
        self.flying.borrow_mut().push_back((end, false));
    }

    /// Notes that the WRITE that ends at `end` has landed.
    pub(super) fn land(&self, end: u64) {
        let mut flying = self.flying.borrow_mut();
        for (other, landed) in flying.iter_mut() {
            *landed |= *other == end;
        }
        while let Some(&(end, true)) = flying.front() {
            flying.pop_front();
            self.landed.set(end.max(self.landed.get()));
        }
        self.progress.notify();
    }

    /// Its node is gone: records that have not landed are no longer waited for.
    pub(super) fn give_up(&self) {
        self.landed.set(u64::MAX);
        self.progress.notify();
    }

    /// Waits until everything below `end` has landed.
    pub(super) async fn landed_up_to(&self, end: u64) {
        while self.landed.get() < end {
            self.progress.wait().await;
        }
    }
}
