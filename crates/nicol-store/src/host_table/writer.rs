//! Insertion, replacement and deletion. One writer at a time; readers never block it.

use std::ops::RangeInclusive;
use std::sync::atomic::Ordering;

use nicol_core::ids::{Key, Version};
use nicol_core::memory::{Region, WORD, Words};

use super::address::{Home, SlotHash};
use super::compaction::Compaction;
use super::heap::Heap;
use super::layout::{BlockRef, KEY, SlotImage, StoredValue, key_at, record_in, replace};
use super::memory::PageAllocator;
use super::read::header;
use super::{Applied, Growth, HEADER_BYTES, HostTable, PAGE_SLOTS, PageRef, SEGMENT_SLOTS};
use crate::access::{load, store, words};
use crate::tombstones::Tombstones;

/// The writer's state besides the table's memory.
#[derive(Clone, Debug)]
pub(super) struct Writer {
    pub(super) pages: PageAllocator,
    pub(super) heap: Heap,
    /// The record to be written.
    pub(super) image: SlotImage,
    /// A record that it displaces.
    moved: SlotImage,
    pub(super) tombstones: Tombstones,
}

impl Writer {
    pub(super) fn new(slot_bytes: u64) -> Self {
        Self {
            pages: PageAllocator::default(),
            heap: Heap::default(),
            image: SlotImage::empty(slot_bytes),
            moved: SlotImage::empty(slot_bytes),
            tombstones: Tombstones::default(),
        }
    }
}

/// Where a record stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    Slot { chunk: u32, slot: u64 },
    Overflow { page: PageRef, slot: u64 },
}

/// A record as the writer found it.
pub(super) struct Record<'t> {
    pub(super) position: Position,
    /// The words of its slot.
    pub(super) slot: Words<'t>,
    pub(super) version: Version,
    pub(super) block: Option<BlockRef>,
}

impl HostTable {
    /// Loads an initial record at version 1.
    ///
    /// # Panics
    /// If the table has it already.
    pub fn load(&self, key: Key, value: &[u8]) {
        let applied = self.apply(key, Version(1), Some(value));
        assert!(applied == Applied::Changed, "an initial record is loaded once");
    }

