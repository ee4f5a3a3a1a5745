//! Xenic's host store: a Robinhood table that a NIC reads by DMA. [Xenic21 4.1.2]
//!
//! Closed hashing with linear probing. Objects are ordered by home along a run, the result of
//! Robinhood's swaps. D_m bounds the insertion's probe: if no slot is free within D_m of the new
//! object's home, it goes to the overflow pages of its home's segment and nothing moves (AMB-01),
//! so every object in the table is within D_m of its home.
//!
//! One writer at a time (a mutex inside); readers take no lock. An object moves by being copied
//! before its old slot is overwritten. A reader, which reads upwards, always meets an object that
//! moves to the right. During a move to the left (deletion) or to another segment (growth) the
//! segment's move counter is odd, and a reader that found nothing checks the counter again.
//!
//! The table doubles without stopping, by linear hashing over its segments: see [`Growth`] and
//! `address`. A record that is found is current wherever it was found, because moved records are
//! cleared from their old segment. A reader that found nothing learns from the segment's header
//! whether the table has grown meanwhile. The paper's table does not grow.
//!
//! Memory: `slot_bytes` (40 and the inline bytes; 32 where every value stands in a block) per slot,
//! 32 per segment of 16 slots, four slots and a word per overflow page; a value out of line takes
//! 16 bytes and itself, rounded up to a size class (see `size_class`). Blocks of a class share
//! slabs of up to 64 kB. The memory of an empty slab goes back to the system, and values of a
//! sparse class are moved together.
//!
//! This folder owns the table's fields. Here: its shape, its counters, admission and growth. `read`
//! looks up and `writer` changes; a `Split` grows the table by one segment, an `Audit` goes over
//! all of it, and a [`WalkPosition`] over a part.

mod address;
mod check;
mod compaction;
mod exhausted;
mod heap;
mod layout;
mod memory;
mod read;
mod size_class;
mod split;
mod walk;
mod writer;

use std::fmt;
use std::num::NonZeroU64;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::ids::{Key, Version};
use nicol_core::memory::{Copies, Region, WORD};
use nicol_core::units::Bytes;

pub use address::{Home, LEVELS_MAX, Progress, SlotHash};
use check::Audit;
pub use check::LocatedRecord;
pub use exhausted::ExhaustedSpace;
use layout::slot_bytes;
pub use layout::{BlockRef, INLINE_MAX, SlotView, StoredValue};
use memory::Chunks;
use split::Split;
pub use walk::{WalkPosition, WalkRange};
use writer::Writer;

use crate::digest;

/// Slots of a segment: the unit of the NIC's hints, of overflow and of growth.
pub const SEGMENT_SLOTS: u64 = 16;
/// Words of a segment's header: move counter, overflow link, floor, level.
const HEADER_BYTES: u64 = 4 * WORD as u64;
/// Slots of an overflow page; a link word follows them.
pub const PAGE_SLOTS: u64 = 4;
/// Bytes of the unit in which the system gives memory.
const PAGE_BYTES: u64 = 4_096;
/// Load in percent at which a table doubles: the load at which Xenic measures lookups. [4.1.4]
pub const LOAD_MAX_PERCENT: u64 = 90;

/// A table's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    slots: u64,
    displacement_max: u16,
    inline: usize,
}

impl Geometry {
    /// `slots` slots to begin with (rounded up to segments), displacement limit D_m, and values of
    /// up to `inline` bytes in the slot. 0: every value stands in a block, and slots are short.
    ///
    /// # Panics
    /// If D_m is 0 or beyond a segment's reach (64), or `inline` is not 0 or 8 to 256.
    pub fn new(slots: u64, displacement_max: u16, inline: usize) -> Self {
        assert!((1..=64).contains(&displacement_max), "D_m is 1 to 64 slots");
        let stands = inline == 0 || (8..=INLINE_MAX).contains(&inline);
        assert!(stands, "no bytes or 8 to {INLINE_MAX} stand in a slot");
        let slots = slots.max(1).next_multiple_of(SEGMENT_SLOTS);
        Self { slots, displacement_max, inline }
    }

