//! High-water marks: which keys of ordered tables were never there.
//!
//! Orders, events and the like are entered above all that were entered before. So both sides of a
//! node know of each *group* of keys how far up there ever was a record: a key above that has
//! version 0, and an insert of it is the first write that it ever sees. [AMB-36] The host finds the
//! high-water mark of a group in its tree; the NIC keeps it, so that it need not ask. [Xenic21
//! 4.2.2]

use std::sync::{Mutex, MutexGuard, PoisonError};

use nicol_core::ids::{IdMap, Key};

/// Bits of a key within its group. In TPC-C a group is a district's orders, or a customer's:
/// smaller than a version range, where a new order of one customer is between those of others.
const GROUP_BITS: u32 = 24;
/// Groups that a NIC knows, 24 bytes each; of others it asks its host.
const GROUPS_MAX: usize = 1 << 24;
const STRIPES: usize = 64;

const _: () = assert!(GROUPS_MAX.is_multiple_of(STRIPES), "the stripes share the groups evenly");

/// The group of a key.
pub(crate) const fn prefix_group(key: Key) -> u64 {
    key.0 >> GROUP_BITS
}

/// How far up a group may ever have had records: as many of its lowest keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HighWater(u32);

impl HighWater {
    /// All keys of a group.
    pub const MAX: Self = Self(1 << GROUP_BITS);

    /// Up to `key`.
    pub const fn through(key: Key) -> Self {
        Self((key.0 as u32 & (Self::MAX.0 - 1)) + 1)
    }

    /// May there have been a record of `key`, of the same group?
    pub const fn covers(self, key: Key) -> bool {
        Self::through(key).0 <= self.0
    }

    /// The number of keys.
    pub const fn keys(self) -> u32 {
        self.0
    }

    /// As many of the lowest keys; `None` if a group has fewer.
    pub const fn of(keys: u32) -> Option<Self> {
        if keys <= Self::MAX.0 { Some(Self(keys)) } else { None }
    }

    /// The greatest key of the group of `key`.
    pub(crate) const fn last_key(key: Key) -> Key {
        Key(key.0 | (Self::MAX.0 - 1) as u64)
    }
}

/// What a NIC knows of a group.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// All that was installed, and all that the host had when it answered.
    high_water: HighWater,
    /// Has the host answered?
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

    /// A write of `key` is about to be installed.
    pub(crate) fn raise(&self, key: Key) {
        self.note(key, Known { high_water: HighWater::through(key), authoritative: false });
    }

    /// The host has answered with the high-water mark of `key`'s group.
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

    /// Is it certain that there never was a record of `key`?
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
    fn nothing_is_certain_before_the_host_has_told() {
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
    fn groups_beyond_its_room_are_never_certain() {
        let high_water_marks = HighWaterMarks::new(STRIPES);
        let known = (0..10_000).filter(|&group| {
            high_water_marks.learn(key(group, 0), HighWater::default());
            high_water_marks.confirm_absent(key(group, 0))
        });
        assert_eq!(known.count(), STRIPES);
    }
}
