//! Tombstones: deletions that are remembered while older writes of their keys may still arrive.

use std::collections::BTreeMap;

use nicol_core::ids::{Key, Version};

/// Versions at which keys were deleted, in two generations: [`Tombstones::forget_old`] drops those
/// that were young at its previous call.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tombstones {
    young: BTreeMap<Key, Version>,
    old: BTreeMap<Key, Version>,
    /// The highest version that was dropped.
    forgotten: Version,
}

impl Tombstones {
    /// The version at which `key` was deleted; 0 if there is no tombstone.
    pub(crate) fn deleted_at(&self, key: Key) -> Version {
        let young = self.young.get(&key);
        young.or_else(|| self.old.get(&key)).copied().unwrap_or_default()
    }

    /// Upper bound of the absent key's deletion version: exact while the deletion is remembered.
    pub(crate) fn deleted_up_to(&self, key: Key) -> Version {
        self.deleted_at(key).max(self.forgotten)
    }

    /// Records that `key` was deleted at `version`.
    pub(crate) fn insert(&mut self, key: Key, version: Version) {
        self.young.insert(key, version);
    }

    /// Drops the tombstone of `key`, which exists again.
    pub(crate) fn remove(&mut self, key: Key) {
        self.young.remove(&key);
        self.old.remove(&key);
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, Version)> {
        self.old.iter().chain(&self.young).map(|(key, version)| (*key, *version))
    }

    /// Drops the tombstones that were recorded before the previous call.
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

    fn deletions(tombstones: &Tombstones) -> Vec<(u64, u64)> {
        let mut all: Vec<_> = tombstones.iter().map(|(key, at)| (key.0, at.0)).collect();
        all.sort_unstable();
        all
    }

    #[test]
    fn a_deletion_outlives_one_look_and_not_two() {
        let mut tombstones = Tombstones::default();
        tombstones.insert(Key(1), Version(3));
        tombstones.forget_old();
        tombstones.insert(Key(2), Version(4));
        assert_eq!(deletions(&tombstones), [(1, 3), (2, 4)]);
        tombstones.forget_old();
        assert_eq!(deletions(&tombstones), [(2, 4)]);
        // Nothing young: what is old goes all the same.
        tombstones.forget_old();
        assert_eq!(deletions(&tombstones), []);
        assert_eq!(tombstones.deleted_at(Key(2)), Version(0));
    }

    #[test]
    fn the_last_deletion_of_a_key_counts_until_the_key_is_back() {
        let mut tombstones = Tombstones::default();
        tombstones.insert(Key(1), Version(3));
        tombstones.forget_old();
        tombstones.insert(Key(1), Version(5));
        assert_eq!(tombstones.deleted_at(Key(1)), Version(5));
        tombstones.remove(Key(1));
        assert_eq!((tombstones.deleted_at(Key(1)), deletions(&tombstones)), (Version(0), vec![]));
    }
}
