//! When keys were last accessed, or how often: about, and in four bytes of the front for each.
//!
//! A row of the store has a slot by its hash. Two rows may share one, and then share its time too:
//! a cold key may so stay longer than it should, and a hot one is never taken for a cold one. What
//! stands in no slot yet counts as accessed at the start.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nicol_core::ids::Key;

/// Slots of a piece, which is a page; a piece is made at its first access.
const PIECE: usize = 1_024;
/// Bytes of the store's memory for each slot: a pair of 16 and 100 bytes takes 200 in each copy.
const BYTES_PER_SLOT: u64 = 256;
/// Slots of a store whose memory has no limit, in bits; also the most and the least.
const BITS_UNLIMITED: u32 = 20;
const BITS_MAX: u32 = 32;
const BITS_MIN: u32 = 10;
/// The unit of time of last accesses, in bits of milliseconds: 64 ms, so that a word lasts 8 years.
const TICK_BITS: u32 = 6;
/// Minutes and count in a slot: 24 and 8 bits.
const COUNT_BITS: u32 = 8;
/// The count of a key that is new: others must not overtake it before it could be read again.
/// Redis' LFU_INIT_VAL.
pub const COUNT_NEW: u8 = 5;

/// How counts grow and shrink, as Redis has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counting {
    /// Above [`COUNT_NEW`], a count of n grows with probability 1 / ((n - 5) * factor + 1).
    pub log_factor: u32,
    /// Minutes without an access after which it shrinks by 1; 0: never.
    pub decay_minutes: u32,
}

/// The slots.
#[derive(Debug)]
pub struct Accesses {
    pieces: Box<[OnceLock<Box<[AtomicU32]>>]>,
    /// A row's place is its hash without so many low bits.
    shift: u32,
    /// Since the start, in ticks: coarse, so that no access asks for the time.
    now: AtomicU32,
}

impl Accesses {
    /// For a store whose memory has this limit.
    pub fn new(limit: Option<u64>) -> Self {
        let slots = limit.map_or(1 << BITS_UNLIMITED, |bytes| bytes / BYTES_PER_SLOT);
        let bits = slots.max(1).ilog2().clamp(BITS_MIN, BITS_MAX);
        let pieces = (0..(1_usize << bits) / PIECE).map(|_| OnceLock::new()).collect();
        Self { pieces, shift: u64::BITS - bits, now: AtomicU32::new(0) }
    }

    /// It is so long since the start.
    pub fn tick(&self, elapsed: Duration) {
        let now = (elapsed.as_millis() >> TICK_BITS) as u32;
        if now != self.now.load(Ordering::Relaxed) {
            self.now.store(now, Ordering::Relaxed);
        }
    }

