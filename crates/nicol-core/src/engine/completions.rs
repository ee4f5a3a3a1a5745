//! Completions: the futures that the fabric hands out, as slots of a table.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::pool::Payload;
use crate::exec::{Detached, Executor, TaskRef};
use crate::fabric::FabricError;

/// What a completion resolves to.
pub(super) type Resolved = Result<Payload, FabricError>;

#[derive(Debug)]
enum State {
    Vacant,
    Pending(Option<TaskRef>),
    Resolved(Resolved),
    /// The future was dropped; the slot is freed when its result arrives.
    Abandoned,
}

/// The slots of one engine.
#[derive(Debug)]
pub(super) struct Completions {
    executor: Rc<Executor>,
    slots: RefCell<Vec<State>>,
    vacant: RefCell<Vec<u32>>,
}

/// Names a pending completion; used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Token(pub(super) u32);

impl Completions {
    pub(super) fn new(executor: Rc<Executor>) -> Rc<Self> {
        Rc::new(Self {
            executor,
            slots: RefCell::new(Vec::new()),
            vacant: RefCell::new(Vec::new()),
        })
    }

    /// A fresh slot and the future that waits for it.
    pub(super) fn open(self: &Rc<Self>) -> (Token, Completion) {
        let vacant = self.vacant.borrow_mut().pop();
        let mut slots = self.slots.borrow_mut();
        let index = vacant.unwrap_or_else(|| {
            slots.push(State::Vacant);
            (slots.len() - 1) as u32
        });
        let slot = &mut slots[index as usize];
        assert!(matches!(slot, State::Vacant), "an open slot is not handed out again");
        *slot = State::Pending(None);
        (Token(index), Completion { table: self.clone(), slot: index })
    }

    /// A future that is resolved from the start.
    pub(super) fn ready(self: &Rc<Self>, result: Resolved) -> Completion {
        let (token, completion) = self.open();
        self.resolve(token, result);
        completion
    }

    /// Delivers a result and wakes the task that waits for it.
    pub(super) fn resolve(&self, token: Token, result: Resolved) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[token.0 as usize];
        match *slot {
            State::Pending(waiting) => {
                *slot = State::Resolved(result);
                if let Some(task) = waiting {
                    self.executor.wake(task);
                }
            }
            State::Abandoned => {
                *slot = State::Vacant;
                self.vacant.borrow_mut().push(token.0);
            }
            State::Vacant | State::Resolved(_) => panic!("a completion resolves once"),
        }
    }
}

/// Resolves to a reply's or an operation's bytes. Dropping it abandons the result only.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Completion {
    table: Rc<Completions>,
    slot: u32,
}

const DONE: u32 = u32::MAX;

impl Future for Completion {
    type Output = Resolved;

    fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(self.slot != DONE, "a completion is awaited once");
        let mut slots = self.table.slots.borrow_mut();
        let slot = &mut slots[self.slot as usize];
        if let State::Pending(waiting) = slot {
            *waiting = Some(self.table.executor.current());
            return Poll::Pending;
        }
        match std::mem::replace(slot, State::Vacant) {
            State::Resolved(result) => {
                self.table.vacant.borrow_mut().push(self.slot);
                drop(slots);
                self.slot = DONE;
                Poll::Ready(result)
            }
            _ => panic!("a live completion owns its slot"),
        }
    }
}

impl Detached for Completion {}

impl Drop for Completion {
    fn drop(&mut self) {
        if self.slot == DONE {
            return;
        }
        let mut slots = self.table.slots.borrow_mut();
        let slot = &mut slots[self.slot as usize];
        match std::mem::replace(slot, State::Vacant) {
            State::Resolved(_) => self.table.vacant.borrow_mut().push(self.slot),
            _ => *slot = State::Abandoned,
        }
    }
}

/// Resolves when the engine wakes it: a timer, a doorbell, the next turn.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Wake(pub(super) Completion);

impl Future for Wake {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.0).poll(context).map(|_| ())
    }
}
