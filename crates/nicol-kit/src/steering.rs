//! Choosing between two ways of doing the same at run time, by what each has given lately: who
//! counts, for the rules of [`nicol_core::steering`].
//!
//! A way is tried by all operations of all nodes for a while, not by one in some, nor by the nodes
//! one after another: what an operation costs depends on the load that the others make where they
//! are. A core that all keep busy is no recommendation for the way that one of them found it free
//! on.

use std::mem;
use std::sync::{Mutex, MutexGuard, PoisonError};

use nicol_core::ids::NodeId;
use nicol_core::steering::{Decider, Decisions, Record, Steering, Way};
use nicol_core::system::Counter;
use nicol_core::units::Nanos;

/// Records that are kept; later ones are counted only.
pub const RECORDS_MAX: usize = 4_096;

#[derive(Debug)]
struct State {
    decider: Decider,
    /// Nothing is tried or counted before: none, until the first operation.
    from: Option<Nanos>,
    /// By way: operations that were counted in this epoch.
    samples: [u64; 2],
    /// By way: how long they took together, in nanoseconds.
    spent: [u64; 2],
    log: Vec<Record>,
    epochs: u64,
    switches: u64,
}

/// An operation's way, to be handed back when it has ended as it should.
#[derive(Clone, Copy, Debug)]
pub struct Taken {
    /// The way that the operation takes.
    pub way: Way,
    began: Nanos,
}

/// A choice that the engines of one side share.
#[derive(Debug)]
pub struct Choice {
    steering: Steering,
    state: Mutex<State>,
}

