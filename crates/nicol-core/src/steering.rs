//! The rules by which a running system chooses between two ways of doing the same, and the log of
//! its decisions. From both together every decision can be replayed.
//!
//! Time is cut into *slots*. In the first two slots of each *cycle* all nodes take the first way
//! and then the second, in all others every node takes its current one. What ends in the two is
//! counted by way; when it is enough an *epoch* ends, and its sums are a [`Record`]: from these and
//! the rules alone follows what is decided. A node *in doubt* has shorter cycles: in the beginning,
//! when an epoch has spoken for the other way, and when operations take another time than before.

use serde::{Deserialize, Serialize};

use crate::ids::NodeId;
use crate::units::Nanos;

/// One of two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    First,
    Second,
}

impl Way {
    /// Both, in the order of their [places](Way::place).
    pub const BOTH: [Self; 2] = [Self::First, Self::Second];

    /// The one that it is not.
    pub const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    /// Its index in what is kept by way.
    pub const fn place(self) -> usize {
        match self {
            Self::First => 0,
            Self::Second => 1,
        }
    }
}

/// The rules of a choice, and how files of decisions have them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Steering {
    /// How long a slot is. What ends in its first half is not counted: it began on another way.
    #[serde(rename = "slot_ns")]
    pub slot: Nanos,
    /// Slots of a cycle: at least three.
    pub cycle: u64,
    /// Slots of a cycle in doubt: at least three. Cycles begin together if the other number is a
    /// multiple of this one.
    pub cycle_in_doubt: u64,
    /// An epoch ends when so many operations were counted, on both ways together.
    pub samples: u64,
    /// The other way must have ended so many thousandths more operations in the same time; or about
    /// as many that each took so many thousandths less.
    pub gain_permille: u64,
    /// More epochs must have said so than speak for the current way, which count twice: so many
    /// more at first.
    pub epochs: u64,
    /// With each change it is twice as many, up to these.
    pub epochs_max: u64,
    /// After so many epochs that spoke for no change it is half as many again, down to the first
    /// number.
    pub calm: u64,
    /// Doubt begins when operations on the current way take so many thousandths more or less than
    /// in the epoch before.
    pub doubt_permille: u64,
    /// It ends after so many epochs without a reason.
    pub doubt: u64,
}

impl Steering {
    /// A sixteenth of the time explores, a quarter in doubt, in slots of several times what an
    /// operation takes: assumed.
    pub const DEFAULT: Self = Self {
        slot: Nanos(1 << 18),
        cycle: 16,
        cycle_in_doubt: 4,
        samples: 96,
        gain_permille: 50,
        epochs: 3,
        epochs_max: 24,
        calm: 32,
        doubt_permille: 300,
        doubt: 6,
    };

    /// The way that all nodes try at `now`, if they do.
    pub const fn tried(&self, now: Nanos, in_doubt: bool) -> Option<Way> {
        let cycle = if in_doubt { self.cycle_in_doubt } else { self.cycle };
        match now.0 / self.slot.0 % cycle {
            0 => Some(Way::First),
            1 => Some(Way::Second),
            _ => None,
        }
    }

    /// Does an operation that ends at `now` count for the way that is tried?
    pub const fn counts(&self, now: Nanos) -> bool {
        now.0 % self.slot.0 >= self.slot.0 / 2
    }

    /// The begin of the first cycle that is not under way at `now`.
    pub const fn next_cycle(&self, now: Nanos) -> Nanos {
        Nanos(now.0.next_multiple_of(self.slot.0 * self.cycle_in_doubt))
    }
}

/// An epoch and what was decided at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    pub at: Nanos,
    /// By way: how many operations were counted, in the same time.
    pub samples: [u64; 2],
    /// By way: how long they took together, in nanoseconds.
    pub spent: [u64; 2],
    /// The way from here on.
    pub way: Way,
}

/// The decisions of a node, with their rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decisions {
    /// Whose decisions they are.
    pub node: NodeId,
    pub ways: [&'static str; 2],
    pub steering: Steering,
    /// In their order, from the first.
    pub log: Vec<Record>,
}

/// The decision rule: it knows sums, and nothing of where they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decider {
    steering: Steering,
    way: Way,
    /// How much speaks for the other way.
    better: u64,
    needed: u64,
    /// Epochs lately in which nothing did.
    calm: u64,
    /// Epochs that doubt goes on for.
    doubt: u64,
    /// The sums of the current way in the last epoch: operations, and how long they took together.
    last: (u64, u64),
}

