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
            self.0.waiting.borrow_mut().drain(..).for_each(|task| self.0.executor.wake(task));
        }
    }

    /// Does any task wait?
    pub fn is_awaited(&self) -> bool {
        !self.0.waiting.borrow().is_empty()
    }

    /// Resolves at the next [`Signal::notify`].
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

    fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<()> {
        let state = &self.signal.0;
        if state.notified.get() != self.seen {
            return Poll::Ready(());
        }
        let task = state.executor.current();
        let mut waiting = state.waiting.borrow_mut();
        if !waiting.contains(&task) {
            waiting.push(task);
        }
        Poll::Pending
    }
}
