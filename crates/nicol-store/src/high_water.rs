//! High-water marks: which keys of ordered tables were never there.
//!
//! Keys of orders, events and the like are inserted in ascending order. Each *key-prefix group* has
//! a high-water mark: the greatest key that ever had a record. A key above the mark has version 0,
//! and its first insert is its first write. [AMB-36] The host computes a group's mark from its
//! tree. The NIC caches the mark, so that it need not ask the host. [Xenic21 4.2.2]

use std::sync::{Mutex, MutexGuard, PoisonError};

use nicol_core::ids::{IdMap, Key};

/// Bits of a key within its group. In TPC-C a group holds the orders of a district or of a
/// customer. Version ranges are larger: there, a new order of one customer lies between those of
/// others.
const GROUP_BITS: u32 = 24;
/// Groups that a NIC stores, 24 bytes each. For others it asks its host.
const GROUPS_MAX: usize = 1 << 24;
const STRIPES: usize = 64;

const _: () = assert!(GROUPS_MAX.is_multiple_of(STRIPES), "the stripes share the groups evenly");

/// The group of a key.
pub(crate) const fn prefix_group(key: Key) -> u64 {
    key.0 >> GROUP_BITS
}

/// A group's high-water mark, as the number of its lowest keys that may have had records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HighWater(u32);

impl HighWater {
    /// All keys of a group.
    pub const MAX: Self = Self(1 << GROUP_BITS);

    /// The mark that includes `key`.
    pub const fn through(key: Key) -> Self {
        Self((key.0 as u32 & (Self::MAX.0 - 1)) + 1)
    }

    /// May `key`, of the same group, ever have had a record?
    pub const fn covers(self, key: Key) -> bool {
        Self::through(key).0 <= self.0
    }

    /// The number of keys.
    pub const fn keys(self) -> u32 {
        self.0
    }

    /// The mark that covers so many of the lowest keys; `None` if a group has fewer.
    pub const fn of(keys: u32) -> Option<Self> {
        if keys <= Self::MAX.0 { Some(Self(keys)) } else { None }
    }

    /// The greatest key of the group of `key`.
    pub(crate) const fn last_key(key: Key) -> Key {
        Key(key.0 | (Self::MAX.0 - 1) as u64)
    }
}

/// A group's mark at a NIC.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Covers every installed key, and every key that the host had when it answered.
    high_water: HighWater,
    /// Has the host confirmed the mark? Before, it covers installed keys only.
    authoritative: bool,
}

/// The groups' high-water marks, as a primary's NIC knows them.
#[derive(Debug)]
pub(crate) struct HighWaterMarks {
    stripes: Vec<Mutex<IdMap<u64, Known>>>,
    groups_max: usize,
}

impl Default for HighWaterMarks {
    fn default() -> Self {
        Self::new(GROUPS_MAX)
    }
}

impl HighWaterMarks {
    fn new(groups_max: usize) -> Self {
        let stripes = (0..STRIPES).map(|_| Mutex::default()).collect();
        Self { stripes, groups_max: groups_max / STRIPES }
    }

    /// Raises the mark: a write of `key` is about to be installed.
    pub(crate) fn raise(&self, key: Key) {
        self.note(key, Known { high_water: HighWater::through(key), authoritative: false });
    }

    /// Stores the mark of `key`'s group that the host has answered with.
    pub(crate) fn learn(&self, key: Key, high_water: HighWater) {
        self.note(key, Known { high_water, authoritative: true });
    }

    fn note(&self, key: Key, new: Known) {
        let mut stripe = self.stripe(key);
        let full = stripe.len() >= self.groups_max;
        let known = match stripe.get_mut(&prefix_group(key)) {
            Some(known) => known,
            // It never will be known: what is installed from here on is not noted.
            None if full => return,
            None => stripe.entry(prefix_group(key)).or_default(),
        };
        known.high_water = known.high_water.max(new.high_water);
        known.authoritative |= new.authoritative;
    }

    /// Returns true if `key` certainly never had a record.
    pub(crate) fn confirm_absent(&self, key: Key) -> bool {
        let known = self.stripe(key).get(&prefix_group(key)).copied().unwrap_or_default();
        known.authoritative && !known.high_water.covers(key)
    }

    fn stripe(&self, key: Key) -> MutexGuard<'_, IdMap<u64, Known>> {
        let spread =
            (prefix_group(key) ^ prefix_group(key) >> 8 ^ prefix_group(key) >> 16) as usize;
        self.stripes[spread % STRIPES].lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(group: u64, low: u64) -> Key {
        Key(0xc0 << 56 | group << GROUP_BITS | low)
    }

    #[test]
    fn a_group_reaches_up_to_its_highest_key() {
        let last = key(3, (1 << GROUP_BITS) - 1);
        assert_eq!(HighWater::through(last), HighWater::MAX);
        assert_eq!(HighWater::last_key(key(3, 9)), last);
        assert!(HighWater::MAX.covers(last));
        assert!(!HighWater::default().covers(key(3, 0)));
        let high_water = HighWater::through(key(3, 7));
        assert_eq!((high_water.keys(), HighWater::of(8)), (8, Some(high_water)));
        assert!(high_water.covers(key(3, 7)));
        assert!(!high_water.covers(key(3, 8)));
        assert_eq!(HighWater::of(HighWater::MAX.keys() + 1), None);
    }

    #[test]
    fn a_mark_is_authoritative_only_after_the_host_has_answered() {
        let high_water_marks = HighWaterMarks::default();
        assert!(!high_water_marks.confirm_absent(key(1, 5)));
        high_water_marks.raise(key(1, 7));
        assert!(!high_water_marks.confirm_absent(key(1, 8)), "the host may have what was loaded");
        high_water_marks.learn(key(1, 0), HighWater::through(key(1, 4)));
        assert!(
            !high_water_marks.confirm_absent(key(1, 5)),
            "what was installed before the host answered counts"
        );
        assert!(high_water_marks.confirm_absent(key(1, 8)));
        assert!(!high_water_marks.confirm_absent(key(2, 8)), "another group");
        high_water_marks.raise(key(1, 9));
        high_water_marks.raise(key(1, 2));
        assert!(!high_water_marks.confirm_absent(key(1, 9)), "a high_water does not fall");
        assert!(high_water_marks.confirm_absent(key(1, 10)));
    }

    #[test]
    fn groups_beyond_its_capacity_are_never_authoritative() {
        let high_water_marks = HighWaterMarks::new(STRIPES);
        let known = (0..10_000).filter(|&group| {
            high_water_marks.learn(key(group, 0), HighWater::default());
            high_water_marks.confirm_absent(key(group, 0))
        });
        assert_eq!(known.count(), STRIPES);
    }
}
