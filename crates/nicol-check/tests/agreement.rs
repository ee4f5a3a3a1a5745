//! The checkers for single keys agree with an exhaustive search over every order of the operations,
//! on tiny random histories, right and wrong ones.

mod brute;

use brute::{Kind, draw, holds, show};
use nicol_check::{durability, linearizability};
use nicol_core::history::{History, Persistency};
use nicol_core::rng::{Purpose, Stream};

/// Histories of each kind: so many that each has thousands of right and of wrong ones.
const HISTORIES: u64 = 30_000;
const STATES: usize = 100_000;

/// How many were right, and how many wrong.
fn agree(kind: Kind, crash: bool, judge: impl Fn(&History, u64) -> (bool, bool)) -> [u64; 2] {
    let mut counts = [0; 2];
    for seed in 0..HISTORIES {
        let history = draw(&mut Stream::new(seed, Purpose::Test, 0), kind, crash);
        let (expected, found) = judge(&history, seed);
        let words = || format!("seed {seed}, right: {expected}\n{}", show(&history));
        assert!(found == expected, "{}", words());
        counts[usize::from(!expected)] += 1;
    }
    counts
}

#[test]
fn linearizability_agrees_with_every_order() {
    for kind in [Kind::Versions, Kind::Different, Kind::Repeating] {
        let [right, wrong] = agree(kind, false, |history, _| {
            let report = linearizability::check(history, STATES);
            assert_eq!(report.undecided, [], "tiny histories are decided");
            (holds(history, Persistency::Event), report.holds())
        });
        assert!(right > 1_000 && wrong > 500, "{kind:?}: {right} right, {wrong} wrong");
    }
}

#[test]
fn durability_agrees_with_every_order() {
    for kind in [Kind::Versions, Kind::Different, Kind::Repeating] {
        let [right, wrong] = agree(kind, true, |history, seed| {
            let model = Persistency::ALL[(seed % 5) as usize];
            let report = durability::check(history, model, STATES);
            assert_eq!(report.undecided, [], "tiny histories are decided");
            (holds(history, model), report.holds())
        });
        assert!(right > 1_000 && wrong > 500, "{kind:?}: {right} right, {wrong} wrong");
    }
}