impl Decider {
    /// One that has decided nothing: everything takes the first way.
    pub const fn new(steering: Steering) -> Self {
        Self {
            steering,
            way: Way::First,
            better: 0,
            needed: steering.epochs,
            calm: 0,
            doubt: steering.doubt,
            last: (0, 0),
        }
    }

    pub const fn way(&self) -> Way {
        self.way
    }

    /// Are its cycles short?
    pub const fn is_in_doubt(&self) -> bool {
        self.doubt > 0
    }

    /// The way from here on, after an epoch with these sums.
    pub fn decide(&mut self, samples: [u64; 2], spent: [u64; 2]) -> Way {
        let is_better = self.is_better(samples, spent);
        self.better = if is_better { self.better + 1 } else { self.better.saturating_sub(2) };
        self.calm = if self.better > 0 { 0 } else { self.calm + 1 };
        self.doubt = match is_better || self.has_changed(samples, spent) {
            true => self.steering.doubt,
            false => self.doubt.saturating_sub(1),
        };
        let Steering { epochs, epochs_max, calm, .. } = self.steering;
        if self.better >= self.needed.max(1) {
            (self.way, self.better) = (self.way.other(), 0);
            self.needed = self.needed.saturating_mul(2).min(epochs_max.max(epochs));
        } else if self.calm >= calm {
            self.calm = 0;
            self.needed = (self.needed / 2).max(epochs);
        }
        let place = self.way.place();
        self.last = (samples[place], spent[place]);
        self.way
    }

    /// Do operations on the current way take another time than in the last epoch?
    fn has_changed(&self, samples: [u64; 2], spent: [u64; 2]) -> bool {
        let place = self.way.place();
        // Means, compared without division.
        let now = u128::from(spent[place]) * u128::from(self.last.0);
        let before = u128::from(self.last.1) * u128::from(samples[place]);
        let margin = before.saturating_mul(u128::from(self.steering.doubt_permille)) / 1_000;
        now.abs_diff(before) > margin
    }

    /// Was the other way better? First by how many have ended, which says what all clients together
    /// get. A load that does not depend on how soon answers come ends as many on either: then by
    /// how long one took.
    fn is_better(&self, samples: [u64; 2], spent: [u64; 2]) -> bool {
        let (now, other) = (self.way.place(), self.way.other().place());
        let gain = u128::from(self.steering.gain_permille.min(1_000));
        let more = |of: usize, than: usize| {
            u128::from(samples[of]) * 1_000 > u128::from(samples[than]) * (1_000 + gain)
        };
        // Means, compared without division.
        let cost = |of: usize, by: usize| u128::from(spent[of]) * u128::from(samples[by]);
        let sooner = || {
            cost(other, now).saturating_mul(1_000) < cost(now, other).saturating_mul(1_000 - gain)
        };
        more(other, now) || !more(now, other) && sooner()
    }
}

