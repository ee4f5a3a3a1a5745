//! The deletions of a node that wait to be forgotten (`forget.rs`).

use std::sync::{Mutex, MutexGuard, PoisonError};

use nicol_core::ids::Key;

use super::timestamp::Timestamp;

/// Deletions of a node that are looked at together, once there are so many.
pub(super) const TOGETHER: usize = 64;

/// A deletion: the key, and the timestamp that its record has.
pub(super) type Deletion = (Key, Timestamp);

/// The deletions of a node whose records it has not forgotten yet.
#[derive(Debug, Default)]
pub(super) struct Deletions(Mutex<(Vec<Deletion>, bool)>);

impl Deletions {
    fn lock(&self) -> MutexGuard<'_, (Vec<Deletion>, bool)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes one; hands out those that are to be looked at now, if there are enough and nobody is
    /// at it.
    pub(super) fn note(&self, deletion: Deletion) -> Option<Vec<Deletion>> {
        let (waiting, busy) = &mut *self.lock();
        waiting.push(deletion);
        if *busy || waiting.len() < TOGETHER {
            return None;
        }
        *busy = true;
        Some(waiting.drain(..TOGETHER).collect())
    }

    /// These are still there; others may be looked at.
    pub(super) fn keep(&self, left: Vec<Deletion>) {
        let (waiting, busy) = &mut *self.lock();
        waiting.extend(left);
        *busy = false;
    }

    /// Begins again with `all`, in a new life.
    pub(super) fn begin(&self, all: Vec<Deletion>) {
        *self.lock() = (all, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deletions_are_looked_at_together_and_by_one_at_a_time() {
        let deletions = Deletions::default();
        let one = |key: usize| (Key(key as u64), Timestamp::LOADED);
        let some = (0..2 * TOGETHER).find_map(|key| deletions.note(one(key))).unwrap();
        assert_eq!(some.len(), TOGETHER);
        assert!((0..TOGETHER).all(|key| deletions.note(one(key)).is_none()), "it is busy");
        deletions.keep(some);
        assert_eq!(deletions.note(one(0)).map(|some| some.len()), Some(TOGETHER));
    }
}
