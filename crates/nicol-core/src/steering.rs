//! The rules by which a running system chooses between two ways of doing the same, and the log of
//! its decisions. From both together every decision can be replayed.
//!
//! Nearly all operations take the current way. From time to time a run of operations takes the
//! other way: a *trial*. When it is over an *epoch* ends, and its sums are a [`Record`]: from these
//! and the rules alone follows what is decided.

use crate::ids::NodeId;
use crate::units::Nanos;

/// One of two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The first.
    First,
    /// The other.
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

/// The rules of a choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// Operations in a row that try the other way. The first half of them is not counted: what is
    /// under way meanwhile still took the current one.
    pub trial: u64,
    /// Operations from the end of a trial to the next one, unless that one has spoken for a change:
    /// then the next follows after as many as a trial has.
    pub between: u64,
    /// The other way must have cost so many thousandths less.
    pub gain_permille: u64,
    /// More epochs must have said so than speak for the current way, which count twice: so many
    /// more at first.
    pub epochs: u64,
    /// With each change it is twice as many, up to these.
    pub epochs_max: u64,
    /// After so many epochs without a doubt it is half as many again, down to the first number.
    pub calm: u64,
}

impl Steering {
    /// A thirty-second of all operations explores, in trials of several times what a node's clients
    /// have under way: assumed.
    pub const DEFAULT: Self =
        Self { trial: 48, between: 1_488, gain_permille: 50, epochs: 3, epochs_max: 24, calm: 32 };
}

/// An epoch and what was decided at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it ended.
    pub at: Nanos,
    /// By way: how many operations were counted, and how long they took together. Of those of a
    /// trial the fastest and the slowest quarter are left out.
    pub samples: [u64; 2],
    /// In nanoseconds.
    pub spent: [u64; 2],
    /// The way from here on.
    pub way: Way,
}

/// What a node has decided, and by which rules.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decisions {
    /// Whose decisions they are.
    pub node: NodeId,
    /// What the ways are called.
    pub ways: [&'static str; 2],
    /// The rules.
    pub steering: Steering,
    /// In their order, from the first.
    pub log: Vec<Record>,
}

/// What decides: it knows sums, and nothing of where they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decider {
    steering: Steering,
    way: Way,
    /// How much speaks for the other way.
    better: u64,
    /// How much must.
    needed: u64,
    /// Epochs lately in which nothing did.
    calm: u64,
}

impl Decider {
    /// One that has decided nothing: everything takes the first way.
    pub const fn new(steering: Steering) -> Self {
        Self { steering, way: Way::First, better: 0, needed: steering.epochs, calm: 0 }
    }

    /// The current way.
    pub const fn way(&self) -> Way {
        self.way
    }

    /// Has the last epoch spoken for a change that is not made yet?
    pub const fn is_in_doubt(&self) -> bool {
        self.better > 0
    }

    /// The way from here on, after an epoch with these sums.
    pub fn decide(&mut self, samples: [u64; 2], spent: [u64; 2]) -> Way {
        let (now, other) = (self.way.place(), self.way.other().place());
        // Means, compared without division.
        let cost = |of: usize, by: usize| u128::from(spent[of]) * u128::from(samples[by]);
        let gain = u128::from(1_000 - self.steering.gain_permille.min(1_000));
        let is_better = cost(other, now) * 1_000 < cost(now, other) * gain;
        self.better = if is_better { self.better + 1 } else { self.better.saturating_sub(2) };
        self.calm = if self.better > 0 { 0 } else { self.calm + 1 };
        let Steering { epochs, epochs_max, calm, .. } = self.steering;
        if self.better >= self.needed.max(1) {
            (self.way, self.better) = (self.way.other(), 0);
            self.needed = (self.needed * 2).min(epochs_max.max(epochs));
        } else if self.calm >= calm {
            self.calm = 0;
            self.needed = (self.needed / 2).max(epochs);
        }
        self.way
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

    fn record(decider: &mut Decider, costs: [u64; 2]) -> Record {
        let (samples, spent) = ([40, 32], [40 * costs[0], 32 * costs[1]]);
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
        log[2].spent[1] *= 2;
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
}
