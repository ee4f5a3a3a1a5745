//! Where a core has searched last.

use std::cell::Cell;

use nicol_core::ids::Key;

use super::SPREAD;
use super::range_index::Near;

/// Searches whose ends are kept: several for each district of TPC-C.
const TRAILS: usize = 256;
/// Bits in which keys that are near each other may differ.
const NEAR_BITS: u32 = 8;

/// Where a core's searches in ordered tables have ended, each for the keys near it. Who goes on in
/// several places by turns, such as behind a district's last order and behind its last line, then
/// seldom begins at the root.
#[derive(Debug)]
pub struct Trails(Box<[Cell<Near>; TRAILS]>);

impl Default for Trails {
    fn default() -> Self {
        Self(Box::new([const { Cell::new(Near::NOWHERE) }; TRAILS]))
    }
}

impl Trails {
    /// Searches from where the last search for a key near `key` has ended.
    #[inline]
    pub fn follow<T>(&self, key: Key, search: impl FnOnce(&mut Near) -> T) -> T {
        let spread = (key.0 >> NEAR_BITS).wrapping_mul(SPREAD);
        let trail = &self.0[(spread >> (u64::BITS - TRAILS.ilog2())) as usize];
        let mut near = trail.get();
        let found = search(&mut near);
        trail.set(near);
        found
    }
}
