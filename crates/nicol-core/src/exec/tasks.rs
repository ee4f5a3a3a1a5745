//! Tasks: futures in slots that are reused per future type.

use std::any::{Any, TypeId};
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Names a task for waking it. A stale name wakes whatever runs in the slot now, which does no
/// harm: every future re-checks what it waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRef(u32);

impl TaskRef {
    /// Its place in the executor's table.
    pub const fn place(self) -> usize {
        self.0 as usize
    }
}

/// Sees each poll of a task; see [`Executor::run_observed`].
pub trait Observer {
    /// `task` is about to be polled.
    fn poll_begins(&self, task: TaskRef);
    /// `task` was polled, and has finished if `done`: then its name may be given to another task.
    fn poll_ends(&self, task: TaskRef, done: bool);
}

impl Observer for () {
    fn poll_begins(&self, _: TaskRef) {}
    fn poll_ends(&self, _: TaskRef, _: bool) {}
}

/// A slot that can hold a future of one type, again and again.
trait Slot: Any {
    /// Polls the future; on completion drops it and reports `Ready`.
    fn poll(&self, context: &mut Context<'_>) -> Poll<()>;
    /// The pool that it belongs to.
    fn pool(&self) -> usize;
}

/// The boxed option stays; only its content comes and goes.
struct TypedSlot<T: Future<Output = ()> + 'static> {
    pool: usize,
    future: RefCell<Pin<Box<Option<T>>>>,
}

impl<T: Future<Output = ()> + 'static> Slot for TypedSlot<T> {
    fn poll(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut future = self.future.borrow_mut();
        let polled = match future.as_mut().as_pin_mut() {
            Some(running) => running.poll(context),
            None => Poll::Ready(()),
        };
        if polled.is_ready() {
            future.set(None);
        }
        polled
    }

    fn pool(&self) -> usize {
        self.pool
    }
}

/// Idle slots of one type of future. An engine runs a dozen types: a scan finds one soonest.
struct Pool {
    kind: TypeId,
    idle: Vec<Rc<dyn Slot>>,
}

/// One slot of the task table.
#[derive(Default)]
struct TaskSlot {
    slot: Option<Rc<dyn Slot>>,
    queued: bool,
}

/// Runs the tasks of one engine, first come, first served.
#[derive(Default)]
pub struct Executor {
    slots: RefCell<Vec<TaskSlot>>,
    vacant: RefCell<Vec<u32>>,
    ready: RefCell<VecDeque<u32>>,
    pools: RefCell<Vec<Pool>>,
    current: Cell<Option<TaskRef>>,
    live: Cell<usize>,
}

impl Executor {
    /// Tasks that have been spawned and are not finished.
    pub fn live(&self) -> usize {
        self.live.get()
    }

    /// True if any task is ready to run.
    pub fn has_ready(&self) -> bool {
        !self.ready.borrow().is_empty()
    }

    /// The task being polled.
    ///
    /// # Panics
    /// Outside a task: a fabric future was polled by a foreign executor.
    pub fn current(&self) -> TaskRef {
        let Some(task) = self.current.get() else {
            panic!("a fabric future may only be polled by a task of its own engine");
        };
        task
    }

    /// The task being polled, if any is.
    pub fn running(&self) -> Option<TaskRef> {
        self.current.get()
    }

