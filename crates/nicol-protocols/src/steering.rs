//! Choosing between two ways of doing the same at run time, by what each has cost lately: who
//! counts, for the rules of [`nicol_core::steering`].
//!
//! The other way is tried by all operations of a node for a while, not by one in some: what an
//! operation costs depends on the load that the others make where they are. A core that all keep
//! busy is no recommendation for the way that one of them found it free on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use nicol_core::ids::NodeId;
use nicol_core::steering::{Decider, Decisions, Record, Steering, Way};
use nicol_core::system::Counter;
use nicol_core::units::Nanos;

/// Records that are kept; later ones are counted only.
pub const RECORDS_MAX: usize = 4_096;

/// What the operations do that are taken now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// They take the current way: so many until the trial, of which the last ones are counted.
    Current,
    /// They try the other one.
    Trial,
    /// They take the current way, until those that are counted have ended.
    Ending,
}

#[derive(Debug)]
struct State {
    decider: Decider,
    phase: Phase,
    /// Operations of this phase that were taken.
    taken: u64,
    /// That the phase has.
    length: u64,
    /// Of this epoch: operations that are counted and have not ended.
    under_way: u64,
    /// By way: how long each took that has.
    took: [Vec<u64>; 2],
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
    /// The epoch that counts it, if one does.
    counted_in: Option<u64>,
}