    /// `row` is accessed now.
    pub fn touch(&self, row: Key) {
        self.slot(row).store(self.now.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// `row` is accessed now, and accesses are counted; `draw` decides.
    pub fn count(&self, row: Key, draw: u32, counting: Counting) {
        let slot = self.slot(row);
        let count = self.decayed(slot.load(Ordering::Relaxed), counting);
        let above = u64::from(count.saturating_sub(COUNT_NEW));
        // As Redis: draw / 2^32 < 1 / (above * factor + 1).
        let odds = above * u64::from(counting.log_factor) + 1;
        let grows = u64::from(draw) * odds < 1 << u32::BITS;
        slot.store(self.word(count.saturating_add(u8::from(grows))), Ordering::Relaxed);
    }

    /// How long `row` has not been accessed.
    pub fn idle(&self, row: Key) -> Duration {
        let last = self.look(row).unwrap_or(0);
        let ticks = self.now.load(Ordering::Relaxed).saturating_sub(last);
        Duration::from_millis(u64::from(ticks) << TICK_BITS)
    }

    /// How often it is accessed: a logarithm, as Redis counts.
    pub fn frequency(&self, row: Key, counting: Counting) -> u8 {
        self.decayed(self.look(row).unwrap_or(0), counting)
    }

    /// Forgets all: times are read as counts from here on, or the reverse.
    pub fn clear(&self) {
        for slot in self.pieces.iter().filter_map(OnceLock::get).flatten() {
            slot.store(0, Ordering::Relaxed);
        }
    }

    /// `row` has been evicted: a key that comes there is new.
    pub fn forget(&self, row: Key) {
        if self.look(row).is_some() {
            self.slot(row).store(self.word(COUNT_NEW), Ordering::Relaxed);
        }
    }

    /// Bytes of the slots made so far.
    pub fn bytes(&self) -> u64 {
        let made = self.pieces.iter().filter(|piece| piece.get().is_some()).count();
        (made * PIECE * size_of::<AtomicU32>() + size_of_val(&*self.pieces)) as u64
    }

    /// The count in a word, less what it has lost since.
    fn decayed(&self, word: u32, Counting { decay_minutes, .. }: Counting) -> u8 {
        if word == 0 {
            return COUNT_NEW;
        }
        let since = self.minutes().saturating_sub(word >> COUNT_BITS);
        let lost = since.checked_div(decay_minutes).unwrap_or(0);
        (word as u8).saturating_sub(lost.min(u8::MAX.into()) as u8)
    }

    fn word(&self, count: u8) -> u32 {
        self.minutes() << COUNT_BITS | u32::from(count)
    }

    fn minutes(&self) -> u32 {
        let ticks = u64::from(self.now.load(Ordering::Relaxed));
        // Minutes of 24 bits last as long as the ticks.
        ((ticks << TICK_BITS) / 60_000) as u32
    }

    fn place(&self, row: Key) -> (usize, usize) {
        let hash = row.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> self.shift;
        (hash as usize / PIECE, hash as usize % PIECE)
    }

    fn look(&self, row: Key) -> Option<u32> {
        let (piece, within) = self.place(row);
        Some(self.pieces[piece].get()?[within].load(Ordering::Relaxed))
    }

    fn slot(&self, row: Key) -> &AtomicU32 {
        let (piece, within) = self.place(row);
        let make = || (0..PIECE).map(|_| AtomicU32::new(0)).collect();
        &self.pieces[piece].get_or_init(make)[within]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTING: Counting = Counting { log_factor: 10, decay_minutes: 1 };

    #[test]
    fn idle_time_goes_from_the_last_access_or_the_start() {
        let accesses = Accesses::new(Some(1 << 20));
        accesses.tick(Duration::from_secs(64));
        assert_eq!(accesses.idle(Key(1)), Duration::from_secs(64));
        accesses.touch(Key(1));
        accesses.tick(Duration::from_secs(96));
        assert_eq!(accesses.idle(Key(1)), Duration::from_secs(32));
        assert_eq!(accesses.idle(Key(2)), Duration::from_secs(96));
    }

    #[test]
    fn counts_grow_ever_slower_and_shrink_each_minute() {
        let accesses = Accesses::new(None);
        let of = |key| accesses.frequency(Key(key), COUNTING);
        assert_eq!(of(1), COUNT_NEW);
        // Up to 5 each access counts, whatever is drawn.
        accesses.count(Key(1), u32::MAX, COUNTING);
        assert_eq!(of(1), COUNT_NEW + 1);
        accesses.count(Key(1), u32::MAX, COUNTING);
        assert_eq!(of(1), COUNT_NEW + 1);
        accesses.count(Key(1), u32::MAX / 12, COUNTING);
        assert_eq!(of(1), COUNT_NEW + 2);
        accesses.tick(Duration::from_secs(150));
        assert_eq!(of(1), COUNT_NEW);
        accesses.tick(Duration::from_hours(24));
        assert_eq!(of(1), 0);
        assert_eq!(accesses.frequency(Key(1), Counting { decay_minutes: 0, ..COUNTING }), 7);
        accesses.forget(Key(1));
        assert_eq!(of(1), COUNT_NEW);
    }

    #[test]
    fn an_empty_store_has_made_no_slots_and_a_full_one_two_percent_of_its_memory() {
        let accesses = Accesses::new(Some(1 << 30));
        assert!(accesses.bytes() < 1 << 20, "{}", accesses.bytes());
        (0..1 << 20).for_each(|key| accesses.touch(Key(key)));
        assert!(accesses.bytes() < 1 << 25, "{}", accesses.bytes());
    }
}