    /// Adds a task; it runs in the current or the next [`Executor::run`]. Its name.
    pub fn spawn<T: Future<Output = ()> + 'static>(&self, task: T) -> TaskRef {
        let (pool, idle) = self.idle_slot(TypeId::of::<T>());
        if let Some(idle) = idle {
            let any: Rc<dyn Any> = idle;
            if let Ok(typed) = any.downcast::<TypedSlot<T>>() {
                typed.future.borrow_mut().set(Some(task));
                return self.enter(typed);
            }
        }
        self.enter(Rc::new(TypedSlot { pool, future: RefCell::new(Box::pin(Some(task))) }))
    }

    /// Adds the task in `slot`.
    fn enter(&self, slot: Rc<dyn Slot>) -> TaskRef {
        let vacant = self.vacant.borrow_mut().pop();
        let mut slots = self.slots.borrow_mut();
        let index = vacant.unwrap_or_else(|| {
            slots.push(TaskSlot::default());
            (slots.len() - 1) as u32
        });
        let entry = &mut slots[index as usize];
        assert!(entry.slot.is_none(), "a vacant entry holds no task");
        *entry = TaskSlot { slot: Some(slot), queued: true };
        self.ready.borrow_mut().push_back(index);
        self.live.set(self.live.get() + 1);
        TaskRef(index)
    }

    /// Makes `task` ready. Waking a ready or finished task does nothing.
    #[inline]
    pub fn wake(&self, task: TaskRef) {
        self.wake_each(&[task]);
    }

    /// Makes `tasks` ready, in this order.
    #[inline]
    pub fn wake_each(&self, tasks: &[TaskRef]) {
        let (mut slots, mut ready) = (self.slots.borrow_mut(), self.ready.borrow_mut());
        for task in tasks {
            if let Some(entry) = slots.get_mut(task.place())
                && entry.slot.is_some()
                && !entry.queued
            {
                entry.queued = true;
                ready.push_back(task.0);
            }
        }
    }

    /// Polls ready tasks, those made ready meanwhile included, until none is ready or `limit` were
    /// polled; returns how many were.
    pub fn run(&self, limit: usize) -> usize {
        self.run_observed(limit, &())
    }

    /// Like [`Executor::run`]; `observer` sees each poll.
    pub fn run_observed(&self, limit: usize, observer: &impl Observer) -> usize {
        let mut context = Context::from_waker(Waker::noop());
        for polled in 0..limit {
            let Some(index) = self.ready.borrow_mut().pop_front() else { return polled };
            let slot = {
                let mut slots = self.slots.borrow_mut();
                let entry = &mut slots[index as usize];
                entry.queued = false;
                entry.slot.clone()
            };
            let Some(slot) = slot else { continue };
            self.current.set(Some(TaskRef(index)));
            observer.poll_begins(TaskRef(index));
            let done = slot.poll(&mut context).is_ready();
            self.current.set(None);
            observer.poll_ends(TaskRef(index), done);
            if done {
                self.retire(index, slot);
            }
        }
        limit
    }

    /// Drops every task, finished or not: what they hold may hold this executor.
    ///
    /// # Panics
    /// If a task is being polled.
    pub fn clear(&self) {
        assert!(self.current.get().is_none(), "a task cannot drop its own executor's tasks");
        // Taken out first: dropping a future may wake others.
        let slots = std::mem::take(&mut *self.slots.borrow_mut());
        let pools = std::mem::take(&mut *self.pools.borrow_mut());
        drop((slots, pools));
        self.ready.borrow_mut().clear();
        self.vacant.borrow_mut().clear();
        self.live.set(0);
    }

    fn retire(&self, index: u32, slot: Rc<dyn Slot>) {
        {
            let mut slots = self.slots.borrow_mut();
            slots[index as usize].slot = None;
            // A task that woke itself and then finished is still queued; its entry must not be
            // handed out before that entry has been popped, and popping an empty entry is free.
            slots[index as usize].queued = false;
        }
        self.vacant.borrow_mut().push(index);
        self.live.set(self.live.get() - 1);
        self.pools.borrow_mut()[slot.pool()].idle.push(slot);
    }

    /// The pool of the slots for futures of this type, and an idle one of them if there is any.
    fn idle_slot(&self, kind: TypeId) -> (usize, Option<Rc<dyn Slot>>) {
        let mut pools = self.pools.borrow_mut();
        let pool = pools.iter().position(|pool| pool.kind == kind).unwrap_or_else(|| {
            pools.push(Pool { kind, idle: Vec::new() });
            pools.len() - 1
        });
        (pool, pools[pool].idle.pop())
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Executor({} tasks)", self.live())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Signal;

    #[test]
    fn tasks_run_until_they_wait_and_again_when_signalled() {
        let executor = Rc::new(Executor::default());
        let signal = Signal::new(executor.clone());
        let seen = Rc::new(Cell::new(0));
        for _ in 0..3 {
            let (signal, seen) = (signal.clone(), seen.clone());
            executor.spawn(async move {
                seen.set(seen.get() + 1);
                signal.wait().await;
                seen.set(seen.get() + 10);
            });
        }
        executor.run(100);
        assert_eq!((seen.get(), executor.live()), (3, 3));
        signal.notify();
        executor.run(100);
        assert_eq!((seen.get(), executor.live()), (33, 0));
    }
}
