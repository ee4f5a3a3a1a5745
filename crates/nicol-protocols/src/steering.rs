//! Choosing between two ways of doing the same at run time, by what each has cost lately.
//!
//! Most operations take the current way; one in some explores the other, and one in as many is a
//! sample of the current one. When both have been sampled often enough, an *epoch* ends and its sums
//! are a [`Record`]: from its sums alone follows what is decided, so a log of records can be replayed.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nicol_core::system::Counter;
use nicol_core::units::Nanos;

/// One of two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// The first.
    First,
    /// The other.
    Second,
}

impl Way {
    const fn other(self) -> Self {
        match self {
            Self::First => Self::Second,
            Self::Second => Self::First,
        }
    }

    const fn place(self) -> usize {
        match self {
            Self::First => 0,
            Self::Second => 1,
        }
    }
}

/// How a choice is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steering {
    /// One operation in so many explores.
    pub explore_one_in: u64,
    /// An epoch ends when either way has been sampled so often.
    pub samples: u64,
    /// The other way must have cost so many thousandths less.
    pub gain_permille: u64,
    /// For so many epochs in a row.
    pub epochs: u64,
}

impl Steering {
    /// A little exploration, and enough samples that chance does not decide: both assumed.
    pub const DEFAULT: Self =
        Self { explore_one_in: 32, samples: 16, gain_permille: 50, epochs: 2 };
}

/// An epoch and what was decided at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// When it ended.
    pub at: Nanos,
    /// By way: how many operations were sampled, and how long they took together.
    pub samples: [u64; 2],
    /// In nanoseconds.
    pub spent: [u64; 2],
    /// The way from here on.
    pub way: Way,
}

/// Records that are kept; later ones are counted only.
pub const RECORDS_MAX: usize = 4_096;

/// What decides: it knows sums, and nothing of where they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Decider {
    steering: Steering,
    way: Way,
    /// Epochs in a row in which the other way was better.
    better: u64,
}

impl Decider {
    const fn new(steering: Steering) -> Self {
        Self { steering, way: Way::First, better: 0 }
    }

    /// The way from here on, after an epoch with these sums.
    fn decide(&mut self, samples: [u64; 2], spent: [u64; 2]) -> Way {
        let (now, other) = (self.way.place(), self.way.other().place());
        // Means, compared without division.
        let cost = |of: usize, by: usize| u128::from(spent[of]) * u128::from(samples[by]);
        let gain = u128::from(1_000 - self.steering.gain_permille.min(1_000));
        let is_better = cost(other, now) * 1_000 < cost(now, other) * gain;
        self.better = if is_better { self.better + 1 } else { 0 };
        if self.better >= self.steering.epochs {
            (self.way, self.better) = (self.way.other(), 0);
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

#[derive(Debug)]
struct State {
    decider: Decider,
    turn: u64,
    samples: [u64; 2],
    spent: [u64; 2],
    log: Vec<Record>,
    epochs: u64,
    switches: u64,
}

/// A choice that the engines of one side share.
#[derive(Debug)]
pub(crate) struct Choice {
    steering: Steering,
    state: Mutex<State>,
}

/// An operation's way, to be handed back with what it took.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    pub(crate) way: Way,
    is_sample: bool,
}

impl Choice {
    pub(crate) fn new(steering: Steering) -> Self {
        let state = State {
            decider: Decider::new(steering),
            turn: 0,
            samples: [0; 2],
            spent: [0; 2],
            log: Vec::new(),
            epochs: 0,
            switches: 0,
        };
        Self { steering, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The way of the next operation.
    pub(crate) fn take(&self) -> Taken {
        let mut state = self.state();
        state.turn += 1;
        let way = state.decider.way;
        match state.turn % self.steering.explore_one_in.max(2) {
            0 => Taken { way: way.other(), is_sample: true },
            1 => Taken { way, is_sample: true },
            _ => Taken { way, is_sample: false },
        }
    }

    /// An operation has ended at `now` after `took`.
    pub(crate) fn ended(&self, taken: Taken, took: Nanos, now: Nanos) {
        if !taken.is_sample {
            return;
        }
        let state = &mut *self.state();
        let place = taken.way.place();
        state.samples[place] += 1;
        state.spent[place] += took.0;
        if state.samples.iter().any(|samples| *samples < self.steering.samples) {
            return;
        }
        let before = state.decider.way;
        let (samples, spent) = (state.samples, state.spent);
        let way = state.decider.decide(samples, spent);
        state.switches += u64::from(way != before);
        state.epochs += 1;
        if state.log.len() < RECORDS_MAX {
            state.log.push(Record { at: now, samples, spent, way });
        }
        (state.samples, state.spent) = ([0; 2], [0; 2]);
    }

    /// What was decided so far.
    pub(crate) fn log(&self) -> Vec<Record> {
        self.state().log.clone()
    }

    /// For reports: epochs so far, and how often another way was chosen.
    pub(crate) fn counters(&self) -> [Counter; 2] {
        let state = self.state();
        let counter = |name, value| Counter { group: "planner", name, value };
        [counter("epochs", state.epochs), counter("switches", state.switches)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(choice: &Choice) -> (u64, u64) {
        let [epochs, switches] = choice.counters();
        (epochs.value, switches.value)
    }

    /// Runs `count` operations whose ways cost so much; how many took the second.
    fn run(choice: &Choice, costs: [u64; 2], count: u64) -> u64 {
        let mut second = 0;
        for at in 0..count {
            let taken = choice.take();
            second += u64::from(taken.way == Way::Second);
            choice.ended(taken, Nanos(costs[taken.way.place()]), Nanos(at));
        }
        second
    }

    #[test]
    fn it_goes_where_it_is_cheaper_stays_within_the_margin_and_comes_back() {
        let choice = Choice::new(Steering::DEFAULT);
        const COUNT: u64 = 300 * Steering::DEFAULT.explore_one_in;
        let explored = 300;
        assert_eq!(run(&choice, [100, 150], COUNT), explored);
        assert_eq!(run(&choice, [100, 97], COUNT), explored, "within the margin");
        assert!(run(&choice, [100, 60], COUNT) > COUNT * 8 / 10);
        assert!(run(&choice, [100, 140], COUNT) < COUNT * 2 / 10);
        let (epochs, switches) = counts(&choice);
        assert!(switches == 2 && epochs > 50, "{epochs} {switches}");
    }

    #[test]
    fn a_single_bad_epoch_changes_nothing() {
        let choice = Choice::new(Steering::DEFAULT);
        let epoch = Steering::DEFAULT.samples * Steering::DEFAULT.explore_one_in;
        run(&choice, [100, 50], epoch);
        assert_eq!(counts(&choice), (1, 0));
        run(&choice, [100, 150], epoch);
        assert_eq!(counts(&choice), (2, 0));
    }

    #[test]
    fn a_log_replays_and_one_that_was_changed_does_not() {
        let choice = Choice::new(Steering::DEFAULT);
        run(&choice, [100, 60], 5_000);
        run(&choice, [100, 140], 5_000);
        let mut log = choice.log();
        assert!(log.iter().any(|one| one.way == Way::Second));
        assert_eq!(replay(Steering::DEFAULT, &log), Ok(()));
        let changed = log.len() / 2;
        log[changed].way = log[changed].way.other();
        assert_eq!(replay(Steering::DEFAULT, &log), Err(changed));
        let other = Steering { epochs: 40, ..Steering::DEFAULT };
        assert!(replay(other, &choice.log()).is_err(), "by other rules");
    }
}