impl Choice {
    pub(crate) fn new(steering: Steering) -> Self {
        let steering = Steering { trial: steering.trial.max(2), ..steering };
        let state = State {
            decider: Decider::new(steering),
            phase: Phase::Current,
            taken: 0,
            length: steering.trial,
            under_way: 0,
            took: Default::default(),
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
        let state = &mut *self.state();
        if state.taken == state.length {
            (state.phase, state.taken) = match state.phase {
                Phase::Current => (Phase::Trial, 0),
                Phase::Trial | Phase::Ending => (Phase::Ending, 0),
            };
            state.length = self.steering.trial;
        }
        state.taken += 1;
        // The second half of a trial's operations, and as many before it.
        let counts =
            state.phase != Phase::Ending && state.length - state.taken < self.steering.trial / 2;
        state.under_way += u64::from(counts);
        let current = state.decider.way();
        let way = if state.phase == Phase::Trial { current.other() } else { current };
        Taken { way, counted_in: counts.then_some(state.epochs) }
    }

    /// An operation has ended at `now` after `took`.
    pub(crate) fn ended(&self, taken: Taken, took: Nanos, now: Nanos) {
        let state = &mut *self.state();
        if taken.counted_in != Some(state.epochs) {
            return;
        }
        state.under_way -= 1;
        state.took[taken.way.place()].push(took.0);
        let all_taken = match state.phase {
            Phase::Current => false,
            Phase::Trial => state.taken == state.length,
            Phase::Ending => true,
        };
        if all_taken && state.under_way == 0 {
            self.end_epoch(state, now);
        }
    }

    fn end_epoch(&self, state: &mut State, now: Nanos) {
        let before = state.decider.way();
        let (mut samples, mut spent) = ([0; 2], [0; 2]);
        for (place, took) in state.took.iter_mut().enumerate() {
            // One that the machine has interrupted, or that has met an idle moment, says little.
            took.sort_unstable();
            let kept = &took[took.len() / 4..took.len() - took.len() / 4];
            (samples[place], spent[place]) = (kept.len() as u64, kept.iter().sum());
            took.clear();
        }
        let way = state.decider.decide(samples, spent);
        state.switches += u64::from(way != before);
        state.epochs += 1;
        if state.log.len() < RECORDS_MAX {
            state.log.push(Record { at: now, samples, spent, way });
        }
        state.under_way = 0;
        let soon = state.decider.is_in_doubt();
        (state.phase, state.taken) = (Phase::Current, 0);
        state.length = self.steering.trial + if soon { 0 } else { self.steering.between };
    }

    /// What `node` has decided so far, whose ways are called so.
    pub(crate) fn decisions(&self, node: NodeId, ways: [&'static str; 2]) -> Decisions {
        Decisions { node, ways, steering: self.steering, log: self.state().log.clone() }
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
    use nicol_core::steering::replay;

    use super::*;

    fn counts(choice: &Choice) -> (u64, u64) {
        let [epochs, switches] = choice.counters();
        (epochs.value, switches.value)
    }

    /// Runs `count` operations, `together` at a time, whose ways cost so much; how many took the
    /// second.
    fn run(choice: &Choice, together: usize, costs: [u64; 2], count: u64) -> u64 {
        let mut second = 0;
        let mut open = std::collections::VecDeque::new();
        for at in 0..count {
            let taken = choice.take();
            second += u64::from(taken.way == Way::Second);
            open.push_back(taken);
            if open.len() == together || at + 1 == count {
                for taken in open.drain(..) {
                    choice.ended(taken, Nanos(costs[taken.way.place()]), Nanos(at));
                }
            }
        }
        second
    }

    #[test]
    fn it_goes_where_it_is_cheaper_stays_within_the_margin_and_comes_back() {
        for together in [1, 8, 50] {
            let choice = Choice::new(Steering::DEFAULT);
            const COUNT: u64 = 100_000;
            let tried = COUNT / 32 + 200;
            assert!(run(&choice, together, [100, 150], COUNT) <= tried, "{together}");
            assert!(run(&choice, together, [100, 97], COUNT) <= tried, "within the margin");
            assert!(run(&choice, together, [100, 60], COUNT) > COUNT * 9 / 10);
            assert!(run(&choice, together, [100, 140], COUNT) < COUNT / 10);
            let (epochs, switches) = counts(&choice);
            assert!(switches == 2 && epochs > 150, "{epochs} {switches}");
            let decisions = choice.decisions(NodeId(3), ["here", "there"]);
            assert_eq!(replay(decisions.steering, &decisions.log), Ok(()));
            assert!(decisions.log.iter().any(|one| one.way == Way::Second));
        }
    }

    /// A machine that others use: both ways cost the same, times what the moment costs.
    #[test]
    fn on_a_constant_load_it_changes_a_few_times_at_most() {
        for together in [1, 8, 24] {
            let choice = Choice::new(Steering::DEFAULT);
            let mut random = 0x1234_5678_9abc_def1_u64;
            let mut moment = 100;
            let mut open = std::collections::VecDeque::new();
            for at in 0..600_000_u64 {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                if at % 37 == 0 {
                    moment = 60 + random % 120;
                }
                // One in fifty waits until the machine has time.
                let took = if random >> 32 & 63 == 0 { moment * 40 } else { moment };
                open.push_back(choice.take());
                if open.len() == together {
                    for taken in open.drain(..) {
                        choice.ended(taken, Nanos(took), Nanos(at));
                    }
                }
            }
            let (epochs, switches) = counts(&choice);
            assert!(epochs > 300 && switches <= 6, "{together}: {switches} of {epochs}");
        }
    }

    #[test]
    fn a_single_bad_epoch_changes_nothing() {
        let choice = Choice::new(Steering::DEFAULT);
        let trial = Steering::DEFAULT.trial;
        run(&choice, 1, [100, 50], 2 * trial);
        assert_eq!(counts(&choice), (1, 0));
        run(&choice, 1, [100, 150], 2 * trial);
        assert_eq!(counts(&choice), (2, 0), "the next trial comes soon");
    }

    /// A way that is fast as long as few take it: the one that a node's operations are on all at
    /// once.
    #[test]
    fn a_way_that_only_few_find_fast_is_not_taken() {
        let choice = Choice::new(Steering::DEFAULT);
        let (mut on_second, mut second) = (std::collections::VecDeque::new(), 0_u64);
        for at in 0..60_000 {
            let taken = choice.take();
            second += u64::from(taken.way == Way::Second);
            on_second.push_back(taken.way == Way::Second);
            if on_second.len() > 16 {
                on_second.pop_front();
            }
            let beside = on_second.iter().filter(|second| **second).count() as u64;
            let took = if taken.way == Way::Second { 50 + 10 * beside } else { 100 };
            choice.ended(taken, Nanos(took), Nanos(at));
        }
        assert!(second < 3_000 && counts(&choice).1 == 0, "{second} {:?}", counts(&choice));
    }
}