    /// Slots that keys may hash to before the table grows; D_m - 1 more follow each region of them,
    /// so that a run never wraps around.
    pub const fn slots(&self) -> u64 {
        self.slots
    }

    /// D_m.
    pub const fn displacement_max(&self) -> u16 {
        self.displacement_max
    }

    /// Bytes of a slot.
    pub const fn slot_bytes(&self) -> u64 {
        slot_bytes(self.inline)
    }

    /// Does a value of so many bytes stand in the slot?
    const fn stands_in_slot(&self, len: usize) -> bool {
        self.inline > 0 && len <= self.inline
    }

    /// Bytes of an overflow page.
    pub const fn page_bytes(&self) -> u64 {
        PAGE_SLOTS * self.slot_bytes() + WORD as u64
    }

    /// Segments before the table grows.
    pub const fn segments(&self) -> u64 {
        self.slots / SEGMENT_SLOTS
    }

    const fn probe_length(&self) -> u64 {
        self.displacement_max as u64
    }

    /// Slots of a chunk, those behind its last segment included.
    fn chunk_slots(&self, chunk: u32) -> u64 {
        self.chunk_segments(chunk) * SEGMENT_SLOTS + self.probe_length() - 1
    }

    fn chunk_bytes(&self, chunk: u32) -> u64 {
        self.slot_offset(chunk, self.chunk_slots(chunk))
    }

    /// Headers come first, then slots.
    #[inline]
    fn slot_offset(&self, chunk: u32, slot: u64) -> u64 {
        self.chunk_segments(chunk) * HEADER_BYTES + slot * self.slot_bytes()
    }
}

/// The growth policy of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The table keeps its initial slots and stores the records that it was made for.
    Off,
    /// The table doubles when it is [`LOAD_MAX_PERCENT`] full, up to a limit of memory for slots,
    /// overflow pages and values.
    Doubling {
        /// Limit in bytes. Beyond it no segment is split, and inserts beyond the load limit are
        /// refused, as are values out of line for which no block is free
        /// ([`HostTable::exhausted_space`]).
        memory_max: Bytes,
    },
}

/// The result of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The record's version; of an absent one, its segment's floor.
    pub version: Version,
    /// Does the record exist?
    pub present: bool,
}

/// The effect of an applied write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The record was inserted, replaced or deleted.
    Changed,
    /// The table already had this version or a newer one.
    Skipped,
}

/// The effect of [`HostTable::advance`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// Segments split.
    pub segments: u64,
    /// Records examined; about half of them moved.
    pub records: u64,
}

impl Advance {
    /// The effect of both together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        let (segments, records) = (self.segments, self.records);
        Self { segments: segments + other.segments, records: records + other.records }
    }
}

/// A range of memory that a NIC reads by DMA.
#[derive(Clone, Debug)]
pub struct Span {
    /// The region.
    pub region: Arc<Region>,
    /// First byte.
    pub offset: u64,
    /// Bytes.
    pub len: usize,
}

/// A segment's header as DMA finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentHeader {
    /// Odd while an object moves to the left or away; changes with every such move.
    pub moves: u64,
    /// The first overflow page.
    pub overflow: Option<PageRef>,
    /// The highest version at which a key of the segment was deleted.
    pub floor: Version,
    /// The level of the segment's hash bits; it grows when the segment is split.
    pub level: u8,
}

/// An overflow page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PageRef(pub(crate) NonZeroU64);

impl PageRef {
    const fn parse(word: u64) -> Option<Self> {
        match NonZeroU64::new(word) {
            Some(word) => Some(Self(word)),
            None => None,
        }
    }

    const fn new(chunk: u32, page: u32) -> Self {
        Self(NonZeroU64::MIN.saturating_add(((chunk as u64) << 32) | page as u64))
    }

    const fn chunk(self) -> u32 {
        (self.0.get() >> 32) as u32
    }

    const fn page(self) -> u64 {
        (self.0.get() as u32 - 1) as u64
    }
}

