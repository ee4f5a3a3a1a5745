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