    /// Applies a committed write: `None` deletes. Skips a version that is not newer than the
    /// table's version, so the writes of a key may be repeated and arrive in any order (AMB-37).
    ///
    /// Never grows the table: see [`HostTable::advance`].
    pub fn apply(&self, key: Key, version: Version, value: Option<&[u8]>) -> Applied {
        let writer = &mut *self.writer();
        let home = self.home_now(SlotHash::of(key));
        let old = self.find(home, key);
        let current = match &old {
            Some(record) => record.version,
            None => writer.tombstones.deleted_at(key),
        };
        if version <= current {
            return Applied::Skipped;
        }
        match (value, old) {
            (Some(value), Some(old)) => self.replace(writer, key, version, (value, &old)),
            (Some(value), None) => {
                let stored = self.stored(writer, key, version, value);
                writer.image.set(key, version, stored);
                self.insert(writer, home);
                writer.tombstones.remove(key);
                self.len.fetch_add(1, Ordering::Relaxed);
                if self.growth != Growth::Off && self.is_loaded() {
                    self.growing.store(true, Ordering::Relaxed);
                }
            }
            (None, old) => {
                self.raise_floor(home, version);
                writer.tombstones.insert(key, version);
                if let Some(old) = old {
                    self.delete(writer, home, &old);
                    self.len.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        Applied::Changed
    }

    /// Raises the floor of `key`'s home segment. Call it for a key whose record is stored elsewhere
    /// and was deleted at `version`: such keys share floors with those of this table, as they share
    /// entries of a NIC's index.
    pub fn deleted_elsewhere(&self, key: Key, version: Version) {
        let _writer = self.writer();
        self.raise_floor(self.home_now(SlotHash::of(key)), version);
    }

    /// Drops the deletions that were recorded before the previous call. Between the two calls,
    /// every older write of those keys must have been applied.
    pub fn forget_old_deletions(&self) {
        self.writer().tombstones.forget_old();
    }

    /// Stores the next value of a record, over the one in its block if both have one size.
    fn replace(
        &self,
        writer: &mut Writer,
        key: Key,
        version: Version,
        (value, old): (&[u8], &Record<'_>),
    ) {
        let block = old.block.filter(|_| !self.geometry.stands_in_slot(value.len()));
        let rewritten =
            block.and_then(|block| writer.heap.rewrite(&self.heap, block, (key, version), value));
        if let Some(block) = rewritten {
            return replace(old.slot, version, StoredValue::OutOfLine(block));
        }
        let stored = self.stored(writer, key, version, value);
        replace(old.slot, version, stored);
        self.free_block(writer, old.block);
    }

    /// How a value is stored: in the slot, or in a block, to which it is written.
    #[inline]
    fn stored<'a>(
        &self,
        writer: &mut Writer,
        key: Key,
        version: Version,
        value: &'a [u8],
    ) -> StoredValue<'a> {
        if self.geometry.stands_in_slot(value.len()) {
            return StoredValue::Inline(value);
        }
        let before = writer.heap.bytes();
        let may_grow = self.may_grow();
        let block = writer.heap.put(&self.heap, key, version, value, may_grow);
        self.count_memory(before, writer.heap.bytes());
        StoredValue::OutOfLine(block)
    }

    /// Frees a record's block, and the memory of its slab once that is empty.
    #[inline]
    fn free_block(&self, writer: &mut Writer, block: Option<BlockRef>) {
        if let Some(block) = block {
            let before = writer.heap.bytes();
            let class = writer.heap.take_back(&self.heap, block);
            Compaction::of(self).run(&mut writer.heap, class);
            self.count_memory(before, writer.heap.bytes());
        }
    }

    #[inline]
    pub(super) fn at(&self, position: Position) -> (&Region, u64) {
        match position {
            Position::Slot { chunk, slot } => {
                (self.chunk(chunk), self.geometry.slot_offset(chunk, slot))
            }
            Position::Overflow { page, slot } => {
                let (region, offset) = self.page_at(page);
                (region, offset + slot * self.geometry.slot_bytes())
            }
        }
    }

    /// The key at a position: cheaper than [`HostTable::look`].
    pub(super) fn key_of(&self, position: Position) -> Option<Key> {
        let (region, offset) = self.at(position);
        key_at(region, offset)
    }

    /// The home slot of the object in `slot`.
    pub(super) fn home_of(&self, chunk: u32, slot: u64) -> Option<u64> {
        let key = self.key_of(Position::Slot { chunk, slot })?;
        let (hash, now) = (SlotHash::of(key), self.progress());
        let mut home = self.geometry.home(hash, now);
        if home.chunk != chunk {
            // A copy beside which the segment is still being split; never in the same region.
            home = self.geometry.home(hash, now.next(self.geometry.segments()));
        }
        assert!(home.chunk == chunk, "an object stands in its home's region");
        Some(home.slot)
    }

    /// The words of a slot.
    pub(super) fn slot(&self, position: Position) -> Words<'_> {
        let (region, offset) = self.at(position);
        words(region, offset, self.geometry.slot_bytes())
    }

    /// The record of `key` at a position.
    fn look(&self, position: Position, key: Key) -> Option<Record<'_>> {
        if self.key_of(position)? != key {
            return None;
        }
        let slot = self.slot(position);
        let (version, block) = record_in(slot)?;
        Some(Record { position, slot, version, block })
    }

