//! Operations that are queued, answered at once, and executed in the background. (TPC-C 2.7.2)

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use nicol_core::exec::Signal;
use nicol_core::fabric::Local;
use nicol_core::units::Nanos;

use super::attempts::Attempts;
use super::session::{ClientOperation, Session};

/// Operations that wait on an engine, at most: the specification bounds the time that one may wait
/// (80 s), not how many do. Where the background keeps up, few wait; where it does not, the queue
/// is full in the end, and clients wait for a place: the share of the mix that is deferred limits
/// all of it then.
const WAITING_MAX: usize = 1_024;

/// An operation that has been answered.
#[derive(Debug)]
pub(super) struct Queued<O> {
    pub(super) kind: usize,
    /// When it was due: what its latency goes by.
    pub(super) start: Nanos,
    pub(super) operation: O,
}

/// The deferred operations of the clients of one engine, executed one after the other.
#[derive(Debug)]
pub(super) struct Deferred<O> {
    queued: RefCell<VecDeque<Queued<O>>>,
    /// Places of the queue that are taken, by operations or for those that are about to come.
    taken: Cell<usize>,
    /// Clients that wait for a place, in the order of asking.
    waiting: RefCell<VecDeque<Signal>>,
    /// Clients that may still come.
    clients: Cell<usize>,
    changed: Signal,
}

impl<O: ClientOperation> Deferred<O> {
    /// The queue of so many clients.
    pub(super) fn new(fabric: &impl Local, clients: usize) -> Rc<Self> {
        Rc::new(Self {
            queued: RefCell::default(),
            taken: Cell::new(0),
            waiting: RefCell::default(),
            clients: Cell::new(clients),
            changed: fabric.signal(),
        })
    }

    /// Waits for a place and takes it; returns false if there was one at once. `turn` is a signal
    /// of the caller's own.
    pub(super) async fn place(&self, turn: &Signal) -> bool {
        if self.taken.get() < WAITING_MAX {
            self.taken.set(self.taken.get() + 1);
            return false;
        }
        let granted = turn.wait();
        self.waiting.borrow_mut().push_back(turn.clone());
        // `release` leaves the place to it, so that nobody comes in between.
        granted.await;
        true
    }

    /// Gives a place to who has waited longest, if anybody waits.
    pub(super) fn release(&self) {
        match self.waiting.borrow_mut().pop_front() {
            Some(next) => next.notify(),
            None => self.taken.set(self.taken.get() - 1),
        }
    }

    /// Queues an operation for which a place was taken.
    pub(super) fn push(&self, queued: Queued<O>) {
        self.queued.borrow_mut().push_back(queued);
        assert!(self.queued.borrow().len() <= WAITING_MAX, "each has a place");
        self.changed.notify();
    }

    /// Notes that a client has ended.
    pub(super) fn leave(&self) {
        self.clients.set(self.clients.get() - 1);
        self.changed.notify();
    }

    /// Takes the operation that has waited longest.
    fn take(&self) -> Option<Queued<O>> {
        let taken = self.queued.borrow_mut().pop_front();
        if taken.is_some() {
            self.release();
        }
        taken
    }

    /// Executes what is queued until all clients have ended and nothing is left. Once the run was
    /// asked to stop, what waits is not begun.
    pub(super) async fn execute<F, S>(self: Rc<Self>, mut attempts: Attempts<F, S>)
    where
        F: Local,
        S: Session<Operation = O>,
    {
        loop {
            let Some(Queued { kind, start, operation }) = self.take() else {
                if self.clients.get() == 0 {
                    return;
                }
                self.changed.wait().await;
                continue;
            };
            let now = attempts.fabric.now();
            if attempts.must_stop(now) {
                continue;
            }
            attempts.slot.operation = operation;
            attempts.slot.begin(kind, start, now);
            attempts.run(kind, now).await;
        }
    }
}

#[cfg(test)]
mod tests;
