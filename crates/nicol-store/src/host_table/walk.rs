//! Walking a table, a segment at a time, while it is written and grows.
//!
//! The order is that of the keys' hashes: the segments of level 0 one after the other, and in each
//! the hashes by their low bits, the lowest bit first. Whatever its level, a segment holds one range
//! of this order, and a split halves the range. So a position says what has been walked, and the
//! table remembers nothing of who walks it: what is in the table from the first step to the last is
//! met once, whatever else comes and goes. A table made with other slots has another order.

use nicol_core::ids::Key;

use super::address::{LEVELS_MAX, Progress, SlotHash};
use super::writer::Position;
use super::{Geometry, HostTable, SEGMENT_SLOTS};

/// Bits of a position that order the hashes of a segment of level 0.
const LOW_BITS: u32 = LEVELS_MAX as u32;

/// A position in the order in which a table is walked. The default is the first one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WalkPosition(u64);

/// The hashes that a step goes over: those that agree with one in its segment of level 0 and in so
/// many low bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkRange {
    /// One of them.
    pub(crate) hash: SlotHash,
    /// The number of low bits in which the others agree with it.
    pub(crate) level: u8,
}

impl WalkPosition {
    /// As one word; positions that come later have greater ones.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The opposite of [`WalkPosition::word`]; any word will do.
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// The position before which a share `draw` / 2^64 of the table stands.
    pub fn at_share(table: &HostTable, draw: u64) -> Self {
        let positions = u128::from(table.geometry().segments()) << LOW_BITS;
        Self(((u128::from(draw) * positions) >> 64) as u64)
    }

    /// The hashes that a step from here goes over at the least; `None` behind the end.
    pub fn range(self, table: &HostTable) -> Option<WalkRange> {
        let geometry = table.geometry();
        let (base, level) = (self.base(), self.segment(geometry, table.progress())?.1);
        Some(WalkRange { hash: geometry.hash_in(base, self.low_bits(level)), level })
    }

    /// Calls `each` with every key of the segment here, and returns the position behind it; `None`:
    /// it was the last one, or this is behind the end.
    ///
    /// Cost: the writer's mutex for a look at the segment's slots.
    pub fn step(self, table: &HostTable, each: &mut dyn FnMut(Key)) -> Option<Self> {
        let _writer = table.writer();
        let (geometry, progress) = (table.geometry(), table.progress());
        let (segment, level) = self.segment(geometry, progress)?;
        let (chunk, local) = geometry.locate(segment);
        let first = local * SEGMENT_SLOTS;
        // An object stands less than D_m behind its home.
        let slots = first..first + SEGMENT_SLOTS + geometry.probe_length() - 1;
        let positions = slots.map(|slot| Position::Slot { chunk, slot });
        for key in positions.filter_map(|position| table.key_of(position)) {
            if geometry.home(SlotHash::of(key), progress).segment == segment {
                each(key);
            }
        }
        let overflow = table.overflow_of(chunk, local);
        overflow.filter_map(|position| table.key_of(position)).for_each(each);
        let width = 1 << (LOW_BITS - u32::from(level));
        let behind = Self((self.0 / width + 1) * width);
        (behind.base() < geometry.segments()).then_some(behind)
    }

    /// The segment of level 0.
    const fn base(self) -> u64 {
        self.0 >> LOW_BITS
    }

    /// The lowest `level` bits of the hashes here.
    const fn low_bits(self, level: u8) -> u64 {
        let low = self.0 & ((1 << LOW_BITS) - 1);
        (low << (u64::BITS - LOW_BITS)).reverse_bits() & ((1 << level) - 1)
    }

    /// The segment that holds the hashes here, and its level.
    const fn segment(self, geometry: Geometry, progress: Progress) -> Option<(u64, u8)> {
        let (segments, level) = (geometry.segments(), progress.level());
        if self.base() >= segments {
            return None;
        }
        let whole = self.base() + segments * self.low_bits(level);
        if whole >= progress.split() {
            return Some((whole, level));
        }
        Some((self.base() + segments * self.low_bits(level + 1), level + 1))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nicol_core::ids::Version;
    use nicol_core::units::Bytes;

    use super::super::Growth;
    use super::*;

    const STAY: u64 = 600;

    fn table() -> HostTable {
        let growth = Growth::Doubling { memory_max: Bytes(1 << 24) };
        HostTable::new(Geometry::new(64, 8, 0), 1 << 20, growth)
    }

    fn apply(table: &HostTable, key: u64, version: u64, value: Option<&[u8]>) {
        table.apply(Key(key), Version(version), value);
        table.advance(2);
    }

    #[test]
    fn what_stays_is_met_once_while_the_table_grows_and_others_come_and_go() {
        for pace in [0, 8, 40] {
            let table = table();
            (0..STAY).for_each(|key| apply(&table, key, 1, Some(b"stays")));
            let (mut at, mut seen, mut next) = (WalkPosition::default(), BTreeMap::new(), 10_000);
            let (mut version, before) = (2, table.segments());
            loop {
                let range = at.range(&table).expect("it is not behind the end");
                let behind = at.step(&table, &mut |key| {
                    let hash = SlotHash::of(key);
                    let level = range.level;
                    assert_eq!(hash.copy(level), range.hash.copy(level), "{key:?} is in its range");
                    *seen.entry(key.0).or_insert(0) += 1;
                });
                for _ in 0..pace {
                    apply(&table, next, version, Some(b"comes"));
                    apply(&table, next - 1, version + 1, None);
                    apply(&table, next + 100_000, version, Some(b"grows"));
                    (next, version) = (next + 1, version + 2);
                }
                let Some(behind) = behind else { break };
                assert!(behind > at && WalkPosition::from_word(behind.word()) == behind);
                at = behind;
            }
            assert!((0..STAY).all(|key| seen.get(&key) == Some(&1)), "at pace {pace}");
            assert_eq!(table.segments() > before, pace > 0, "it has grown at pace {pace}");
            assert_eq!(WalkPosition::from_word(u64::MAX).step(&table, &mut |_| {}), None);
            table.check();
        }
    }

    #[test]
    fn a_walk_from_any_share_is_inside() {
        let table = table();
        (0..STAY).for_each(|key| apply(&table, key, 1, Some(b"")));
        for draw in [0, 1, u64::MAX / 3, u64::MAX] {
            let at = WalkPosition::at_share(&table, draw);
            assert!(at.range(&table).is_some(), "{draw}");
        }
        assert_eq!(WalkPosition::at_share(&table, 0), WalkPosition::default());
    }
}
