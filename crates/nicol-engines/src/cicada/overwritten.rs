//! Which versions of records a core has overwritten: they are freed once no transaction can see
//! them.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use nicol_core::ids::Key;
use nicol_store::multicore::Place;

/// A record of which a core has overwritten a version.
#[derive(Clone, Copy, Debug)]
struct Noted {
    timestamp: u64,
    key: Key,
    /// Where the record stands; none if that was found in another epoch: it may stand there no
    /// more.
    place: Place,
}

/// The versions that a core has overwritten.
#[derive(Debug, Default)]
pub struct Overwritten {
    /// The epoch in which records were found, so that they are there as long as the core is in it.
    epoch: Cell<u64>,
    records: RefCell<VecDeque<Noted>>,
    /// Transactions up to this timestamp had ended when the first one began that is under way.
    horizon: Cell<u64>,
}

impl Overwritten {
    /// The core is in `epoch`.
    pub(super) fn enter(&self, epoch: u64) {
        if self.epoch.replace(epoch) != epoch {
            self.records.borrow_mut().iter_mut().for_each(|noted| noted.place = Place::NONE);
        }
    }

    /// A version of the record of `key` at `place` was overwritten by one of `timestamp`.
    pub(super) fn note(&self, timestamp: u64, (key, place): (Key, Place)) {
        self.records.borrow_mut().push_back(Noted { timestamp, key, place });
    }

    /// The next of them that was overwritten before the horizon, and where it stands, or none.
    pub(super) fn next(&self) -> Option<(Key, Place)> {
        let over = |noted: &mut Noted| noted.timestamp <= self.horizon.get();
        self.records.borrow_mut().pop_front_if(over).map(|noted| (noted.key, noted.place))
    }

    pub(super) fn see(&self, horizon: u64) {
        self.horizon.set(horizon);
    }

    /// As far as the core has seen it.
    pub(super) const fn horizon(&self) -> u64 {
        self.horizon.get()
    }
}
