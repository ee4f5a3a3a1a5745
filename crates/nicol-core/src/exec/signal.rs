//! A condition that tasks of one engine wait for.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::{Executor, TaskRef};

#[derive(Debug)]
struct State {
    executor: Rc<Executor>,
    notified: Cell<u64>,
    waiting: RefCell<Vec<TaskRef>>,
}

impl State {
    #[inline(never)]
    fn wake_all(&self) {
        let mut waiting = self.waiting.borrow_mut();
        self.executor.wake_each(&waiting);
        waiting.clear();
    }

    /// The running task waits.
    #[inline(never)]
    fn add_running(&self) {
        let task = self.executor.current();
        let mut waiting = self.waiting.borrow_mut();
        if !waiting.contains(&task) {
            waiting.push(task);
        }
    }
}

/// Wakes every waiting task of its engine; each then re-checks its condition.
#[derive(Clone, Debug)]
pub struct Signal(Rc<State>);

impl Signal {
    /// A signal among the tasks of `executor`.
    pub fn new(executor: Rc<Executor>) -> Self {
        Self(Rc::new(State { executor, notified: Cell::new(0), waiting: RefCell::new(Vec::new()) }))
    }

    /// Wakes all that wait.
    #[inline]
    pub fn notify(&self) {
        self.0.notified.set(self.0.notified.get() + 1);
        if self.is_awaited() {
            self.0.wake_all();
        }
    }

    /// Does any task wait?
    #[inline]
    pub fn is_awaited(&self) -> bool {
        !self.0.waiting.borrow().is_empty()
    }

    /// Resolves at the next [`Signal::notify`].
    #[inline]
    pub fn wait(&self) -> SignalWait {
        SignalWait { signal: self.clone(), seen: self.0.notified.get() }
    }
}

/// See [`Signal::wait`].
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct SignalWait {
    signal: Signal,
    seen: u64,
}

impl Future for SignalWait {
    type Output = ();

    #[inline]
    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        let state = &self.signal.0;
        if state.notified.get() != self.seen {
            return Poll::Ready(());
        }
        state.add_running();
        Poll::Pending
    }
}
