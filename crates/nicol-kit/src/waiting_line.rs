//! A line of those who wait for the same thing.

use std::cell::Cell;

/// A queue of tasks, first come first served. The owner of the line wakes all waiters, and each
/// then asks whether it is its turn.
#[derive(Debug, Default)]
pub struct WaitingLine {
    /// Those who wait, or have waited.
    joined: Cell<u64>,
    /// Those of them that have been served.
    served: Cell<u64>,
}

/// A place in a line.
#[must_use = "those behind it wait for it"]
#[derive(Debug)]
pub struct LinePlace(u64);

impl WaitingLine {
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.joined.get() == self.served.get()
    }

    /// Takes the place behind all that wait.
    pub fn join(&self) -> LinePlace {
        let place = self.joined.get();
        self.joined.set(place + 1);
        LinePlace(place)
    }

    /// Whether it is the turn of this place.
    pub fn is_first(&self, LinePlace(place): &LinePlace) -> bool {
        self.served.get() == *place
    }

    /// The first place has been served: it is the next one's turn.
    ///
    /// # Panics
    /// If it was not its turn.
    pub fn leave(&self, place: LinePlace) {
        assert!(self.is_first(&place), "whoever leaves a line has been served");
        self.served.set(place.0 + 1);
    }
}