    #[inline]
    pub(super) fn find(&self, home: Home, key: Key) -> Option<Record<'_>> {
        let (chunk, slot_bytes) = (home.chunk, self.geometry.slot_bytes());
        let first = self.geometry.slot_offset(chunk, home.slot);
        let slots = words(self.chunk(chunk), first, self.geometry.probe_length() * slot_bytes);
        let (place, stride) = ((KEY / WORD as u64) as usize, slot_bytes as usize / WORD);
        let mut passed = 0;
        // Most slots are others': their keys are all that is loaded of them.
        while let Some(at) = slots.find(place + passed * stride, stride, key.0) {
            passed += at;
            let slot = slots.part(passed * stride, stride);
            if let Some((version, block)) = record_in(slot) {
                let position = Position::Slot { chunk, slot: home.slot + passed as u64 };
                return Some(Record { position, slot, version, block });
            }
            // An empty slot, whose words are those of the key 0.
            passed += 1;
        }
        let mut overflow = self.overflow_of(home.chunk, home.local());
        overflow.find_map(|position| self.look(position, key))
    }

    /// The slots within D_m of a home, with their memory.
    fn slots_from(&self, home: Home) -> impl Iterator<Item = (u64, &Region, u64)> {
        let region: &Region = self.chunk(home.chunk);
        let first = self.geometry.slot_offset(home.chunk, home.slot);
        let slot_bytes = self.geometry.slot_bytes();
        (0..self.geometry.probe_length())
            .map(move |at| (home.slot + at, region, first + at * slot_bytes))
    }

    /// A segment's overflow pages.
    pub(super) fn pages_of(&self, chunk: u32, local: u64) -> impl Iterator<Item = PageRef> {
        let first = self.header(chunk, local).overflow;
        std::iter::successors(first, |&page| self.link(page))
    }

    /// Their slots.
    pub(super) fn overflow_of(&self, chunk: u32, local: u64) -> impl Iterator<Item = Position> {
        let pages = self.pages_of(chunk, local);
        pages.flat_map(|page| (0..PAGE_SLOTS).map(move |slot| Position::Overflow { page, slot }))
    }

    /// The first free slot within D_m of a home.
    pub(super) fn free_slot(&self, home: Home) -> Option<u64> {
        let is_free = |&(_, region, offset): &(u64, &Region, u64)| key_at(region, offset).is_none();
        self.slots_from(home).find(is_free).map(|(slot, ..)| slot)
    }

    /// Inserts the image, of a key with this home.
    pub(super) fn insert(&self, writer: &mut Writer, home: Home) {
        match self.free_slot(home) {
            Some(free) => self.insert_before(writer, home, free),
            // AMB-01: no free slot within D_m of the new object's home, so nothing moves.
            None => self.insert_overflow(writer, home),
        }
    }

    /// Puts the image into Robinhood order, up to the free slot `free`: before the first object
    /// that is closer to its home.
    pub(super) fn insert_before(&self, writer: &mut Writer, home: Home, free: u64) {
        let chunk = home.chunk;
        let behind = |&slot: &u64| self.home_of(chunk, slot).is_some_and(|other| other > home.slot);
        let target = (home.slot..free).find(behind).unwrap_or(free);
        // [Xenic21 4.1.2] The copy list, applied from the free end: no object is ever missing.
        for slot in (target..free).rev() {
            self.copy_slot(writer, chunk, slot, slot + 1);
        }
        let (region, offset) = self.at(Position::Slot { chunk, slot: target });
        writer.image.write(region, offset);
    }

    fn copy_slot(&self, writer: &mut Writer, chunk: u32, from: u64, to: u64) {
        let offset = |slot| self.geometry.slot_offset(chunk, slot);
        writer.moved.copy(self.chunk(chunk), offset(from), offset(to));
    }

    fn insert_overflow(&self, writer: &mut Writer, home: Home) {
        self.overflowed.fetch_add(1, Ordering::Relaxed);
        let free = self
            .overflow_of(home.chunk, home.local())
            .find(|&position| self.key_of(position).is_none());
        if let Some(position) = free {
            let (region, offset) = self.at(position);
            return writer.image.write(region, offset);
        }
        let (page, added) = writer.pages.page(&self.pages, self.geometry.page_bytes());
        self.count_memory(0, added);
        let (region, offset) = self.at(Position::Overflow { page, slot: 0 });
        writer.image.write(region, offset);
        // Linked once it holds the record; at the end, so that full pages are read first.
        match self.pages_of(home.chunk, home.local()).last() {
            Some(last) => self.set_link(last, Some(page)),
            None => self.set_overflow(home.chunk, home.local(), Some(page)),
        }
    }

    fn set_overflow(&self, chunk: u32, local: u64, page: Option<PageRef>) {
        let at = local * HEADER_BYTES + header::OVERFLOW;
        store(self.chunk(chunk), at, page.map_or(0, |page| page.0.get()));
    }

    fn raise_floor(&self, home: Home, version: Version) {
        let floor = self.header(home.chunk, home.local()).floor.max(version);
        store(self.chunk(home.chunk), home.local() * HEADER_BYTES + header::FLOOR, floor.0);
    }

    /// Removes a record and closes the gap. [Xenic21 4.1.2, AMB-02]
    fn delete(&self, writer: &mut Writer, home: Home, record: &Record<'_>) {
        match record.position {
            Position::Overflow { .. } => {
                let segment = home.local()..=home.local();
                self.bump_moves(home.chunk, segment.clone());
                self.clear_overflow(writer, record.position);
                self.release_empty_pages(writer, home.chunk, home.local());
                self.bump_moves(home.chunk, segment);
            }
            Position::Slot { chunk, slot: hole } => {
                let touched = self.moved_segments(chunk, hole, hole);
                self.bump_moves(chunk, touched.clone());
                if !self.fill_from_overflow(writer, chunk, hole) {
                    self.close_gaps(writer, chunk, hole, 1);
                }
                self.bump_moves(chunk, touched);
            }
        }
        self.free_block(writer, record.block);
    }

    /// Segments whose objects may move when slots `first` to `last` are emptied: up to the next
    /// slot that is free or whose object is at home. A run may be longer than D_m.
    pub(super) fn moved_segments(&self, chunk: u32, first: u64, last: u64) -> RangeInclusive<u64> {
        let slots = self.geometry.chunk_slots(chunk);
        let stays = |&slot: &u64| self.home_of(chunk, slot).is_none_or(|home| home == slot);
        let end = (last + 1..slots).find(stays).unwrap_or(slots);
        let lowest = first.saturating_sub(self.geometry.probe_length() - 1) / SEGMENT_SLOTS;
        let highest = ((end - 1) / SEGMENT_SLOTS).min(self.geometry.chunk_segments(chunk) - 1);
        lowest..=highest
    }

    pub(super) fn clear_overflow(&self, writer: &mut Writer, position: Position) {
        self.overflowed.fetch_sub(1, Ordering::Relaxed);
        self.clear(writer, position);
    }

    fn clear(&self, writer: &mut Writer, position: Position) {
        writer.moved.clear();
        let (region, offset) = self.at(position);
        writer.moved.write(region, offset);
    }

    /// Frees a segment's overflow pages if all are empty. Its move counter must be odd.
    pub(super) fn release_empty_pages(&self, writer: &mut Writer, chunk: u32, local: u64) {
        if self.overflow_of(chunk, local).any(|position| self.key_of(position).is_some()) {
            return;
        }
        let mut page = self.header(chunk, local).overflow;
        self.set_overflow(chunk, local, None);
        while let Some(current) = page {
            page = self.link(current);
            self.set_link(current, None);
            writer.pages.take_back(current);
        }
    }

    /// Makes the move counters odd, or even again.
    pub(super) fn bump_moves(&self, chunk: u32, segments: RangeInclusive<u64>) {
        let region = self.chunk(chunk);
        for segment in segments {
            let at = segment * HEADER_BYTES + header::MOVES;
            store(region, at, load(region, at) + 1);
        }
    }

    /// Swaps an overflow object over the hole: one whose home is not behind the hole and within D_m
    /// of it (AMB-02). Where Robinhood order wants it elsewhere in the run, the objects between the
    /// hole and that place make way by one slot.
    fn fill_from_overflow(&self, writer: &mut Writer, chunk: u32, hole: u64) -> bool {
        let lowest = hole.saturating_sub(self.geometry.probe_length() - 1);
        let highest = (hole / SEGMENT_SLOTS).min(self.geometry.chunk_segments(chunk) - 1);
        let fits = |&position: &Position| {
            let key = self.key_of(position)?;
            let home = self.home_now(SlotHash::of(key));
            let fits = (lowest..=hole).contains(&home.slot)
                // A run has no gap: a free slot before the hole would be one.
                && (home.slot..hole).all(|slot| self.home_of(chunk, slot).is_some());
            fits.then_some((position, home))
        };
        let chosen = (lowest / SEGMENT_SLOTS..=highest)
            .rev()
            .find_map(|local| self.overflow_of(chunk, local).find_map(|at| fits(&at)));
        let Some((position, home)) = chosen else { return false };
        let (region, offset) = self.at(position);
        writer.image.take(region, offset);
        // To the left: objects behind the hole that belong before it.
        let mut hole = hole;
        while hole + 1 < self.geometry.chunk_slots(chunk)
            && self.home_of(chunk, hole + 1).is_some_and(|other| other < home.slot)
        {
            self.copy_slot(writer, chunk, hole + 1, hole);
            hole += 1;
        }
        // To the right: objects before the hole that belong behind it.
        self.insert_before(writer, home, hole);
        self.clear_overflow(writer, position);
        self.release_empty_pages(writer, chunk, home.local());
        true
    }

    /// Moves objects back over the slots from `first` on whose bits are set in `gone`, as far as
    /// their homes allow, and clears what becomes free: the backward shift. [Xenic21 4.1.2]
    ///
    /// DEVIATION [Xenic21 4.1.2]: each object moves by less than D_m, but a run of displaced
    /// objects may be longer than that; stopping within it would break Robinhood order.
    pub(super) fn close_gaps(&self, writer: &mut Writer, chunk: u32, first: u64, gone: u128) {
        let end = first + u64::from(u128::BITS - gone.leading_zeros());
        let mut free = first;
        let mut slot = first;
        while slot < self.geometry.chunk_slots(chunk) {
            let leaves = slot < end && gone >> (slot - first) & 1 == 1;
            if !leaves {
                let target = self.home_of(chunk, slot).map(|home| home.max(free));
                if slot >= end && target.is_none_or(|target| target == slot) {
                    break;
                }
                // Behind a free slot everything is at home, up to the next one that leaves.
                let kept = target.unwrap_or(slot);
                self.clear_all(writer, chunk, free, kept);
                if kept < slot {
                    self.copy_slot(writer, chunk, slot, kept);
                }
                free = kept + 1;
            }
            slot += 1;
        }
        self.clear_all(writer, chunk, free, slot);
    }

    fn clear_all(&self, writer: &mut Writer, chunk: u32, from: u64, to: u64) {
        for slot in from..to {
            self.clear(writer, Position::Slot { chunk, slot });
        }
    }
}
