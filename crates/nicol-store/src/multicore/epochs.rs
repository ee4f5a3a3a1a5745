//! Epochs: a record that was removed from its index is freed once no transaction can still read it.

use std::sync::atomic::{AtomicU64, Ordering, fence};

use super::Line;

/// The announcement of a core that runs no transaction.
const IDLE: u64 = u64::MAX;

/// The epoch of the store, and the epoch in which each core has begun what it runs.
#[derive(Debug)]
pub struct Epochs {
    global: Line<AtomicU64>,
    cores: Box<[Line<AtomicU64>]>,
}

impl Epochs {
    pub(super) fn new(cores: usize) -> Self {
        let idle = |_| Line(AtomicU64::new(IDLE));
        Self { global: Line(AtomicU64::new(1)), cores: (0..cores).map(idle).collect() }
    }

    /// The epoch.
    pub fn now(&self) -> u64 {
        self.global.0.load(Ordering::SeqCst)
    }

    /// `core` begins to look at records: from now on nothing is freed that it may find.
    pub fn enter(&self, core: usize) -> u64 {
        loop {
            let now = self.now();
            // The announcement comes before whatever is read next, and is of the epoch that others
            // see: an epoch that has moved on meanwhile is announced again.
            self.cores[core].0.store(now, Ordering::Release);
            fence(Ordering::SeqCst);
            if self.now() == now {
                return now;
            }
        }
    }

    /// The epoch of what was just taken out of an index: every core that enters a later one misses
    /// it there. It is freed when the [oldest](Epochs::oldest) is later than that.
    pub fn of_removal(&self) -> u64 {
        // Without it the removal may be seen by others only after the epoch is read here, and a
        // core in a later one finds what is then freed. It pairs with the one in `enter`.
        fence(Ordering::SeqCst);
        self.now()
    }

    /// `core` looks at nothing any more.
    pub fn leave(&self, core: usize) {
        self.cores[core].0.store(IDLE, Ordering::Release);
    }

    /// The oldest epoch in which a core is; the present one if all are idle.
    pub fn oldest(&self) -> u64 {
        let now = self.now();
        self.cores.iter().map(|core| core.0.load(Ordering::SeqCst)).fold(now, u64::min)
    }

    /// Moves the epoch on if no core is in an earlier one. Returns the epoch.
    pub fn advance(&self) -> u64 {
        let now = self.now();
        if self.oldest() == now {
            // Another core may have done it: the epoch moves on once.
            let _ =
                self.global.0.compare_exchange(now, now + 1, Ordering::SeqCst, Ordering::Relaxed);
        }
        self.now()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_epoch_waits_for_whoever_is_in_an_earlier_one() {
        let epochs = Epochs::new(3);
        let first = epochs.enter(0);
        assert_eq!(epochs.advance(), first + 1);
        assert_eq!((epochs.advance(), epochs.oldest()), (first + 1, first));
        assert_eq!(epochs.enter(1), first + 1);
        epochs.leave(0);
        assert_eq!((epochs.oldest(), epochs.advance()), (first + 1, first + 2));
        epochs.leave(1);
        assert_eq!(epochs.oldest(), first + 2);
    }
}