/// See the module documentation.
pub struct HostTable {
    geometry: Geometry,
    growth: Growth,
    records_max: u64,
    slots: Chunks,
    pages: Chunks,
    heap: Chunks,
    writer: Mutex<Writer>,
    progress: AtomicU64,
    /// True if a doubling is under way, or due.
    growing: AtomicBool,
    len: AtomicU64,
    overflowed: AtomicU64,
    memory: AtomicU64,
}

impl HostTable {
    /// An empty table for `records_max` records. The limit applies to admission: see
    /// [`HostTable::has_capacity`].
    pub fn new(geometry: Geometry, records_max: u64, growth: Growth) -> Self {
        let slots = Chunks::new(address::CHUNKS_MAX);
        let size = geometry.chunk_bytes(0);
        slots.add(0, size);
        Self {
            geometry,
            growth,
            records_max,
            slots,
            pages: Chunks::new(memory::CHUNKS_MAX),
            heap: Chunks::new(memory::CHUNKS_MAX),
            writer: Mutex::new(Writer::new(geometry.slot_bytes())),
            progress: AtomicU64::new(Progress::default().word()),
            growing: AtomicBool::new(false),
            len: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            memory: AtomicU64::new(size),
        }
    }

    /// A deep copy with every record in the same slot. Requires exclusive access.
    ///
    /// Cost: a copy of the memory, a fraction of inserting the records.
    pub fn copy_in(&self, pages: Copies) -> Self {
        let writer = self.writer().clone();
        let word = |word: &AtomicU64| AtomicU64::new(word.load(Ordering::Relaxed));
        Self {
            geometry: self.geometry,
            growth: self.growth,
            records_max: self.records_max,
            slots: self.slots.copy_in(pages),
            pages: self.pages.copy_in(pages),
            heap: self.heap.copy_in(pages),
            writer: Mutex::new(writer),
            progress: word(&self.progress),
            growing: AtomicBool::new(self.growing.load(Ordering::Relaxed)),
            len: word(&self.len),
            overflowed: word(&self.overflowed),
            memory: word(&self.memory),
        }
    }

    /// Its shape.
    pub fn geometry(&self) -> Geometry {
        self.geometry
    }

    /// Records in it.
    pub fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    /// Returns true if there are no records.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records in overflow pages.
    pub fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// Host memory that it takes.
    pub fn memory(&self) -> Bytes {
        Bytes(self.memory.load(Ordering::Relaxed))
    }

    /// Of it, what the system has given by now, at the most: of the first slots as many pages as
    /// there are records.
    pub fn resident(&self) -> Bytes {
        let first = self.geometry.chunk_bytes(0);
        let touched = first.min(self.len() * PAGE_BYTES);
        Bytes(self.memory().0 - first + touched)
    }

    /// How far it has doubled.
    pub fn progress(&self) -> Progress {
        Progress::from_word(self.progress.load(Ordering::Acquire))
    }

    /// Segments that it has now.
    pub fn segments(&self) -> u64 {
        let progress = self.progress();
        (self.geometry.segments() << progress.level()) + progress.split()
    }

    /// Slots that keys may hash to now.
    pub fn slots(&self) -> u64 {
        self.segments() * SEGMENT_SLOTS
    }

    /// Returns true if a transaction may insert a record. Checked before commit: a committed insert
    /// is always stored, since overflow pages grow.
    ///
    /// Always true below the number of records that the table was made for. Beyond it, a table that
    /// may grow has capacity while there is memory to grow into and growth keeps up, or while it is
    /// below its load limit.
    pub fn has_capacity(&self) -> bool {
        if self.len() < self.records_max {
            return true;
        }
        match self.growth {
            Growth::Off => false,
            // Twice its slots: the workers that split segments are far behind.
            Growth::Doubling { .. } => {
                !self.is_loaded() || self.may_split() && self.len() < 2 * self.slots()
            }
        }
    }

    /// The writes that a transaction may no longer make. Checked before commit.
    ///
    /// Cost: two loads; more once the records that it was made for are there, and the writer's
    /// mutex once the memory is used up.
    pub fn exhausted_space(&self) -> ExhaustedSpace {
        let sizes = match self.room() {
            0 => exhausted::sizes_of(&self.writer().heap),
            room => exhausted::sizes_beyond(room),
        };
        ExhaustedSpace::new(sizes, self.geometry.inline, !self.has_capacity())
    }

