//! Orders to engine threads, carried out between two rounds: stop, drop engines, start others, take
//! over which sides are up and which view holds.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use nicol_core::engine::{Life, Loss};
use nicol_core::ids::{Incarnation, NodeId, Side};
use nicol_core::medium::MediumWrite;
use nicol_core::serving::EventLoop;
use nicol_core::units::Nanos;
use nicol_core::view::{Asking, View};

/// How often a thread that waits checks whether the cluster has stopped.
const LOOK: Duration = Duration::from_millis(20);

/// One thing to do, by the thread of the engines that it concerns.
#[derive(Clone, Debug)]
pub(crate) enum Order {
    /// Run no round until [`Order::Resume`].
    Pause,
    Resume,
    /// Take apart what runs on these sides: their next lives are these.
    TakeApart(Loss, [Incarnation; 2]),
    /// Start an engine that is down.
    Restart(Arc<Rebirth>),
    /// A side has crashed or is back. Engines of its own node learn of it if `near`, those of other
    /// nodes if `far`.
    Learn {
        node: NodeId,
        side: Side,
        life: Life,
        near: bool,
        far: bool,
    },
    /// Engines of this life of a side have this view, and serve until their clock shows this time.
    Serve {
        side: Asking,
        view: View,
        until: Nanos,
    },
    /// Run this event loop between the rounds.
    Attach(Arc<Handover>),
}

/// An event loop on its way to a thread, until the thread takes it.
#[derive(Default)]
pub(crate) struct Handover(Mutex<Option<Box<dyn EventLoop>>>);

impl Handover {
    pub(crate) fn new(event_loop: Box<dyn EventLoop>) -> Self {
        Self(Mutex::new(Some(event_loop)))
    }

    /// The event loop, once.
    pub(crate) fn take(&self) -> Option<Box<dyn EventLoop>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl fmt::Debug for Handover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handover").finish_non_exhaustive()
    }
}

/// The state with which an engine starts.
#[derive(Debug)]
pub(crate) struct Rebirth {
    /// Its position in the view.
    pub(crate) engine: usize,
    pub(crate) incarnation: Incarnation,
    /// The content of the node's log device.
    pub(crate) medium: Arc<[MediumWrite]>,
    pub(crate) memory_is_durable: bool,
    /// The sides that are up.
    pub(crate) known: Vec<(NodeId, Side, Life)>,
    /// Does it need a lease before it serves?
    pub(crate) needs_lease: bool,
}

/// The orders of one thread.
#[derive(Debug, Default)]
pub(crate) struct Orders {
    any: AtomicBool,
    queue: Mutex<Queue>,
    given: Condvar,
    followed: Condvar,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<Order>,
    given: u64,
    followed: u64,
}

impl Orders {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves an order, and returns its number. The thread is to be woken afterwards.
    pub(crate) fn give(&self, order: Order) -> u64 {
        let mut queue = self.lock();
        queue.waiting.push_back(order);
        queue.given += 1;
        self.any.store(true, Ordering::SeqCst);
        self.given.notify_one();
        queue.given
    }

    /// Waits until the thread has followed the order of this number; false if the cluster stops
    /// instead.
    pub(crate) fn wait_for(&self, number: u64, stops: impl Fn() -> bool) -> bool {
        let mut queue = self.lock();
        while queue.followed < number {
            if stops() {
                return false;
            }
            let waited = self.followed.wait_timeout(queue, LOOK);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// True if the thread has followed the order of this number.
    pub(crate) fn have_been_followed(&self, number: u64) -> bool {
        self.lock().followed >= number
    }

    /// True if there is an order.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Ordering::Relaxed)
    }

    /// As [`Orders::any`], for a thread that has raised its flag and is about to sleep.
    pub(crate) fn any_before_sleep(&self) -> bool {
        self.any.load(Ordering::SeqCst)
    }

    /// The next order. It counts as followed once [`Orders::done`] is called.
    pub(crate) fn take(&self) -> Option<Order> {
        let mut queue = self.lock();
        let next = queue.waiting.pop_front();
        if next.is_none() {
            self.any.store(false, Ordering::SeqCst);
        }
        next
    }

    /// The next order, waiting for one; `None` if the cluster stops instead.
    pub(crate) fn wait(&self, stops: impl Fn() -> bool) -> Option<Order> {
        let mut queue = self.lock();
        loop {
            if let Some(order) = queue.waiting.pop_front() {
                return Some(order);
            }
            if stops() {
                return None;
            }
            let waited = self.given.wait_timeout(queue, LOOK);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// The order that was taken last is followed.
    pub(crate) fn done(&self) {
        self.lock().followed += 1;
        self.followed.notify_all();
    }
}
