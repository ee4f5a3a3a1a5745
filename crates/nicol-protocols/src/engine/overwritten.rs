//! Which versions of records a core has overwritten, in an engine that keeps several: they are
//! freed once no transaction can see them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use nicol_store::multicore::Place;

/// What a core has overwritten.
#[derive(Debug, Default)]
pub(super) struct Overwritten {
    /// The epoch in which the records were found, so that they are there as long as the core is in
    /// it.
    epoch: Cell<u64>,
    /// At which timestamp, and of which record, in the order of the timestamps.
    records: RefCell<VecDeque<(u64, Place)>>,
    /// Transactions up to this timestamp had ended when the first one began that is under way.
    horizon: Cell<u64>,
}

impl Overwritten {
    /// The core is in `epoch`. What it has noted in another one it forgets: whoever overwrites
    /// those records next frees more.
    pub(super) fn enter(&self, epoch: u64) {
        if self.epoch.replace(epoch) != epoch {
            self.records.borrow_mut().clear();
        }
    }

    /// A version of the record at `place` was overwritten by one of `timestamp`.
    pub(super) fn note(&self, timestamp: u64, place: Place) {
        self.records.borrow_mut().push_back((timestamp, place));
    }

    /// The next of them that was overwritten before the horizon.
    pub(super) fn next(&self) -> Option<Place> {
        let over = |(timestamp, _): &mut (u64, Place)| *timestamp <= self.horizon.get();
        self.records.borrow_mut().pop_front_if(over).map(|(_, place)| place)
    }

    /// Moves the horizon.
    pub(super) fn see(&self, horizon: u64) {
        self.horizon.set(horizon);
    }

    /// As far as the core has seen it.
    pub(super) const fn horizon(&self) -> u64 {
        self.horizon.get()
    }
}
