//! The checkers for single keys agree with an exhaustive search over every order of the operations,
//! on tiny random histories, right and wrong ones.

mod brute;

use brute::{Kind, draw, holds, show, sparse};
use nicol_check::durability;
use nicol_check::linearizability::{self, Bound};
use nicol_core::history::{History, Persistency};
use nicol_core::rng::{Purpose, Stream};

/// Histories of each kind, with each number of crashes: 102,000 at least for each checker.
const HISTORIES: u64 = 34_000;
const STATES: usize = 100_000;
const KINDS: [Kind; 3] = [Kind::Versions, Kind::Different, Kind::Repeating];

/// How many were right, and how many wrong.
fn agree(kind: Kind, crashes: u64, judge: impl Fn(&History, u64) -> (bool, bool)) -> [u64; 2] {
    agree_on(kind, crashes, |_, _| (), judge)
}

/// The same of histories that `change` has changed.
fn agree_on(
    kind: Kind,
    crashes: u64,
    change: impl Fn(&mut Stream, &mut History),
    judge: impl Fn(&History, u64) -> (bool, bool),
) -> [u64; 2] {
    let mut counts = [0; 2];
    for seed in 0..HISTORIES {
        let mut random = Stream::new(seed, Purpose::Test, 0);
        let mut history = draw(&mut random, kind, crashes);
        change(&mut random, &mut history);
        let (expected, found) = judge(&history, seed);
        let words = || format!("{kind:?}, seed {seed}, right: {expected}\n{}", show(&history));
        assert!(found == expected, "{}", words());
        counts[usize::from(!expected)] += 1;
    }
    let [right, wrong] = counts;
    println!("{kind:?}, {crashes} crashes: {right} right, {wrong} wrong");
    counts
}

#[test]
fn linearizability_agrees_with_every_order() {
    for kind in KINDS {
        let [right, wrong] = agree(kind, 0, |history, _| {
            let report = linearizability::check(history, Bound::states(STATES));
            assert_eq!(report.undecided, [], "tiny histories are decided");
            (holds(history, Persistency::Event), report.holds())
        });
        assert!(right > 1_000 && wrong > 500, "{kind:?}: {right} right, {wrong} wrong");
    }
}

#[test]
fn linearizability_agrees_where_much_is_not_told() {
    for kind in KINDS {
        let [right, wrong] = agree_on(kind, 0, sparse, |history, _| {
            let report = linearizability::check(history, Bound::states(STATES));
            assert_eq!(report.undecided, [], "tiny histories are decided");
            (holds(history, Persistency::Event), report.holds())
        });
        assert!(right > 1_000 && wrong > 500, "{kind:?}: {right} right, {wrong} wrong");
    }
}

#[test]
fn durability_agrees_with_every_order() {
    for kind in KINDS {
        for crashes in [1, 2] {
            let [right, wrong] = agree(kind, crashes, |history, seed| {
                let model = Persistency::ALL[(seed % 5) as usize];
                let report = durability::check(history, model, Bound::states(STATES));
                assert_eq!(report.undecided, [], "tiny histories are decided");
                (holds(history, model), report.holds())
            });
            assert!(right > 1_000 && wrong > 500, "{kind:?}: {right} right, {wrong} wrong");
        }
    }
}

#[test]
fn durability_never_errs_where_much_is_not_told() {
    for kind in KINDS {
        for crashes in [1, 2] {
            let mut decided = [0; 2];
            for seed in 0..HISTORIES / 4 {
                let mut random = Stream::new(seed, Purpose::Test, 1);
                let mut history = draw(&mut random, kind, crashes);
                sparse(&mut random, &mut history);
                let model = Persistency::ALL[(seed % 5) as usize];
                let report = durability::check(&history, model, Bound::states(STATES));
                if report.violations.is_empty() && !report.undecided.is_empty() {
                    continue;
                }
                let right = holds(&history, model);
                let words = || format!("{kind:?}, seed {seed}, {model:?}, right: {right}");
                assert_eq!(report.holds(), right, "{}\n{}\n{report:?}", words(), show(&history));
                decided[usize::from(!right)] += 1;
            }
            println!("{kind:?}, {crashes} crashes: {decided:?} right and wrong");
            assert!(decided.into_iter().all(|count| count > 100), "{kind:?}: {decided:?}");
        }
    }
}
