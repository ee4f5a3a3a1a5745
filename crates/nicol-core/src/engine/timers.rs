//! An engine's timers.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::World;
use super::completions::Token;
use crate::fabric::RequestId;
use crate::units::Nanos;

/// The action of a timer that is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    Wake(Token),
    Retransmit { slot: u16, sequence: u32 },
    GiveUp { slot: u16, sequence: u32 },
}

impl Timer {
    /// Looks whether a request must be sent again.
    pub(super) const fn retransmit(RequestId { slot, sequence }: RequestId) -> Self {
        Self::Retransmit { slot, sequence }
    }

    /// Gives up a request.
    pub(super) const fn give_up(RequestId { slot, sequence }: RequestId) -> Self {
        Self::GiveUp { slot, sequence }
    }
}

/// The timers that are set, the earliest first, and those of one instant in the order of setting.
#[derive(Debug, Default)]
pub(super) struct Timers {
    set: RefCell<BinaryHeap<Reverse<(Nanos, u64, Timer)>>>,
    order: Cell<u64>,
}

impl Timers {
    /// Sets a timer, and asks the world for a round at that time.
    pub(super) fn set(&self, world: &impl World, deadline: Nanos, timer: Timer) {
        let order = self.order.get();
        self.order.set(order + 1);
        self.set.borrow_mut().push(Reverse((deadline, order, timer)));
        world.wake_at(deadline);
    }

    pub(super) fn are_none(&self) -> bool {
        self.set.borrow().is_empty()
    }

    /// When the earliest is due.
    pub(super) fn earliest(&self) -> Option<Nanos> {
        self.set.borrow().peek().map(|Reverse((deadline, ..))| *deadline)
    }

    /// Takes the earliest if it is due at `now`; if it is not, asks the world for a round when it
    /// is.
    pub(super) fn take_due(&self, world: &impl World, now: Nanos) -> Option<Timer> {
        let mut set = self.set.borrow_mut();
        let Reverse((deadline, ..)) = *set.peek()?;
        if deadline > now {
            world.wake_at(deadline);
            return None;
        }
        set.pop().map(|Reverse((.., timer))| timer)
    }
}
