//! Deletions that are remembered while older writes of their keys may still come.

use std::collections::BTreeMap;

use nicol_core::ids::{Key, Version};

/// Versions at which keys were deleted, in two generations: what was young at one
/// [`Graves::forget_old`] goes with the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Graves {
    young: BTreeMap<Key, Version>,
    old: BTreeMap<Key, Version>,
    /// The highest version of those that were forgotten.
    forgotten: Version,
}

impl Graves {
    /// The version at which `key` was deleted; 0 if that is not remembered.
    pub(crate) fn deleted_at(&self, key: Key) -> Version {
        let young = self.young.get(&key);
        young.or_else(|| self.old.get(&key)).copied().unwrap_or_default()
    }

    /// A version above which `key`, which is not there, was never deleted: the one at which it was,
    /// as long as that is remembered.
    pub(crate) fn deleted_up_to(&self, key: Key) -> Version {
        self.deleted_at(key).max(self.forgotten)
    }

    /// `key` was deleted at `version`.
    pub(crate) fn bury(&mut self, key: Key, version: Version) {
        self.young.insert(key, version);
    }

    /// `key` is there again.
    pub(crate) fn raise(&mut self, key: Key) {
        self.young.remove(&key);
        self.old.remove(&key);
    }

    /// The deletions that are remembered.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, Version)> {
        self.old.iter().chain(&self.young).map(|(key, version)| (*key, *version))
    }

    /// Forgets the deletions that were remembered at the last call.
    pub(crate) fn forget_old(&mut self) {
        if !self.young.is_empty() || !self.old.is_empty() {
            let forgotten = self.old.values().copied().max().unwrap_or_default();
            self.forgotten = self.forgotten.max(forgotten);
            self.old = std::mem::take(&mut self.young);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buried(graves: &Graves) -> Vec<(u64, u64)> {
        let mut all: Vec<_> = graves.iter().map(|(key, at)| (key.0, at.0)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_deletion_outlives_one_look_and_not_two() {
        let mut graves = Graves::default();
        graves.bury(Key(1), Version(3));
        graves.forget_old();
        graves.bury(Key(2), Version(4));
        assert_eq!(buried(&graves), [(1, 3), (2, 4)]);
        graves.forget_old();
        assert_eq!(buried(&graves), [(2, 4)]);
        // Nothing young: what is old goes all the same.
        graves.forget_old();
        assert_eq!(buried(&graves), []);
        assert_eq!(graves.deleted_at(Key(2)), Version(0));
    }

    #[test]
    fn the_last_deletion_of_a_key_counts_until_the_key_is_back() {
        let mut graves = Graves::default();
        graves.bury(Key(1), Version(3));
        graves.forget_old();
        graves.bury(Key(1), Version(5));
        assert_eq!(graves.deleted_at(Key(1)), Version(5));
        graves.raise(Key(1));
        assert_eq!((graves.deleted_at(Key(1)), buried(&graves)), (Version(0), vec![]));
    }
}
