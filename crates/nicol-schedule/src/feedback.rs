//! What software learns of contention, and tells the scheduler. [AlNiCo22, software feedback]

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

use super::decision::Vectors;
use super::features::{FEATURES, FeatureMap};

/// Aborts that a worker remembers, as in the artifact. (AMB-21)
pub const WINDOW: usize = 4_096;
/// Weights of steered features begin here, and fall by one from feature to feature, as in the
/// artifact.
const HOTTEST: u8 = 90;
/// The most that a feature weighs which is not steered: half of that, so that a steered feature
/// outweighs it. The implementation has no such limit.
const UNSTEERED_MAX: u32 = 45;

/// How often each feature has stood in the way lately, by all workers together.
#[derive(Debug)]
pub struct Contention(Box<[AtomicU32]>);

impl Default for Contention {
    fn default() -> Self {
        Self((0..FEATURES).map(|_| AtomicU32::new(0)).collect())
    }
}

impl Contention {
    pub fn counts(&self) -> Vec<u32> {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

/// The last aborts of one worker.
#[derive(Debug)]
pub struct Window {
    most: usize,
    features: RefCell<Vec<u16>>,
    next: Cell<usize>,
}

impl Window {
    /// Of so many aborts: [`WINDOW`] in the artifact.
    ///
    /// # Panics
    /// If it has space for none.
    pub fn new(most: usize) -> Self {
        assert!(most > 0, "a worker remembers an abort at least");
        Self { most, features: RefCell::default(), next: Cell::new(0) }
    }

    /// Notes that `feature` has stood in the way; the oldest note of a full window is forgotten.
    pub fn push(&self, all: &Contention, feature: usize) {
        let mut features = self.features.borrow_mut();
        all.0[feature].fetch_add(1, Ordering::Relaxed);
        if features.len() < self.most {
            features.push(feature as u16);
            return;
        }
        let next = self.next.get();
        let forgotten = std::mem::replace(&mut features[next], feature as u16);
        all.0[usize::from(forgotten)].fetch_sub(1, Ordering::Relaxed);
        self.next.set((next + 1) % self.most);
    }
}

/// When vectors that were computed are published. (AMB-21)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    Always,
    /// When other features are steered, there are a quarter more or fewer aborts, or a quarter of
    /// them are on other features.
    OnChange,
    /// Never: nothing weighs anything, and requests go to the shortest queue. What scheduling by
    /// features gains is seen beside it.
    Never,
}

/// Computes vectors from what stood in the way, one after the other. [AlNiCo22, software feedback]
#[derive(Clone, Debug)]
pub struct Feedback {
    tables: Vec<Range<usize>>,
    workers: usize,
    epoch: u64,
    /// What is published steers these, each at the place of its worker.
    steered: Vec<Option<usize>>,
    /// The aborts that it rests on, by feature.
    counts: Vec<u32>,
}

impl Feedback {
    /// For so many workers, before anything is published.
    ///
    /// # Panics
    /// If there are more workers than weights of steered features.
    pub fn new(map: &FeatureMap, workers: usize) -> Self {
        assert!(workers < usize::from(HOTTEST), "each worker's feature has a weight of its own");
        let (tables, steered) = (map.tables().collect(), vec![None; workers]);
        Self { tables, workers, epoch: 0, steered, counts: vec![0; FEATURES] }
    }

    /// The vectors that follow from `counts`, if `policy` publishes them: a feature's weight is the
    /// number of aborts that it caused, divided by the number of workers, and the hottest features
    /// of the hottest table are steered to one worker each (AMB-21). A worker keeps a feature that
    /// it steers already.
    pub fn vectors(&mut self, policy: Policy, counts: &[u32]) -> Option<Vectors> {
        let hottest = self.hottest(counts);
        let all = |counts: &[u32]| counts.iter().map(|count| u64::from(*count)).sum::<u64>();
        let (aborts, before) = (all(counts), all(&self.counts));
        let others = hottest.iter().any(|feature| !self.steered.contains(&Some(*feature)))
            || self.steered.iter().flatten().any(|feature| !hottest.contains(feature));
        // Windows that are full always have as many aborts: what moves among features counts here
        // where it has gone and where it has come from.
        let apart = counts.iter().zip(&self.counts).map(|(now, was)| u64::from(now.abs_diff(*was)));
        let moved = 4 * aborts.abs_diff(before).max(apart.sum::<u64>() / 2) > before;
        let due = match policy {
            Policy::Always => aborts > 0,
            Policy::OnChange => others || moved,
            Policy::Never => false,
        };
        if !due {
            return None;
        }
        self.assign(&hottest);
        self.counts.copy_from_slice(counts);
        self.epoch += 1;
        let mut vectors = Vectors { epoch: self.epoch, ..Vectors::none() };
        for (weight, count) in vectors.weights.iter_mut().zip(counts) {
            *weight = (count / self.workers as u32).min(UNSTEERED_MAX) as u8;
        }
        for (place, feature) in hottest.iter().enumerate() {
            vectors.weights[*feature] = HOTTEST - place as u8;
        }
        for (worker, feature) in self.steered.iter().enumerate() {
            if let Some(feature) = feature {
                vectors.steering[*feature] = worker as u8;
            }
        }
        Some(vectors)
    }