impl Choice {
    /// A choice that has tried nothing yet.
    pub fn new(steering: Steering) -> Self {
        let state = State {
            decider: Decider::new(steering),
            from: None,
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

    /// The way of an operation that begins at `now`.
    pub fn take(&self, now: Nanos) -> Taken {
        let state = &mut *self.state();
        let from = *state.from.get_or_insert(self.steering.next_cycle(now));
        let tried = self.steering.tried(now, state.decider.is_in_doubt()).filter(|_| now >= from);
        // Outside of the slots that try, both ways have had the same time.
        let samples: u64 = state.samples.iter().sum();
        if tried.is_none() && samples >= self.steering.samples {
            self.end_epoch(state, now);
        }
        Taken { way: tried.unwrap_or(state.decider.way()), began: now }
    }

    /// An operation has ended at `now` as it should. One that has not is time that its way has
    /// lost, and is not told.
    pub fn ended(&self, taken: Taken, now: Nanos) {
        if !self.steering.counts(now) {
            return;
        }
        let state = &mut *self.state();
        let tried = self.steering.tried(now, state.decider.is_in_doubt());
        if let (Some(way), true) = (tried, state.from.is_some_and(|from| from <= now)) {
            state.samples[way.place()] += 1;
            state.spent[way.place()] += now.since(taken.began).0;
        }
    }

    fn end_epoch(&self, state: &mut State, now: Nanos) {
        let before = state.decider.way();
        let (samples, spent) = (mem::take(&mut state.samples), mem::take(&mut state.spent));
        let way = state.decider.decide(samples, spent);
        state.switches += u64::from(way != before);
        state.epochs += 1;
        // Cycles may be shorter now: one that is under way would not have both ways whole.
        state.from = Some(self.steering.next_cycle(now));
        if state.log.len() < RECORDS_MAX {
            state.log.push(Record { at: now, samples, spent, way });
        }
    }

    /// The decisions of `node` so far, whose ways are called so.
    pub fn decisions(&self, node: NodeId, ways: [&'static str; 2]) -> Decisions {
        Decisions { node, ways, steering: self.steering, log: self.state().log.clone() }
    }

    /// For reports: epochs so far, and how often another way was chosen.
    pub fn counters(&self) -> [Counter; 2] {
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

    /// Nanoseconds of a cycle.
    const CYCLE: u64 = Steering::DEFAULT.slot.0 * Steering::DEFAULT.cycle;
    const SHORT: u64 = Steering::DEFAULT.slot.0 * Steering::DEFAULT.cycle_in_doubt;

    /// Clients in closed loops, of each node in turn, whose operations cost what `cost` says of
    /// their way and of how many of all are on the second: from `now` on for `span`. The share that
    /// took the second.
    fn run(
        nodes: &[Choice],
        clients: usize,
        now: &mut u64,
        span: u64,
        mut cost: impl FnMut(Way, usize) -> u64,
    ) -> f64 {
        let mut open: Vec<(u64, Option<Taken>)> = vec![(*now, None); clients];
        let (mut second, mut all) = (0_u64, 0_u64);
        let until = *now + span;
        let is_second = |taken: Taken| taken.way == Way::Second;
        loop {
            let next = (0..clients).min_by_key(|at| open[*at].0).unwrap();
            let (ends, taken) = open[next];
            *now = ends;
            if *now >= until {
                return second as f64 / all as f64;
            }
            let choice = &nodes[next % nodes.len()];
            if let Some(taken) = taken {
                choice.ended(taken, Nanos(*now));
            }
            let taken = choice.take(Nanos(*now));
            let beside = open.iter().filter(|one| one.1.is_some_and(is_second)).count();
            open[next] = (*now + cost(taken.way, beside), Some(taken));
            second += u64::from(is_second(taken));
            all += 1;
        }
    }

    #[test]
    fn it_goes_where_it_is_cheaper_stays_within_the_margin_and_comes_back() {
        for clients in [1, 8, 50] {
            let (choice, mut now) = ([Choice::new(Steering::DEFAULT)], 12_345);
            let mut share = |costs: [u64; 2]| {
                let cost = |way: Way, _| costs[way.place()] * 50;
                run(&choice, clients, &mut now, 200 * CYCLE, cost)
            };
            assert!(share([100, 150]) < 0.08, "{clients}");
            assert!(share([100, 99]) < 0.08, "within the margin");
            assert!(share([100, 60]) > 0.85);
            assert!(share([100, 140]) < 0.2);
            let (epochs, switches) = counts(&choice[0]);
            assert!(switches == 2 && epochs > 100, "{epochs} {switches}");
            let decisions = choice[0].decisions(NodeId(3), ["here", "there"]);
            assert_eq!(replay(decisions.steering, &decisions.log), Ok(()));
            assert!(decisions.log.iter().any(|one| one.way == Way::Second));
        }
    }

    /// A machine that others use: both ways cost the same, times what the moment costs.
    #[test]
    fn on_a_constant_load_it_changes_a_few_times_at_most() {
        for clients in [1, 8, 24] {
            let (choice, mut now) = ([Choice::new(Steering::DEFAULT)], 0);
            let (mut random, mut moment, mut at) = (0x1234_5678_9abc_def1_u64, 100, 0_u64);
            let cost = |_, _| {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                at += 1;
                if at % 37 == 0 {
                    moment = 60 + random % 120;
                }
                // One in fifty waits until the machine has time.
                50 * if random >> 32 & 63 == 0 { moment * 40 } else { moment }
            };
            run(&choice, clients, &mut now, 1_500 * CYCLE, cost);
            let (epochs, switches) = counts(&choice[0]);
            assert!(epochs > 300 && switches <= 6, "{clients}: {switches} of {epochs}");
        }
    }

    #[test]
    fn a_single_bad_epoch_changes_nothing() {
        let (choice, mut now) = ([Choice::new(Steering::DEFAULT)], 1);
        run(&choice, 8, &mut now, 2 * SHORT, |way, _| [5_000, 2_500][way.place()]);
        assert_eq!(counts(&choice[0]), (1, 0));
        run(&choice, 8, &mut now, SHORT, |way, _| [5_000, 7_500][way.place()]);
        assert_eq!(counts(&choice[0]), (2, 0));
    }

    /// A way that is fast as long as few take it.
    #[test]
    fn a_way_that_only_few_find_fast_is_not_taken() {
        let (choice, mut now) = ([Choice::new(Steering::DEFAULT)], 1);
        let cost = |way: Way, beside: usize| match way {
            Way::First => 5_000,
            Way::Second => 2_500 + 500 * beside as u64,
        };
        let second = run(&choice, 16, &mut now, 50 * CYCLE, cost);
        assert!(second < 0.07 && counts(&choice[0]).1 == 0, "{second} {:?}", counts(&choice[0]));
    }

    /// Two nodes share what the second way needs. One of them alone would gain there, as long as
    /// the other is not; since they try at the same time neither goes.
    #[test]
    fn nodes_that_share_a_resource_do_not_stay_where_all_of_them_lose() {
        let nodes = [0, 1].map(|_| Choice::new(Steering::DEFAULT));
        let mut now = 1;
        // With half of all on the second way it is the faster one, with all of them not.
        let cost = |way: Way, beside: usize| match way {
            Way::First => 5_000,
            Way::Second => 1_000 + 350 * beside as u64,
        };
        let second = run(&nodes, 16, &mut now, 50 * CYCLE, cost);
        assert!(second < 0.1, "{second}");
    }
}
