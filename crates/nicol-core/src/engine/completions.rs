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
enum Slot {
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
    slots: RefCell<Vec<Slot>>,
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
            slots.push(Slot::Vacant);
            (slots.len() - 1) as u32
        });
        let slot = &mut slots[index as usize];
        assert!(matches!(slot, Slot::Vacant), "an open slot is not handed out again");
        *slot = Slot::Pending(None);
        (Token(index), Completion(State::Waits { table: self.clone(), slot: index }))
    }

    /// Delivers a result and wakes the task that waits for it.
    pub(super) fn resolve(&self, token: Token, result: Resolved) {
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots[token.0 as usize];
        match *slot {
            Slot::Pending(waiting) => {
                *slot = Slot::Resolved(result);
                if let Some(task) = waiting {
                    self.executor.wake(task);
                }
            }
            Slot::Abandoned => {
                *slot = Slot::Vacant;
                self.vacant.borrow_mut().push(token.0);
            }
            Slot::Vacant | Slot::Resolved(_) => panic!("a completion resolves once"),
        }
    }

    /// Takes the result out of a slot that has one, and frees the slot.
    fn take(&self, slot: u32) -> Resolved {
        let state = std::mem::replace(&mut self.slots.borrow_mut()[slot as usize], Slot::Vacant);
        let Slot::Resolved(result) = state else {
            panic!("a live completion owns its slot");
        };
        self.vacant.borrow_mut().push(slot);
        result
    }

    /// Nobody waits for the slot any more.
    fn abandon(&self, slot: u32) {
        let mut slots = self.slots.borrow_mut();
        let state = &mut slots[slot as usize];
        match std::mem::replace(state, Slot::Vacant) {
            Slot::Resolved(_) => self.vacant.borrow_mut().push(slot),
            _ => *state = Slot::Abandoned,
        }
    }
}

/// Resolves to a reply's or an operation's bytes. Dropping it abandons the result only.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Completion(State);

#[derive(Debug)]
enum State {
    /// The result comes into a slot.
    Waits {
        table: Rc<Completions>,
        slot: u32,
    },
    /// It was known from the start.
    Ready(Resolved),
    Taken,
}

impl Completion {
    /// A future that is resolved from the start.
    pub(super) const fn ready(result: Resolved) -> Self {
        Self(State::Ready(result))
    }
}

impl Future for Completion {
    type Output = Resolved;

    fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Waits { table, slot } = &self.0 {
            let mut slots = table.slots.borrow_mut();
            if let Slot::Pending(waiting) = &mut slots[*slot as usize] {
                *waiting = Some(table.executor.current());
                return Poll::Pending;
            }
        }
        match std::mem::replace(&mut self.0, State::Taken) {
            State::Ready(result) => Poll::Ready(result),
            State::Waits { table, slot } => Poll::Ready(table.take(slot)),
            State::Taken => panic!("a completion is awaited once"),
        }
    }
}

impl Detached for Completion {}

impl Drop for Completion {
    fn drop(&mut self) {
        if let State::Waits { table, slot } = &self.0 {
            table.abandon(*slot);
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

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    #[test]
    fn what_is_known_from_the_start_takes_no_slot_and_a_dropped_one_gives_its_slot_back() {
        let table = Completions::new(Rc::default());
        let mut context = Context::from_waker(Waker::noop());
        let mut ready = Completion::ready(Err(FabricError::NoResources));
        let Poll::Ready(Err(error)) = Pin::new(&mut ready).poll(&mut context) else {
            panic!("nothing is waited for");
        };
        assert_eq!((error, table.slots.borrow().len()), (FabricError::NoResources, 0));
        let (token, dropped) = table.open();
        drop(dropped);
        assert_eq!(table.vacant.borrow().len(), 0, "its result may come yet");
        table.resolve(token, Err(FabricError::Unreachable));
        let (token, resolved) = table.open();
        table.resolve(token, Err(FabricError::Unreachable));
        drop(resolved);
        assert_eq!((table.slots.borrow().len(), table.vacant.borrow().len()), (1, 1));
    }
}
