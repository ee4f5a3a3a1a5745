//! The homes of keys, and how the table doubles: linear hashing over segments.
//!
//! A key's hash has two parts. Its high bits choose a *base slot* of the initial table. Its low
//! bits choose one of the segment's copies after the table has doubled. At level L there are
//! `segments << L` segments, and segment s of level L becomes s and `s + (segments << L)` of level
//! L + 1. Segments are split one at a time: half of the objects move, the others keep their home,
//! and memory is added in pieces.

use nicol_core::ids::Key;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::{Geometry, SEGMENT_SLOTS};

/// Seed of the slot hash. It differs from the partition hash's, in which all keys of a shard agree.
const SLOT_SEED: u64 = 0x7c15_9e37_79b9_4a7f;
/// Doublings that a table may make.
pub const LEVELS_MAX: u8 = 20;
/// Regions that one doubling adds at most, so that adding one takes no noticeable time.
const PIECES: u64 = 64;
/// Segments of the smallest such region; tests have small tables and want several.
const PIECE_MIN: u64 = if cfg!(test) { 4 } else { 256 };
/// Regions that a table may have.
pub(super) const CHUNKS_MAX: usize = 1 + PIECES as usize * LEVELS_MAX as usize;

/// A key's hash in the host table and in the NIC index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotHash(u64);

impl SlotHash {
    /// The hash of `key`.
    #[inline]
    pub fn of(key: Key) -> Self {
        Self(xxh3_64_with_seed(&key.0.to_le_bytes(), SLOT_SEED))
    }

    /// The segment among the first `segments` ones, those of level 0.
    #[inline]
    pub const fn base_segment(self, segments: u64) -> u64 {
        ((self.0 as u128 * segments as u128) >> 64) as u64
    }

    /// The slot among the first `slots` ones, those of level 0.
    #[inline]
    pub const fn base_slot(self, slots: u64) -> u64 {
        ((self.0 as u128 * slots as u128) >> 64) as u64
    }

    /// Which of a base segment's copies at `level`: that many low bits of the hash.
    pub const fn copy(self, level: u8) -> u64 {
        self.0 & ((1 << level) - 1)
    }

    /// A hash of the same low bits as far as `level`, and above them those of `copy`.
    pub(crate) const fn with_copy(self, level: u8, copy: u64) -> Self {
        Self(self.0 | copy << level)
    }

    /// Bits that tell keys of a segment apart; the bits of [`SlotHash::copy`] are among them.
    pub const fn tag(self) -> u32 {
        self.0 as u32
    }
}

const _: () = assert!(LEVELS_MAX < 32, "a tag holds the bits of every level");

/// How far a table has doubled: its level, and how many of that level's segments have been split.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Progress(u64);

const LEVEL_SHIFT: u32 = 56;

impl Progress {
    /// Level `level`, with `split` segments of it split.
    pub const fn new(level: u8, split: u64) -> Self {
        Self(((level as u64) << LEVEL_SHIFT) | split)
    }

    /// The level that every segment has reached.
    pub const fn level(self) -> u8 {
        (self.0 >> LEVEL_SHIFT) as u8
    }

    /// Segments that have reached the next level, from the first on.
    pub const fn split(self) -> u64 {
        self.0 & ((1 << LEVEL_SHIFT) - 1)
    }

    /// As one word that grows with every split.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The opposite of [`Progress::word`].
    pub const fn from_word(word: u64) -> Self {
        Self(word)
    }

    /// After one more split, where the table began with `segments` segments.
    pub(crate) const fn next(self, segments: u64) -> Self {
        if self.split() + 1 == segments << self.level() {
            Self::new(self.level() + 1, 0)
        } else {
            Self(self.0 + 1)
        }
    }
}

/// The slot that a key hashes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// Its segment, counted through the whole table.
    pub segment: u64,
    pub(super) chunk: u32,
    /// The slot, within the chunk.
    pub(super) slot: u64,
}

impl Home {
    /// The segment's number within its chunk.
    pub(super) const fn local(self) -> u64 {
        self.slot / SEGMENT_SLOTS
    }
}

impl Geometry {
    const fn piece_segments(&self, round: u32) -> u64 {
        let piece = (self.segments() << round).div_ceil(PIECES).next_power_of_two();
        if piece < PIECE_MIN { PIECE_MIN } else { piece }
    }

    /// The chunk of a segment, and the segment's number within it.
    #[inline]
    pub(super) fn locate(&self, segment: u64) -> (u32, u64) {
        if segment < self.segments() {
            return (0, segment);
        }
        self.locate_added(segment)
    }

    /// The same of a segment that the table has grown by.
    fn locate_added(&self, segment: u64) -> (u32, u64) {
        let round = (segment / self.segments()).ilog2();
        let (piece, local) = (self.piece_segments(round), segment - (self.segments() << round));
        let chunk = 1 + u64::from(round) * PIECES + local / piece;
        (chunk as u32, local % piece)
    }

    /// Segments that a chunk has space for.
    #[inline]
    pub(super) fn chunk_segments(&self, chunk: u32) -> u64 {
        match chunk.checked_sub(1) {
            None => self.segments(),
            Some(piece) => self.piece_segments(piece / PIECES as u32),
        }
    }

    /// The segment of a hash at a level.
    #[inline]
    pub(super) fn segment_at(&self, hash: SlotHash, level: u8) -> u64 {
        hash.base_segment(self.segments()) + self.segments() * hash.copy(level)
    }

    /// A hash in this segment of level 0 that ends in these bits, as many as a table may double.
    pub(super) fn hash_in(&self, base: u64, low_bits: u64) -> SlotHash {
        let first = (u128::from(base) << 64).div_ceil(u128::from(self.segments()));
        let whole = (first as u64).next_multiple_of(1 << LEVELS_MAX);
        SlotHash(whole + low_bits)
    }

    /// The home of a hash in a table that has doubled so far.
    #[inline]
    pub fn home(&self, hash: SlotHash, progress: Progress) -> Home {
        let low = self.segment_at(hash, progress.level());
        let split = low < progress.split();
        let segment = if split { self.segment_at(hash, progress.level() + 1) } else { low };
        let (chunk, local) = self.locate(segment);
        let slot = local * SEGMENT_SLOTS + hash.base_slot(self.slots()) % SEGMENT_SLOTS;
        Home { segment, chunk, slot }
    }

    /// The progress of the table that a segment proves whose header says `level`.
    pub fn progress_of(&self, segment: u64, level: u8) -> Progress {
        let Some(below) = level.checked_sub(1) else { return Progress::default() };
        let first = self.segments() << below;
        let split = if segment < first { segment } else { segment - first };
        Progress::new(below, split).next(self.segments())
    }
}
