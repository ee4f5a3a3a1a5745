//! The queue on which engines hand responses back to a front.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Wake;

use mio::Waker;
use nicol_core::txn::Outcome;

use crate::connection::socket::Stream;
use crate::pushes::Push;
use nicol_core::serving::{Request, Response};

/// A response and whose it is.
#[derive(Debug)]
pub struct Completion {
    pub slot: usize,
    pub request: Arc<Request>,
    pub response: Response,
}

/// What becomes of a connection that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unblock {
    /// It may find something now.
    TryAgain,
    /// It waits no longer, as if its time were over or with an error.
    End { with_error: bool },
}

/// What other threads hand to one front. Bounded: a connection has one transaction in
/// progress, and connections are limited.
#[derive(Debug)]
pub struct Mailbox {
    completions: Mutex<Vec<Completion>>,
    accepted: Mutex<Vec<Stream>>,
    /// Connections to be closed: the place and the id of each.
    killed: Mutex<Vec<(usize, u64)>>,
    /// Connections that wait and may find something now: the place and the id of each.
    unblocked: Mutex<Vec<(usize, u64, Unblock)>>,
    /// Messages to connections: the place and the id of each.
    pushes: Mutex<Vec<(usize, u64, Push)>>,
    /// Set while there are any.
    has_pushes: AtomicBool,
    /// Set while the owner waits or is about to: only then does a push have to end the wait.
    sleeping: AtomicBool,
    waker: Waker,
}

impl Mailbox {
    /// An empty mailbox whose owner `waker` wakes.
    pub fn new(waker: Waker) -> Self {
        Self {
            completions: Mutex::new(Vec::new()),
            accepted: Mutex::new(Vec::new()),
            killed: Mutex::new(Vec::new()),
            unblocked: Mutex::new(Vec::new()),
            pushes: Mutex::new(Vec::new()),
            has_pushes: AtomicBool::new(false),
            sleeping: AtomicBool::new(false),
            waker,
        }
    }

    pub fn complete(&self, completion: Completion) {
        self.completions.lock().unwrap_or_else(PoisonError::into_inner).push(completion);
        self.wake();
    }

    /// Hands over a connection.
    pub fn accept(&self, stream: Stream) {
        self.accepted.lock().unwrap_or_else(PoisonError::into_inner).push(stream);
        self.wake();
    }

    /// Asks for the end of a connection, at most once for each.
    pub fn kill(&self, slot: usize, connection: u64) {
        self.killed.lock().unwrap_or_else(PoisonError::into_inner).push((slot, connection));
        self.wake();
    }

    /// Lets a connection that waits try again, or ends its wait.
    pub fn unblock(&self, slot: usize, connection: u64, how: Unblock) {
        let mut unblocked = self.unblocked.lock().unwrap_or_else(PoisonError::into_inner);
        unblocked.push((slot, connection, how));
        drop(unblocked);
        self.wake();
    }

    /// Hands over a message to a connection. [`Client::push`] bounds them.
    ///
    /// [`Client::push`]: super::clients::Client::push
    pub fn push(&self, slot: usize, connection: u64, push: Push) {
        let mut pushes = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
        pushes.push((slot, connection, push));
        self.has_pushes.store(true, Ordering::SeqCst);
        drop(pushes);
        self.wake();
    }

    /// Makes the owner look around.
    pub fn wake(&self) {
        if self.sleeping.swap(false, Ordering::SeqCst) {
            self.end_wait();
        }
    }

    /// Ends the owner's wait, the next one if there is none now.
    fn end_wait(&self) {
        // It fails only if the event descriptor is gone, and with it the thread to wake.
        let _ = self.waker.wake();
    }

    /// Announces sleep; `false` if there is something to do first.
    pub fn prepare_sleep(&self) -> bool {
        self.sleeping.store(true, Ordering::SeqCst);
        let idle = self.completions.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
            && self.accepted.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
            && self.killed.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
            && self.unblocked.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
            && !self.has_pushes.load(Ordering::SeqCst);
        if !idle {
            self.woken();
        }
        idle
    }

    /// The owner is awake.
    pub fn woken(&self) {
        self.sleeping.store(false, Ordering::SeqCst);
    }

    /// Swaps the queued responses with `taken`, which must be empty.
    pub fn take_completions(&self, taken: &mut Vec<Completion>) {
        assert!(taken.is_empty(), "responses must be handled before more are taken");
        let mut queue = self.completions.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut *queue, taken);
    }

    /// The connections to be closed.
    pub fn take_killed(&self) -> Vec<(usize, u64)> {
        std::mem::take(&mut *self.killed.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The connections that may try again, or wait no longer.
    pub fn take_unblocked(&self) -> Vec<(usize, u64, Unblock)> {
        std::mem::take(&mut *self.unblocked.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The messages to connections, in order. Cost: a load where there are none.
    pub fn take_pushes(&self) -> Vec<(usize, u64, Push)> {
        if !self.has_pushes.load(Ordering::SeqCst) {
            return Vec::new();
        }
        let mut pushes = self.pushes.lock().unwrap_or_else(PoisonError::into_inner);
        self.has_pushes.store(false, Ordering::SeqCst);
        std::mem::take(&mut *pushes)
    }

    /// The connections handed over.
    pub fn take_accepted(&self) -> Vec<Stream> {
        std::mem::take(&mut *self.accepted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// For those who know of a wait by other means than the mailbox's own flag.
impl Wake for Mailbox {
    fn wake(self: Arc<Self>) {
        self.end_wait();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.end_wait();
    }
}

/// A promise to complete: kept even by an engine that drops it.
#[derive(Debug)]
pub struct Promise {
    mailbox: Arc<Mailbox>,
    slot: usize,
    request: Option<Arc<Request>>,
}

impl Promise {
    /// A promise to complete `request` of a connection.
    pub fn new(mailbox: Arc<Mailbox>, slot: usize, request: Arc<Request>) -> Self {
        Self { mailbox, slot, request: Some(request) }
    }

    pub fn keep(mut self, response: Response) {
        self.send(response);
    }

    fn send(&mut self, response: Response) {
        if let Some(request) = self.request.take() {
            let slot = self.slot;
            self.mailbox.complete(Completion { slot, request, response });
        }
    }
}

impl Drop for Promise {
    fn drop(&mut self) {
        self.send(Response { outcome: Outcome::Unknown, output: Vec::new() });
    }
}
