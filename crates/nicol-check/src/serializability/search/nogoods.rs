//! Sets of decisions that contradict each other (nogoods). Going back, the search forgets every
//! decision behind the one that it takes anew, and would make the same mistakes there again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::{Candidate, Levels};

/// Sets that are kept; further ones are found again where they matter.
const SETS_MAX: usize = 20_000;
/// Decisions of a set that is kept: larger ones seldom come back.
const SIZE_MAX: usize = 16;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Nogoods {
    sets: Vec<Vec<Candidate>>,
    /// The sets that each candidate is in.
    of: BTreeMap<Candidate, Vec<u32>>,
    /// The decisions that stand, and the level of each.
    decided: BTreeMap<Candidate, u32>,
    /// The same by level.
    stack: Vec<(u32, Candidate)>,
}

impl Nogoods {
    /// Adds a set of decisions of which at least one is wrong.
    pub(super) fn add(&mut self, set: Vec<Candidate>) {
        if set.is_empty() || set.len() > SIZE_MAX || self.sets.len() == SETS_MAX {
            return;
        }
        for &candidate in &set {
            self.of.entry(candidate).or_default().push(self.sets.len() as u32);
        }
        self.sets.push(set);
    }

    /// Decisions that [`forbids`](Self::forbids) looks at for `candidate`, at most.
    pub(super) fn cost(&self, candidate: Candidate) -> u64 {
        self.of.get(&candidate).map_or(0, |sets| (sets.len() * SIZE_MAX) as u64)
    }

    /// The levels whose decisions forbid `candidate`, if any do.
    pub(super) fn forbids(&self, candidate: Candidate) -> Option<Levels> {
        let levels = |&set: &u32| -> Option<Levels> {
            let others = self.sets[set as usize].iter().filter(|other| **other != candidate);
            others.map(|other| self.decided.get(other).copied()).collect()
        };
        self.of
            .get(&candidate)?
            .iter()
            .filter_map(levels)
            .min_by_key(|levels| levels.last().copied())
    }

    /// Notes that `candidate` was decided at `level`.
    pub(super) fn decide(&mut self, candidate: Candidate, level: u32) {
        if let Entry::Vacant(entry) = self.decided.entry(candidate) {
            entry.insert(level);
            self.stack.push((level, candidate));
        }
    }

    /// Notes that what was decided at `level`, the last one, no longer stands.
    pub(super) fn undecide(&mut self, level: u32) {
        while let Some((_, candidate)) = self.stack.pop_if(|(of, _)| *of >= level) {
            self.decided.remove(&candidate);
        }
    }
}