    /// The features to steer, the hottest first: as many as workers, of the table whose features
    /// weigh most on average, among tables of which so many features weigh anything.
    fn hottest(&self, counts: &[u32]) -> Vec<usize> {
        let least = self.workers as u32;
        let weighs = |table: &Range<usize>| -> Vec<usize> {
            table.clone().filter(|feature| counts[*feature] >= least).collect()
        };
        let mean = |features: &[usize]| {
            let sum: u64 = features.iter().map(|feature| u64::from(counts[*feature])).sum();
            // Compared as a fraction of 2^-16.
            (sum << 16) / features.len() as u64
        };
        let tables = self.tables.iter().map(weighs);
        let enough = tables.filter(|features| features.len() >= self.workers);
        // The first of those that are as hot.
        let hottest = enough.rev().max_by_key(|features| mean(features));
        let mut features = hottest.unwrap_or_default();
        features.sort_by_key(|feature| (Reverse(counts[*feature]), *feature));
        features.truncate(self.workers);
        features
    }

    /// Gives each of `hottest` a worker of its own.
    fn assign(&mut self, hottest: &[usize]) {
        for kept in &mut self.steered {
            *kept = kept.filter(|feature| hottest.contains(feature));
        }
        for feature in hottest {
            if !self.steered.contains(&Some(*feature)) {
                let free = self.steered.iter_mut().find(|worker| worker.is_none());
                *free.expect("there are no more features than workers") = Some(*feature);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::{Key, TableId};
    use nicol_store::feature_counters::NONE;

    use super::*;

    #[test]
    fn a_window_forgets_what_is_older_than_itself() {
        let (all, window) = (Contention::default(), Window::new(WINDOW));
        (0..WINDOW).for_each(|_| window.push(&all, 1));
        (0..WINDOW / 2).for_each(|_| window.push(&all, 2));
        let counts = all.counts();
        assert_eq!((counts[1], counts[2]), (WINDOW as u32 / 2, WINDOW as u32 / 2));
    }

    /// Three workers; tables of 10, 50 and 452 features.
    fn feedback() -> Feedback {
        let shares = [(TableId(1), 10), (TableId(2), 50), (TableId(3), 452)];
        Feedback::new(&FeatureMap::new(&shares, Key::row), 3)
    }

    fn counts(of: &[(usize, u32)]) -> Vec<u32> {
        let mut counts = vec![0; FEATURES];
        of.iter().for_each(|(feature, count)| counts[*feature] = *count);
        counts
    }

    #[test]
    fn the_hottest_features_of_the_hottest_table_are_steered_to_one_worker_each() {
        let mut feedback = feedback();
        // The hottest of all are two features, too few; of the largest table many, but less hot.
        let mut hot = vec![(0, 900), (1, 800), (12, 300), (59, 301), (30, 200), (31, 7), (32, 2)];
        hot.extend((60..512).map(|feature| (feature, 90)));
        let made = feedback.vectors(Policy::OnChange, &counts(&hot)).unwrap();
        let steered = |made: &Vectors| [59, 12, 30].map(|feature| made.steering[feature]);
        assert_eq!(steered(&made), [0, 1, 2]);
        assert_eq!([59, 12, 30].map(|feature| made.weights[feature]), [90, 89, 88]);
        assert_eq!([0, 31, 32, 60].map(|feature| made.weights[feature]), [45, 2, 0, 30]);
        assert_eq!(made.steering.iter().filter(|worker| **worker != NONE).count(), 3);
        // Another order moves nothing from its worker; another feature gets the worker that is
        // free.
        (hot[2], hot[3]) = ((12, 500), (33, 400));
        let made = feedback.vectors(Policy::OnChange, &counts(&hot)).unwrap();
        assert_eq!((made.epoch, [12, 33, 30].map(|at| made.steering[at])), (2, [1, 0, 2]));
        assert_eq!([12, 33, 30].map(|feature| made.weights[feature]), [90, 89, 88]);
    }

    #[test]
    fn what_stands_in_the_way_less_than_once_a_worker_weighs_nothing() {
        let made = feedback().vectors(Policy::Always, &counts(&[(9, 2), (8, 3), (7, 5)])).unwrap();
        assert_eq!([9, 8, 7].map(|feature| made.weights[feature]), [0, 1, 1]);
        assert!(made.steering.iter().all(|worker| *worker == NONE), "two are too few to steer");
    }

    #[test]
    fn contention_that_moves_is_published_though_full_windows_have_as_many_aborts_as_before() {
        let mut feedback = feedback();
        // Two features: too few to steer.
        assert!(feedback.vectors(Policy::OnChange, &counts(&[(3, 600), (4, 400)])).is_some());
        assert!(feedback.vectors(Policy::OnChange, &counts(&[(3, 400), (4, 600)])).is_none());
        let made = feedback.vectors(Policy::OnChange, &counts(&[(3, 340), (8, 660)])).unwrap();
        assert_eq!((made.weights[4], made.weights[8]), (0, 45));
        assert!(feedback.vectors(Policy::OnChange, &counts(&[(3, 340), (8, 660)])).is_none());
    }

    #[test]
    fn vectors_are_published_when_contention_moves() {
        let (old, moved) =
            (counts(&[(3, 40), (4, 40), (5, 40)]), counts(&[(3, 40), (6, 40), (5, 40)]));
        let mut feedback = feedback();
        assert!(feedback.vectors(Policy::OnChange, &counts(&[])).is_none());
        assert!(feedback.vectors(Policy::OnChange, &old).is_some());
        assert!(feedback.vectors(Policy::OnChange, &old).is_none());
        assert!(feedback.vectors(Policy::Always, &old).is_some());
        assert!(feedback.vectors(Policy::OnChange, &moved).is_some());
        assert!(feedback.vectors(Policy::Always, &counts(&[])).is_none());
        assert!(feedback.vectors(Policy::Never, &moved).is_none());
    }
}
