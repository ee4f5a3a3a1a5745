//! Which of two ways a get takes: the faster one, until it is so busy that the other is as fast.
//! [OffPath23 4.2 step 3]

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nicol_core::steering::Way;
use nicol_core::units::Nanos;

/// One get in so many takes the way that seems slower, so that it is known when it no longer is.
const PROBE_ONE_IN: u32 = 64;
/// As many gets count in what is expected of a way: few enough to tell soon that it has become
/// busy, and enough for a mean where some values are kept by the SoC and others not.
const COUNTED: u64 = 64;
/// As many gets go both ways by turns at first. A single one might be of a value that the SoC does
/// not keep yet, and would be believed for the next 64.
const TRIALS: u32 = 64;

/// The latencies that the clients of a node expect of either way.
///
/// Alternatives are combined in turn, each until it is saturated. Clients see that of the next one
/// being as fast: below saturation an alternative answers in its own time, and beyond it in that of
/// its queue. Engines share what they have seen: a node's clients ask by one link.
#[derive(Debug, Default)]
pub(super) struct Pace {
    first: Expected,
    second: Expected,
    taken: AtomicU32,
}

/// The time that gets by one way have taken lately. Two engines that add at once may count as one.
#[derive(Debug, Default)]
struct Expected {
    /// The mean, in nanoseconds.
    mean: AtomicU64,
    /// Gets that count in it.
    counted: AtomicU64,
}

impl Expected {
    fn mean(&self) -> u64 {
        self.mean.load(Ordering::Relaxed)
    }

    fn add(&self, time: Nanos) {
        let counted = (self.counted.load(Ordering::Relaxed) + 1).min(COUNTED);
        let was = self.mean();
        self.mean.store(was - was / counted + time.0 / counted, Ordering::Relaxed);
        self.counted.store(counted, Ordering::Relaxed);
    }
}

impl Pace {
    /// The way of the next get.
    pub(super) fn next(&self) -> Way {
        let taken = self.taken.fetch_add(1, Ordering::Relaxed);
        if taken < TRIALS {
            return if taken.is_multiple_of(2) { Way::First } else { Way::Second };
        }
        let second = self.second.mean() < self.first.mean();
        match (second, taken % PROBE_ONE_IN == PROBE_ONE_IN - 1) {
            (false, true) | (true, false) => Way::Second,
            (true, true) | (false, false) => Way::First,
        }
    }

    /// A get by `way` took so long.
    pub(super) fn took(&self, way: Way, time: Nanos) {
        match way {
            Way::First => self.first.add(time),
            Way::Second => self.second.add(time),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets so many gets go whose ways take so long; how many take the second.
    fn by_second(pace: &Pace, all: u32, first_ns: u64, second_ns: u64) -> u32 {
        (0..all)
            .map(|_| {
                let way = pace.next();
                pace.took(way, Nanos(if way == Way::First { first_ns } else { second_ns }));
                u32::from(way == Way::Second)
            })
            .sum()
    }

    #[test]
    fn the_faster_way_is_taken_and_the_other_one_looked_at() {
        let pace = Pace::default();
        by_second(&pace, 640, 5_000, 9_000);
        assert_eq!(by_second(&pace, 640, 5_000, 9_000), 10, "the first is faster");
        by_second(&pace, 640, 20_000, 9_000);
        assert_eq!(by_second(&pace, 640, 20_000, 9_000), 630, "it is no longer");
    }

    #[test]
    fn both_are_tried_at_first_and_one_slow_one_decides_nothing() {
        let pace = Pace::default();
        assert_eq!((pace.next(), pace.next()), (Way::First, Way::Second));
        pace.took(Way::First, Nanos(5_000));
        pace.took(Way::Second, Nanos(20_000));
        assert_eq!(by_second(&pace, TRIALS - 2, 5_000, 3_000), TRIALS / 2 - 1);
        assert!(by_second(&pace, 64, 5_000, 3_000) > 62, "its mean is below that of the first");
    }
}