/// Does a log follow from its sums? Errors: the place of the first record that does not.
pub fn replay(steering: Steering, log: &[Record]) -> Result<(), usize> {
    let mut decider = Decider::new(steering);
    let wrong = log.iter().position(|one| decider.decide(one.samples, one.spent) != one.way);
    wrong.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An epoch in which an operation costs so much: as many end as that leaves time for.
    fn record(decider: &mut Decider, costs: [u64; 2]) -> Record {
        let samples = costs.map(|cost| 10_000 / cost);
        let spent = [samples[0] * costs[0], samples[1] * costs[1]];
        Record { at: Nanos(1), samples, spent, way: decider.decide(samples, spent) }
    }

    #[test]
    fn a_log_replays_and_one_that_was_changed_does_not() {
        let mut decider = Decider::new(Steering::DEFAULT);
        let costs = [[100, 97], [100, 60], [100, 60], [100, 60], [100, 140], [100, 140]];
        let mut log: Vec<Record> = costs.map(|costs| record(&mut decider, costs)).into();
        log.extend([[100, 140]; 4].map(|costs| record(&mut decider, costs)));
        let ways: Vec<Way> = log.iter().map(|one| one.way).collect();
        use Way::{First, Second};
        assert_eq!(ways[..4], [First, First, First, Second], "within the margin first");
        assert_eq!(ways[4..], [Second, Second, Second, Second, Second, First], "twice as many");
        assert_eq!(replay(Steering::DEFAULT, &log), Ok(()));
        let other = Steering { epochs: 4, ..Steering::DEFAULT };
        assert_eq!(replay(other, &log), Err(3), "by other rules");
        log[4].way = First;
        assert_eq!(replay(Steering::DEFAULT, &log), Err(4));
        log[4].way = Second;
        log[2].samples[1] /= 2;
        assert_eq!(replay(Steering::DEFAULT, &log), Err(3), "its sums were changed");
    }

    #[test]
    fn what_must_speak_for_a_change_doubles_with_each_and_halves_in_calm() {
        let mut decider = Decider::new(Steering::DEFAULT);
        let mut until = |costs: [u64; 2]| {
            let before = decider.way();
            (1..100).find(|_| record(&mut decider, costs).way != before)
        };
        let changes = [[100, 60], [60, 100], [100, 60], [60, 100], [100, 60]].map(&mut until);
        assert_eq!(changes, [3, 6, 12, 24, 24].map(Some));
        assert_eq!(until([100, 100]), None, "99 calm epochs");
        assert_eq!(until([60, 100]), Some(3), "it is as at first");
    }

    #[test]
    fn rules_and_sums_of_a_file_may_be_any_numbers() {
        let most = u64::MAX;
        let huge =
            Steering { epochs: most, epochs_max: most, doubt_permille: most, ..Steering::DEFAULT };
        for steering in
            [huge, Steering { epochs: 0, calm: 0, doubt: 0, gain_permille: most, ..huge }]
        {
            let mut decider = Decider::new(steering);
            for sums in [[most, 0], [0, most], [most; 2], [1, most], [0; 2]] {
                decider.decide(sums, [most; 2]);
                decider.decide([most; 2], sums);
            }
        }
    }

    #[test]
    fn rates_speak_first_and_times_where_rates_are_equal() {
        let better = |samples, spent| {
            let steering = Steering { epochs: 1, ..Steering::DEFAULT };
            Decider::new(steering).decide(samples, spent) == Way::Second
        };
        assert!(better([100, 106], [1_000, 5_000]), "more end, though each takes longer");
        assert!(!better([106, 100], [5_000, 1_000]), "fewer end, though each takes less");
        assert!(better([100, 104], [1_000, 900]) && better([104, 100], [1_000, 900]));
        assert!(!better([100, 104], [1_000, 1_020]), "neither");
        assert!(better([0, 96], [0, 1_000]) && !better([96, 0], [1_000, 0]), "one ends nothing");
    }

    #[test]
    fn all_nodes_try_the_ways_at_the_same_time() {
        let steering = Steering { slot: Nanos(100), cycle: 8, ..Steering::DEFAULT };
        use Way::{First, Second};
        for (at, tried, in_doubt, counts) in [
            (0, Some(First), Some(First), false),
            (50, Some(First), Some(First), true),
            (100, Some(Second), Some(Second), false),
            (199, Some(Second), Some(Second), true),
            (200, None, None, false),
            (450, None, Some(First), true),
            (599, None, Some(Second), true),
            (800, Some(First), Some(First), false),
        ] {
            let at = Nanos(at);
            assert_eq!((steering.tried(at, false), steering.tried(at, true)), (tried, in_doubt));
            assert_eq!(steering.counts(at), counts);
        }
        assert_eq!([0, 1, 400].map(|at| steering.next_cycle(Nanos(at)).0), [0, 400, 400]);
    }

    #[test]
    fn doubt_comes_with_a_reason_and_ends_without_one() {
        let mut decider = Decider::new(Steering::DEFAULT);
        let mut epochs = |costs: [u64; 2]| {
            let begins = decider.is_in_doubt();
            record(&mut decider, costs);
            let lasts = (1..100).find(|_| {
                record(&mut decider, costs);
                !decider.is_in_doubt()
            });
            (begins, lasts)
        };
        assert_eq!(epochs([100, 120]), (true, Some(5)), "in the beginning");
        assert_eq!(epochs([110, 132]), (false, Some(1)), "a tenth is none");
        assert_eq!(epochs([200, 240]), (false, Some(6)), "the load has changed");
        assert_eq!(epochs([200, 150]), (false, Some(8)), "until the way is changed, and then some");
    }
}