    /// Splits up to `segments` segments of a table that is doubling, or must begin to.
    ///
    /// A doubling keeps up with inserts if one segment is split per insert: a segment holds about
    /// 14 records, so the doubling ends before the load has risen by a tenth. Cost: one atomic load
    /// if there is nothing to do; else about [`SEGMENT_SLOTS`] reads and half as many moves per
    /// segment, and sometimes a new region of 1/64 of the table. Readers that find nothing in the
    /// segment wait until it is split; other readers are not affected. Stops when memory is used
    /// up.
    #[inline]
    pub fn advance(&self, segments: u64) -> Advance {
        if self.growing.load(Ordering::Relaxed) { self.grow(segments) } else { Advance::default() }
    }

    fn grow(&self, segments: u64) -> Advance {
        let mut done = Advance::default();
        let writer = &mut *self.writer();
        while done.segments < segments && self.growing.load(Ordering::Relaxed) {
            if !self.may_split() {
                break;
            }
            done.records += Split::next(self).run(writer);
            done.segments += 1;
            // Whole rounds: half-way, segments that are not yet split are fuller than the average.
            let under_way = self.progress().split() != 0 || self.is_loaded();
            self.growing.store(under_way, Ordering::Relaxed);
        }
        done
    }

    /// Calls `each` with every record, in the order of the table's memory. Writers wait.
    pub fn for_each(&self, each: &mut dyn FnMut(Key, Version, &[u8])) {
        Audit::of(self).each_position(|_, key, version, value| each(key, version, value));
    }

    /// Like `for_each`, with each record's location.
    pub fn for_each_located(&self, each: &mut dyn FnMut(LocatedRecord<'_>)) {
        Audit::of(self).each_located(each);
    }

    /// A digest of all records that does not depend on their location.
    pub fn digest(&self) -> u64 {
        digest::of_records(|each| self.for_each(each))
    }

    /// Checks every structural invariant; for tests.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        Audit::of(self).check();
    }

    /// Returns true if it has reached the load at which it doubles.
    fn is_loaded(&self) -> bool {
        self.len() * 100 >= self.slots() * LOAD_MAX_PERCENT
    }

    /// True if there is memory for one more split.
    fn may_split(&self) -> bool {
        let Growth::Doubling { memory_max } = self.growth else { return false };
        let progress = self.progress();
        if progress.level() == LEVELS_MAX {
            return false;
        }
        let (chunk, _) = self.geometry.locate(self.segments());
        let needed =
            if self.slots.get(chunk).is_some() { 0 } else { self.geometry.chunk_bytes(chunk) };
        self.memory().0 + needed <= memory_max.0
    }

    /// Memory that took `before` bytes takes `now`; the writer calls it.
    #[inline]
    fn count_memory(&self, before: u64, now: u64) {
        if before != now {
            self.memory.fetch_add(now.wrapping_sub(before), Ordering::Relaxed);
        }
    }

    /// True if there is memory below the limit.
    #[inline]
    fn may_grow(&self) -> bool {
        self.room() > 0
    }

    /// Bytes of memory below the limit.
    #[inline]
    fn room(&self) -> u64 {
        match self.growth {
            Growth::Off => u64::MAX,
            Growth::Doubling { memory_max } => memory_max.0.saturating_sub(self.memory().0),
        }
    }

    #[inline]
    fn chunk(&self, chunk: u32) -> &Arc<Region> {
        let Some(region) = self.slots.get(chunk) else {
            panic!("segments lie in regions that exist");
        };
        region
    }

    fn page_at(&self, page: PageRef) -> (&Arc<Region>, u64) {
        let Some(region) = self.pages.get(page.chunk()) else {
            panic!("a linked page lies in a region that exists");
        };
        (region, page.page() * self.geometry.page_bytes())
    }

    #[inline]
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for HostTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostTable({} records, {} slots)", self.len(), self.slots())
    }
}

#[cfg(test)]
mod tests;
