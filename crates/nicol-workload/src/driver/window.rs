//! How many operations the clients of one engine have under way at a time: all of them, and fewer
//! while most attempts abort.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use nicol_core::exec::Signal;

/// While an epoch has more aborts than other ends, the window loses this part.
const SHRINKS_BY: u32 = 4;

/// A congestion window over operations: it grows by one and shrinks by a quarter.
///
/// Clients that contend for the same records add aborts, not throughput, once more of them are
/// under way than the records can serve; and every abort costs as much as a commit. An epoch is as
/// many attempts as the window is wide. Behind one with more aborts than other ends the window
/// shrinks, behind any other it grows, up to the number of clients: without contention it is never
/// felt.
///
/// Operations enter in the order in which they asked, and stay until they end, however often they
/// are retried: so an operation that has aborted does not compete with more and more new ones.
#[derive(Debug)]
pub(super) struct Window {
    width: Cell<u32>,
    clients: u32,
    adapts: bool,
    under_way: Cell<u32>,
    /// Attempts of this epoch that aborted, and that ended in another way.
    aborted: Cell<u32>,
    others: Cell<u32>,
    /// The waiting operations, in the order of asking.
    waiting: RefCell<VecDeque<Signal>>,
}

impl Window {
    /// A window as wide as there are `clients`, which stays so unless it `adapts`.
    pub(super) fn new(clients: u32, adapts: bool) -> Rc<Self> {
        Rc::new(Self {
            width: Cell::new(clients),
            clients,
            adapts,
            under_way: Cell::new(0),
            aborted: Cell::new(0),
            others: Cell::new(0),
            waiting: RefCell::new(VecDeque::with_capacity(clients as usize)),
        })
    }

    /// True if there is a permit for which no other operation waits.
    pub(super) fn has_permit(&self) -> bool {
        self.under_way.get() < self.width.get()
    }

    /// Waits for a permit, and takes it. `turn` is a signal of the caller's own.
    pub(super) async fn enter(self: &Rc<Self>, turn: &Signal) -> Permit {
        if self.has_permit() {
            self.under_way.set(self.under_way.get() + 1);
        } else {
            let granted = turn.wait();
            self.waiting.borrow_mut().push_back(turn.clone());
            // `admit` takes the permit for it, so that no other operation comes in between.
            granted.await;
        }
        Permit(self.clone())
    }

    /// Notes how an attempt ended; at the end of an epoch the window adapts.
    pub(super) fn attempted(&self, aborted: bool) {
        if !self.adapts {
            return;
        }
        let counter = if aborted { &self.aborted } else { &self.others };
        counter.set(counter.get() + 1);
        let (aborted, others) = (self.aborted.get(), self.others.get());
        let width = self.width.get();
        if aborted + others < width {
            return;
        }
        self.aborted.set(0);
        self.others.set(0);
        self.width.set(match aborted > others {
            true => (width - width.div_ceil(SHRINKS_BY)).max(1),
            false => (width + 1).min(self.clients),
        });
        self.admit();
    }

    /// Gives permits to the operations that have waited longest, while there are any.
    fn admit(&self) {
        while self.has_permit() {
            let Some(next) = self.waiting.borrow_mut().pop_front() else { return };
            self.under_way.set(self.under_way.get() + 1);
            next.notify();
        }
    }
}

/// A permit of the window: an operation holds it from before its first attempt to its end.
#[derive(Debug)]
#[must_use = "dropping it lets another operation in"]
pub(super) struct Permit(Rc<Window>);

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.under_way.set(self.0.under_way.get() - 1);
        self.0.admit();
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::fabric::Local;
    use nicol_core::units::Nanos;
    use nicol_core::view::View;

    use super::*;
    use crate::fake::FakeEngine;

    /// Ends `epochs` epochs in which every attempt aborts, or none.
    fn epochs(window: &Window, epochs: u32, aborted: bool) {
        for _ in 0..epochs {
            (0..window.width.get()).for_each(|_| window.attempted(aborted));
        }
    }

    #[test]
    fn it_shrinks_by_a_quarter_to_one_and_grows_by_one_to_the_number_of_clients() {
        let window = Window::new(64, true);
        let mut widths = Vec::new();
        for _ in 0..12 {
            epochs(&window, 1, true);
            widths.push(window.width.get());
        }
        assert_eq!(widths, [48, 36, 27, 20, 15, 11, 8, 6, 4, 3, 2, 1]);
        epochs(&window, 3, true);
        assert_eq!(window.width.get(), 1, "one is always let in");
        epochs(&window, 5, false);
        assert_eq!(window.width.get(), 6);
        epochs(&window, 1_000, false);
        assert_eq!(window.width.get(), 64);
    }

    #[test]
    fn as_many_aborts_as_other_ends_are_not_too_many() {
        let window = Window::new(8, true);
        for _ in 0..100 {
            window.attempted(true);
            window.attempted(false);
        }
        assert_eq!(window.width.get(), 8);
    }

    #[test]
    fn one_that_does_not_adapt_stays_as_wide_as_there_are_clients() {
        let window = Window::new(8, false);
        epochs(&window, 100, true);
        assert_eq!(window.width.get(), 8);
    }

    #[test]
    fn operations_enter_in_the_order_of_asking_and_as_many_as_there_are_places() {
        let fabric = FakeEngine::new(View::new(1, 1, 1, 1).unwrap());
        let window = Window::new(5, true);
        epochs(&window, 2, true);
        assert_eq!(window.width.get(), 2);
        let entered = Rc::new(RefCell::new(Vec::new()));
        for client in 0..5 {
            let (fabric, window, entered) = (fabric.clone(), window.clone(), entered.clone());
            fabric.clone().spawn(async move {
                let _place = window.enter(&fabric.signal()).await;
                assert!(window.under_way.get() <= 2, "no more than it is wide");
                entered.borrow_mut().push((client, fabric.now()));
                fabric.sleep_until(Nanos(10) + fabric.now()).await;
            });
        }
        fabric.run_until(Nanos(1_000));
        let at = |client, nanos| (client, Nanos(nanos));
        assert_eq!(*entered.borrow(), [at(0, 0), at(1, 0), at(2, 10), at(3, 10), at(4, 20)]);
        assert_eq!(window.under_way.get(), 0, "every place is given back");
    }

    #[test]
    fn a_window_that_grows_lets_in_who_waits() {
        let fabric = FakeEngine::new(View::new(1, 1, 1, 1).unwrap());
        let window = Window::new(2, true);
        epochs(&window, 1, true);
        let entered = Rc::new(Cell::new(0));
        for _ in 0..2 {
            let (fabric, window, entered) = (fabric.clone(), window.clone(), entered.clone());
            fabric.clone().spawn(async move {
                let _place = window.enter(&fabric.signal()).await;
                entered.set(entered.get() + 1);
                fabric.sleep_until(Nanos(1_000)).await;
            });
        }
        fabric.run_until(Nanos(1));
        assert_eq!(entered.get(), 1);
        window.attempted(false);
        fabric.run_until(Nanos(2));
        assert_eq!(entered.get(), 2);
    }
}
