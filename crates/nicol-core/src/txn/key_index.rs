//! Where a transaction's keys are among its entries.

use super::{Entry, KEYS_MAX};
use crate::ids::Key;

/// Keys up to which a look at every entry is as fast as a hash.
const FEW: usize = 8;
/// An odd factor whose product spreads neighbouring keys over the high bits: 2^64 by the golden
/// ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// High bits of the product that may choose a place: those of the largest index.
const PLACE_BITS: u32 = (4 * KEYS_MAX).ilog2();

const _: () = assert!(KEYS_MAX < u16::MAX as usize, "a place holds an entry's number");

/// A hash index over the entries, in a buffer that is kept from one transaction to the next.
///
/// The first entry with a key is the one that is found; there is no second one.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyIndex {
    /// Numbers of entries, from 1, by open addressing; 0 is free. A power of two, at least twice
    /// the entries; nothing while there are few of them.
    places: Vec<u16>,
}

impl KeyIndex {
    /// The entry of `key`. Cost: a few comparisons, however many entries there are.
    pub(super) fn find(&self, entries: &[Entry], key: Key) -> Option<usize> {
        if self.places.is_empty() {
            return entries.iter().position(|entry| entry.key == key);
        }
        let mut at = self.first_place(key);
        while let Some(entry) = usize::from(self.places[at]).checked_sub(1) {
            if entries[entry].key == key {
                return Some(entry);
            }
            at = self.next_place(at);
        }
        None
    }

    /// Notes the last of `entries`, whose key is new.
    pub(super) fn added(&mut self, entries: &[Entry]) {
        if entries.len() <= FEW {
            return;
        }
        if 2 * entries.len() > self.places.len() {
            self.rebuild(entries);
        } else {
            self.insert(entries, entries.len() - 1);
        }
    }

    /// Makes it the index of `entries`.
    pub(super) fn rebuild(&mut self, entries: &[Entry]) {
        self.places.clear();
        if entries.len() > FEW {
            self.places.resize((4 * entries.len()).next_power_of_two(), 0);
            (0..entries.len()).for_each(|entry| self.insert(entries, entry));
        }
    }

    /// Makes it equal to `other`, in its own buffer.
    pub(super) fn copy_from(&mut self, other: &Self) {
        self.places.clone_from(&other.places);
    }

    fn insert(&mut self, entries: &[Entry], entry: usize) {
        let mut at = self.first_place(entries[entry].key);
        while self.places[at] != 0 {
            at = self.next_place(at);
        }
        self.places[at] = entry as u16 + 1;
    }

    fn first_place(&self, key: Key) -> usize {
        let spread = key.0.wrapping_mul(SPREAD) >> (u64::BITS - PLACE_BITS);
        spread as usize & (self.places.len() - 1)
    }

    fn next_place(&self, place: usize) -> usize {
        (place + 1) & (self.places.len() - 1)
    }
}
