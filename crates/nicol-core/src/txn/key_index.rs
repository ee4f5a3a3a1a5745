//! Where a transaction's keys are among its entries.

use super::{Entry, KEYS_MAX};
use crate::ids::Key;

/// Keys up to which a look at every entry is as fast as a hash.
const FEW: usize = 8;
/// An odd factor whose product spreads neighbouring keys over the high bits: 2^64 by the golden
/// ratio.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;
/// High bits of the product that may choose a position: those of the largest index.
const POSITION_BITS: u32 = (4 * KEYS_MAX).ilog2();

const _: () = assert!(KEYS_MAX < u16::MAX as usize, "a position holds an entry's number");

/// A hash index over the entries, in a buffer that is kept from one transaction to the next.
///
/// The first entry with a key is the one that is found; there is no second one.
#[derive(Clone, Debug, Default)]
pub(super) struct KeyIndex {
    /// Numbers of entries, from 1, by open addressing; 0 is free. A power of two, at least twice
    /// the entries; nothing while there are few of them.
    positions: Vec<u16>,
}

impl KeyIndex {
    /// The entry of `key`. Cost: a few comparisons, however many entries there are.
    pub(super) fn find(&self, entries: &[Entry], key: Key) -> Option<usize> {
        if self.positions.is_empty() {
            return entries.iter().position(|entry| entry.key == key);
        }
        let mut at = self.first_position(key);
        while let Some(entry) = usize::from(self.positions[at]).checked_sub(1) {
            if entries[entry].key == key {
                return Some(entry);
            }
            at = self.next_position(at);
        }
        None
    }

    /// Notes the last of `entries`, whose key is new.
    pub(super) fn added(&mut self, entries: &[Entry]) {
        if entries.len() <= FEW {
            return;
        }
        if 2 * entries.len() > self.positions.len() {
            self.rebuild(entries);
        } else {
            self.insert(entries, entries.len() - 1);
        }
    }

    /// Makes it the index of `entries`.
    pub(super) fn rebuild(&mut self, entries: &[Entry]) {
        self.positions.clear();
        if entries.len() > FEW {
            self.positions.resize((4 * entries.len()).next_power_of_two(), 0);
            (0..entries.len()).for_each(|entry| self.insert(entries, entry));
        }
    }

    /// Makes it equal to `other`, in its own buffer.
    pub(super) fn copy_from(&mut self, other: &Self) {
        self.positions.clone_from(&other.positions);
    }

    fn insert(&mut self, entries: &[Entry], entry: usize) {
        let mut at = self.first_position(entries[entry].key);
        while self.positions[at] != 0 {
            at = self.next_position(at);
        }
        self.positions[at] = entry as u16 + 1;
    }

    fn first_position(&self, key: Key) -> usize {
        let spread = key.0.wrapping_mul(SPREAD) >> (u64::BITS - POSITION_BITS);
        spread as usize & (self.positions.len() - 1)
    }

    fn next_position(&self, position: usize) -> usize {
        (position + 1) & (self.positions.len() - 1)
    }
}
