//! Completions: the futures that the fabric hands out, as slots of a table.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::pool::Payload;
use crate::exec::{Detached, Executor, SignalWait, TaskRef};
use crate::fabric::FabricError;

/// The result of a completion.
pub(super) type Resolved = Result<Payload, FabricError>;

#[derive(Debug)]
enum Slot {
    /// Free; the slot to be handed out after it, or [`NONE`].
    Vacant(u32),
    Pending(Option<TaskRef>),
    Resolved(Resolved),
    /// The future was dropped; the slot is freed when its result arrives.
    Abandoned,
}

const NONE: u32 = u32::MAX;

/// Slots, and the vacant one that is handed out next.
#[derive(Debug)]
struct Slots {
    slots: Vec<Slot>,
    vacant: u32,
}

impl Slots {
    /// Frees a slot; what was in it.
    fn free(&mut self, slot: u32) -> Slot {
        let was = std::mem::replace(&mut self.slots[slot as usize], Slot::Vacant(self.vacant));
        self.vacant = slot;
        was
    }
}

/// The slots of one engine.
#[derive(Debug)]
pub(super) struct Completions {
    executor: Rc<Executor>,
    slots: RefCell<Slots>,
}

/// Names a pending completion; used once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Token(pub(super) u32);

impl Completions {
    pub(super) fn new(executor: Rc<Executor>) -> Rc<Self> {
        let slots = RefCell::new(Slots { slots: Vec::new(), vacant: NONE });
        Rc::new(Self { executor, slots })
    }

    /// A fresh slot and the future that waits for it.
    #[inline]
    pub(super) fn open(self: &Rc<Self>) -> (Token, Completion) {
        let mut table = self.slots.borrow_mut();
        if table.vacant == NONE {
            table.slots.push(Slot::Vacant(NONE));
            table.vacant = (table.slots.len() - 1) as u32;
        }
        let index = table.vacant;
        let slot = &mut table.slots[index as usize];
        let Slot::Vacant(next) = *slot else { panic!("an open slot is not handed out again") };
        *slot = Slot::Pending(None);
        table.vacant = next;
        (Token(index), Completion(State::Waits { table: self.clone(), slot: index }))
    }

    /// Delivers a result and wakes the task that waits for it.
    #[inline]
    pub(super) fn resolve(&self, token: Token, result: Resolved) {
        let mut table = self.slots.borrow_mut();
        let slot = &mut table.slots[token.0 as usize];
        match *slot {
            Slot::Pending(waiting) => {
                *slot = Slot::Resolved(result);
                if let Some(task) = waiting {
                    self.executor.wake(task);
                }
            }
            Slot::Abandoned => drop(table.free(token.0)),
            Slot::Vacant(_) | Slot::Resolved(_) => panic!("a completion resolves once"),
        }
    }

    /// Takes the result out of a slot that has one, and frees the slot; else notes that the running
    /// task waits for it.
    #[inline]
    fn poll(&self, slot: u32) -> Poll<Resolved> {
        let mut table = self.slots.borrow_mut();
        if let Slot::Pending(waiting) = &mut table.slots[slot as usize] {
            *waiting = Some(self.executor.current());
            return Poll::Pending;
        }
        match table.free(slot) {
            Slot::Resolved(result) => Poll::Ready(result),
            _ => panic!("a live completion owns its slot"),
        }
    }

    /// Frees the slot when its operation ends: the future that waited for it was dropped.
    fn abandon(&self, slot: u32) {
        let mut table = self.slots.borrow_mut();
        match &mut table.slots[slot as usize] {
            Slot::Resolved(_) => drop(table.free(slot)),
            pending => *pending = Slot::Abandoned,
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

    #[inline]
    fn poll(mut self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Self::Output> {
        if let State::Waits { table, slot } = &self.0 {
            let polled = table.poll(*slot);
            if polled.is_ready() {
                self.0 = State::Taken;
            }
            return polled;
        }
        match std::mem::replace(&mut self.0, State::Taken) {
            State::Ready(result) => Poll::Ready(result),
            State::Waits { .. } | State::Taken => panic!("a completion is awaited once"),
        }
    }
}

impl Detached for Completion {}

impl Drop for Completion {
    #[inline(always)]
    fn drop(&mut self) {
        if let State::Waits { table, slot } = &self.0 {
            table.abandon(*slot);
        }
    }
}

/// Resolves when the engine wakes it.
#[derive(Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct Wake(pub(super) Waits);

/// The event that is waited for.
#[derive(Debug)]
pub(super) enum Waits {
    /// Nothing.
    Ready,
    /// The engine's next round.
    Round(SignalWait),
    /// A timer or a doorbell.
    Event(Completion),
}

impl Future for Wake {
    type Output = ();

    #[inline]
    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        match &mut self.0 {
            Waits::Ready => Poll::Ready(()),
            Waits::Round(round) => Pin::new(round).poll(context),
            Waits::Event(event) => Pin::new(event).poll(context).map(|_| ()),
        }
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
        let slots = || table.slots.borrow().slots.len();
        let vacant = || table.slots.borrow().vacant;
        assert_eq!((error, slots()), (FabricError::NoResources, 0));
        let (token, dropped) = table.open();
        drop(dropped);
        assert_eq!(vacant(), NONE, "its result may come yet");
        table.resolve(token, Err(FabricError::Unreachable));
        assert_eq!(vacant(), 0);
        let (token, resolved) = table.open();
        assert_eq!((token, vacant()), (Token(0), NONE));
        table.resolve(token, Err(FabricError::Unreachable));
        drop(resolved);
        assert_eq!((slots(), vacant()), (1, 0));
    }
}
