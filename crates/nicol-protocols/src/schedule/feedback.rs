//! What software learns of contention, and tells the scheduler. [AlNiCo22, software feedback]

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicU32, Ordering};

use super::decision::{NONE, Vectors};
use super::features::FEATURES;

/// Aborts that a worker remembers.
pub const WINDOW: usize = 4_096;
/// Weights of the hottest features begin here, and fall by one from feature to feature.
const HOTTEST: u8 = 90;

/// How often each feature has stood in the way lately, by all workers together.
#[derive(Debug)]
pub struct Contention(Box<[AtomicU32]>);

impl Default for Contention {
    fn default() -> Self {
        Self((0..FEATURES).map(|_| AtomicU32::new(0)).collect())
    }
}

impl Contention {
    /// By feature.
    pub fn counts(&self) -> Vec<u32> {
        self.0.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

/// The last aborts of one worker.
#[derive(Debug, Default)]
pub struct Window {
    features: RefCell<Vec<u16>>,
    next: Cell<usize>,
}

impl Window {
    /// Notes that `feature` has stood in the way; the oldest note of a full window is forgotten.
    pub fn push(&self, all: &Contention, feature: usize) {
        let mut features = self.features.borrow_mut();
        all.0[feature].fetch_add(1, Ordering::Relaxed);
        if features.len() < WINDOW {
            features.push(feature as u16);
            return;
        }
        let next = self.next.get();
        let forgotten = std::mem::replace(&mut features[next], feature as u16);
        all.0[usize::from(forgotten)].fetch_sub(1, Ordering::Relaxed);
        self.next.set((next + 1) % WINDOW);
    }
}

/// When vectors that were computed are published. (AMB-21)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Each time.
    Always,
    /// When the hottest features are others, or contention has changed by a quarter.
    OnChange,
}

/// The vectors that follow from `counts`: what stands in the way often weighs more, and the hottest
/// features are steered to one worker each. [AlNiCo22, steering vector]
pub fn vectors(counts: &[u32], workers: usize, epoch: u64) -> Vectors {
    let mut vectors = Vectors { epoch, ..Vectors::none() };
    let most = counts.iter().copied().max().unwrap_or_default().max(1);
    for (weight, count) in vectors.weights.iter_mut().zip(counts) {
        *weight = (u64::from(*count) * u64::from(HOTTEST / 2) / u64::from(most)) as u8;
    }
    for (place, feature) in hottest(counts, workers).into_iter().enumerate() {
        vectors.weights[feature] = HOTTEST - place as u8;
        vectors.steering[feature] = place as u8;
    }
    debug_assert!(vectors.steering.iter().all(|worker| *worker == NONE || *worker < HOTTEST));
    vectors
}

/// The features that stood in the way most often, at most `workers`; none that did not.
pub fn hottest(counts: &[u32], workers: usize) -> Vec<usize> {
    let mut features: Vec<usize> = (0..counts.len()).filter(|at| counts[*at] > 0).collect();
    features.sort_by_key(|at| (std::cmp::Reverse(counts[*at]), *at));
    features.truncate(workers);
    features
}

/// Are vectors worth publishing that would follow from `new`, after those that followed from `old`?
pub fn is_due(policy: Policy, old: &[u32], new: &[u32], workers: usize) -> bool {
    let sum = |counts: &[u32]| counts.iter().map(|count| u64::from(*count)).sum::<u64>();
    let (before, now) = (sum(old), sum(new));
    match policy {
        Policy::Always => now > 0,
        Policy::OnChange => {
            4 * before.abs_diff(now) > before || hottest(old, workers) != hottest(new, workers)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_forgets_what_is_older_than_itself() {
        let (all, window) = (Contention::default(), Window::default());
        (0..WINDOW).for_each(|_| window.push(&all, 1));
        (0..WINDOW / 2).for_each(|_| window.push(&all, 2));
        let counts = all.counts();
        assert_eq!((counts[1], counts[2]), (WINDOW as u32 / 2, WINDOW as u32 / 2));
    }

    #[test]
    fn the_hottest_features_are_steered_to_one_worker_each() {
        let mut counts = vec![0; FEATURES];
        (counts[9], counts[4], counts[300], counts[8]) = (100, 70, 70, 1);
        let made = vectors(&counts, 3, 2);
        assert_eq!((made.steering[9], made.steering[4], made.steering[300]), (0, 1, 2));
        assert_eq!((made.weights[9], made.weights[4], made.weights[300]), (90, 89, 88));
        assert_eq!((made.steering[8], made.weights[8], made.weights[0]), (NONE, 0, 0));
    }

    #[test]
    fn vectors_are_published_when_contention_moves() {
        let (mut old, none) = (vec![0; FEATURES], vec![0; FEATURES]);
        old[3] = 40;
        let mut moved = none.clone();
        moved[5] = 40;
        assert!(is_due(Policy::OnChange, &old, &moved, 4));
        assert!(!is_due(Policy::OnChange, &old, &old, 4) && is_due(Policy::Always, &old, &old, 4));
        assert!(!is_due(Policy::Always, &old, &none, 4));
    }
}
