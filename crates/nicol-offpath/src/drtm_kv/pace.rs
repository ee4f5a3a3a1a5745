//! Which of two ways a get takes: the faster one, until it is so busy that the other is as fast.
//! [OffPath23 4.2 step 3]

use std::cell::Cell;

use nicol_core::units::Nanos;

/// One get in so many takes the way that seems slower, so that it is known when it no longer is.
const PROBE_ONE_IN: u32 = 64;
/// A time counts for this part of what is expected of a way: a few gets tell that it has become
/// busy.
const WEIGHT: u64 = 8;

/// A way of a get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GetWay {
    /// READs by the client (A4).
    Read,
    /// The SoC is asked (A5).
    Ask,
}

/// What a client engine expects of either way.
///
/// Alternatives are combined in turn, each until it is saturated. A client sees that of the next
/// one being as fast: below saturation an alternative answers in its own time, and beyond it in
/// that of its queue.
#[derive(Debug, Default)]
pub(super) struct Pace {
    /// Mean times, in nanoseconds; 0: not known.
    read: Cell<u64>,
    ask: Cell<u64>,
    gets: Cell<u32>,
}

impl Pace {
    /// The way of the next get.
    pub(super) fn next(&self) -> GetWay {
        let gets = self.gets.get();
        self.gets.set(gets.wrapping_add(1));
        let faster = if self.ask.get() < self.read.get() { GetWay::Ask } else { GetWay::Read };
        match (faster, gets % PROBE_ONE_IN == PROBE_ONE_IN - 1) {
            (GetWay::Read, true) => GetWay::Ask,
            (GetWay::Ask, true) => GetWay::Read,
            (faster, false) => faster,
        }
    }

    /// A get by `way` took so long.
    pub(super) fn took(&self, way: GetWay, time: Nanos) {
        let mean = match way {
            GetWay::Read => &self.read,
            GetWay::Ask => &self.ask,
        };
        let was = mean.get();
        let is = if was == 0 { time.0 } else { was - was / WEIGHT + time.0 / WEIGHT };
        mean.set(is.max(1));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes so many gets whose ways take so long; how many ask.
    fn asked(pace: &Pace, gets: u32, read_ns: u64, ask_ns: u64) -> u32 {
        (0..gets)
            .map(|_| {
                let way = pace.next();
                pace.took(way, Nanos(if way == GetWay::Read { read_ns } else { ask_ns }));
                u32::from(way == GetWay::Ask)
            })
            .sum()
    }

    #[test]
    fn the_faster_way_is_taken_and_the_other_one_looked_at() {
        let pace = Pace::default();
        asked(&pace, 200, 5_000, 9_000);
        assert_eq!(asked(&pace, 640, 5_000, 9_000), 10, "READs are faster");
        asked(&pace, 2_000, 20_000, 9_000);
        assert_eq!(asked(&pace, 640, 20_000, 9_000), 630, "they are no longer");
    }

    #[test]
    fn the_first_gets_try_both() {
        let pace = Pace::default();
        assert_eq!(pace.next(), GetWay::Read);
        pace.took(GetWay::Read, Nanos(5_000));
        assert_eq!(pace.next(), GetWay::Ask, "of which nothing is known");
    }
}
