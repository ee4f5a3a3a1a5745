//! Insertion, replacement and deletion. One writer at a time; readers are never in the way.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;

use nicol_core::ids::{Key, Version};
use nicol_core::memory::{Region, WORD};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::grow::{Heap, PageAllocator};
use super::layout::{BlockRef, Place, SlotImage, SlotView, load, parse_slot, read, store};
use super::{Applied, HEADER_BYTES, HostTable, PAGE_SLOTS, PageRef, SEGMENT_SLOTS};

/// What the writer keeps besides the table's memory.
#[derive(Debug)]
pub(super) struct Writer {
    pages: PageAllocator,
    heap: Heap,
    image: SlotImage,
    scratch: Vec<u8>,
    /// Versions at which keys were deleted, while older records of them may still wait in a log.
    graves: BTreeMap<Key, Version>,
    old_graves: BTreeMap<Key, Version>,
}

impl Writer {
    pub(super) fn new(slot_bytes: u64) -> Self {
        Self {
            pages: PageAllocator::default(),
            heap: Heap::default(),
            image: SlotImage::empty(slot_bytes),
            scratch: vec![0; slot_bytes as usize],
            graves: BTreeMap::new(),
            old_graves: BTreeMap::new(),
        }
    }
}

impl Writer {
    fn deleted_at(&self, key: Key) -> Version {
        let young = self.graves.get(&key);
        young.or_else(|| self.old_graves.get(&key)).copied().unwrap_or_default()
    }
}

/// Where a record stands.
#[derive(Clone, Copy, Debug)]
enum Position {
    Slot(u64),
    Overflow { page: PageRef, slot: u64 },
}

/// A record as the writer found it.
struct Record {
    position: Position,
    version: Version,
    block: Option<BlockRef>,
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

    /// Applies a committed write: `None` deletes. Skips what is not newer than the table's version,
    /// so that it may be repeated and come in any order with other writes of the key (AMB-37).
    pub fn apply(&self, key: Key, version: Version, value: Option<&[u8]>) -> Applied {
        let writer = &mut *self.writer();
        let old = self.find(writer, key);
        let current = match &old {
            Some(record) => record.version,
            None => writer.deleted_at(key),
        };
        if version <= current {
            return Applied::Skipped;
        }
        match (value, old) {
            (Some(value), Some(old)) => {
                self.fill(writer, key, version, value);
                let (region, offset) = self.at(old.position);
                writer.image.write(region, offset);
                self.free_block(writer, old.block);
            }
            (Some(value), None) => {
                self.fill(writer, key, version, value);
                self.insert(writer, key);
                writer.graves.remove(&key);
                writer.old_graves.remove(&key);
                self.len.fetch_add(1, Ordering::Relaxed);
            }
            (None, old) => {
                self.raise_floor(self.segment(key), version);
                writer.graves.insert(key, version);
                if let Some(old) = old {
                    self.delete(writer, key, &old);
                    self.len.fetch_sub(1, Ordering::Relaxed);
                }
            }
        }
        Applied::Changed
    }

    /// Forgets the deletions that were remembered at the last call. Between two calls, every older
    /// write of a key deleted before the first must have been applied.
    pub fn forget_old_deletions(&self) {
        let writer = &mut *self.writer();
        if !writer.graves.is_empty() || !writer.old_graves.is_empty() {
            writer.old_graves = std::mem::take(&mut writer.graves);
        }
    }

    /// Deletions remembered.
    pub fn remembered_deletions(&self) -> usize {
        let writer = self.writer();
        writer.graves.len() + writer.old_graves.len()
    }

    /// Prepares the image of a record.
    fn fill(&self, writer: &mut Writer, key: Key, version: Version, value: &[u8]) {
        let place = if value.len() <= self.geometry.inline {
            Place::Inline(value)
        } else {
            Place::OutOfLine(writer.heap.put(&self.heap, key, version, value))
        };
        writer.image.set(key, version, place);
    }

    fn free_block(&self, writer: &mut Writer, block: Option<BlockRef>) {
        if let Some(block) = block {
            writer.heap.take_back(block);
        }
    }

    fn at(&self, position: Position) -> (&Region, u64) {
        match position {
            Position::Slot(slot) => (&self.region, self.slot_offset(slot)),
            Position::Overflow { page, slot } => {
                let (region, offset) = self.page_at(page);
                (region, offset + slot * self.geometry.slot_bytes())
            }
        }
    }

    /// The key and record at a position.
    fn look(&self, writer: &mut Writer, position: Position) -> Option<(Key, Record)> {
        let (region, offset) = self.at(position);
        read(region, offset, &mut writer.scratch);
        match parse_slot(&writer.scratch) {
            SlotView::Empty => None,
            SlotView::Torn => panic!("the writer is alone"),
            SlotView::Record { key, version, place } => {
                let block = match place {
                    Place::Inline(_) => None,
                    Place::OutOfLine(block) => Some(block),
                };
                Some((key, Record { position, version, block }))
            }
        }
    }

    fn find(&self, writer: &mut Writer, key: Key) -> Option<Record> {
        let home = self.home(key);
        let reach = home..home + u64::from(self.geometry.displacement_max);
        let mut found = None;
        for slot in reach {
            // The writer is alone: a key word that differs needs no second look.
            let word = self.slot_offset(slot) + WORD as u64;
            if load(&self.region, word) == key.0
                && let Some((at, record)) = self.look(writer, Position::Slot(slot))
                && at == key
            {
                return Some(record);
            }
        }
        self.each_overflow(home / SEGMENT_SLOTS, &mut |page, slot| {
            let position = Position::Overflow { page, slot };
            match self.look(writer, position) {
                Some((at, record)) if at == key => {
                    found = Some(record);
                    true
                }
                _ => false,
            }
        });
        found
    }

    /// Visits the overflow slots of a segment until `visit` returns true.
    fn each_overflow(&self, segment: u64, visit: &mut dyn FnMut(PageRef, u64) -> bool) {
        let mut page = self.header(segment).overflow;
        while let Some(current) = page {
            for slot in 0..PAGE_SLOTS {
                if visit(current, slot) {
                    return;
                }
            }
            page = PageRef::parse(self.link(current));
        }
    }

    fn link_offset(&self, page: PageRef) -> (&Region, u64) {
        let (region, offset) = self.page_at(page);
        (region, offset + self.geometry.page_bytes() - WORD as u64)
    }

    fn link(&self, page: PageRef) -> u64 {
        let (region, offset) = self.link_offset(page);
        load(region, offset)
    }

    /// Inserts the image of `key`.
    fn insert(&self, writer: &mut Writer, key: Key) {
        let home = self.home(key);
        let end = home + u64::from(self.geometry.displacement_max);
        let free = (home..end).find(|&slot| self.look(writer, Position::Slot(slot)).is_none());
        let Some(free) = free else {
            // AMB-01: no free slot within D_m of the new object's home, so nothing moves.
            return self.insert_overflow(writer, home / SEGMENT_SLOTS);
        };
        // Robinhood order: the new object goes before the first that is closer to its home.
        let target = (home..free)
            .find(|&slot| {
                self.look(writer, Position::Slot(slot))
                    .is_some_and(|(other, _)| self.home(other) > home)
            })
            .unwrap_or(free);
        // [Xenic21 4.1.2] The copy list, applied from the free end: no object is ever missing.
        let image = writer.image.clone();
        for slot in (target..free).rev() {
            let (from, to) = (self.slot_offset(slot), self.slot_offset(slot + 1));
            writer.image.copy(&self.region, from, to);
        }
        image.write(&self.region, self.slot_offset(target));
        writer.image = image;
    }

    fn insert_overflow(&self, writer: &mut Writer, segment: u64) {
        self.overflowed.fetch_add(1, Ordering::Relaxed);
        let mut free = None;
        let mut last = None;
        self.each_overflow(segment, &mut |page, slot| {
            last = Some(page);
            if self.look(writer, Position::Overflow { page, slot }).is_none() {
                free = Some(Position::Overflow { page, slot });
            }
            free.is_some()
        });
        if let Some(position) = free {
            let (region, offset) = self.at(position);
            return writer.image.write(region, offset);
        }
        let (chunk, number) = writer.pages.page(&self.pages, self.geometry.page_bytes());
        let page = PageRef::new(chunk, number);
        let (region, offset) = self.at(Position::Overflow { page, slot: 0 });
        writer.image.write(region, offset);
        // Linked once it holds the record.
        match last {
            Some(last) => {
                let (region, offset) = self.link_offset(last);
                store(region, offset, page.0);
            }
            None => store(&self.region, segment * HEADER_BYTES + WORD as u64, page.0),
        }
    }

    fn raise_floor(&self, segment: u64, version: Version) {
        let floor = self.header(segment).floor.max(version);
        store(&self.region, segment * HEADER_BYTES + 2 * WORD as u64, floor.0);
    }

    /// Removes a record and closes the gap. [Xenic21 4.1.2, AMB-02]
    fn delete(&self, writer: &mut Writer, key: Key, record: &Record) {
        match record.position {
            Position::Overflow { .. } => {
                self.overflowed.fetch_sub(1, Ordering::Relaxed);
                self.clear(writer, record.position);
            }
            Position::Slot(hole) => {
                let reach = u64::from(self.geometry.displacement_max);
                let first = hole.saturating_sub(reach - 1) / SEGMENT_SLOTS;
                let last = (hole + reach).min(self.geometry.slots - 1) / SEGMENT_SLOTS;
                self.bump_moves(first..=last);
                if !self.fill_from_overflow(writer, self.home(key) / SEGMENT_SLOTS, hole) {
                    self.shift_back(writer, hole);
                }
                self.bump_moves(first..=last);
            }
        }
        self.free_block(writer, record.block);
    }

    fn clear(&self, writer: &mut Writer, position: Position) {
        writer.image.clear();
        let (region, offset) = self.at(position);
        writer.image.write(region, offset);
    }

    /// Makes the move counters odd, or even again.
    fn bump_moves(&self, segments: std::ops::RangeInclusive<u64>) {
        for segment in segments {
            let at = segment * HEADER_BYTES;
            store(&self.region, at, load(&self.region, at) + 1);
        }
    }

    /// Swaps an overflow object of the segment over the hole, if one belongs there in Robinhood
    /// order: copied first, then cleared where it was.
    fn fill_from_overflow(&self, writer: &mut Writer, segment: u64, hole: u64) -> bool {
        let reach = u64::from(self.geometry.displacement_max);
        let home_at = |writer: &mut Writer, slot: u64| {
            self.look(writer, Position::Slot(slot)).map(|(key, _)| self.home(key))
        };
        // Behind a free slot an object stands at its home: no run begins with a displaced one.
        let before = hole.checked_sub(1).and_then(|slot| home_at(writer, slot)).unwrap_or(hole);
        let slots = self.geometry.slots + reach - 1;
        let behind = (hole + 1 < slots).then(|| home_at(writer, hole + 1)).flatten();
        let after = behind.unwrap_or(u64::MAX);
        let mut chosen = None;
        self.each_overflow(segment, &mut |page, slot| {
            let position = Position::Overflow { page, slot };
            if let Some((key, _)) = self.look(writer, position) {
                let home = self.home(key);
                let fits = home <= hole && hole - home < reach;
                if fits && before <= home && home <= after {
                    chosen = Some(position);
                }
            }
            chosen.is_some()
        });
        let Some(position) = chosen else { return false };
        let (region, from) = self.at(position);
        read(region, from, &mut writer.scratch);
        if let SlotView::Record { key, version, place } = parse_slot(&writer.scratch) {
            writer.image.set(key, version, place);
            writer.image.write(&self.region, self.slot_offset(hole));
        }
        self.clear(writer, position);
        self.overflowed.fetch_sub(1, Ordering::Relaxed);
        true
    }

    /// Moves the objects behind the hole back by one until one is at home or a slot is free.
    fn shift_back(&self, writer: &mut Writer, mut hole: u64) {
        let slots = self.geometry.slots + u64::from(self.geometry.displacement_max) - 1;
        while hole + 1 < slots {
            match self.look(writer, Position::Slot(hole + 1)) {
                Some((key, _)) if self.home(key) <= hole => {
                    let (from, to) = (self.slot_offset(hole + 1), self.slot_offset(hole));
                    writer.image.copy(&self.region, from, to);
                    hole += 1;
                }
                _ => break,
            }
        }
        self.clear(writer, Position::Slot(hole));
    }

    /// Calls `each` with every record, in the order of the table's memory.
    pub fn for_each(&self, each: &mut dyn FnMut(Key, Version, &[u8])) {
        let mut writer = self.writer();
        let mut keys = Vec::new();
        let slots = self.geometry.slots + u64::from(self.geometry.displacement_max) - 1;
        for slot in 0..slots {
            keys.extend(self.look(&mut writer, Position::Slot(slot)).map(|(key, _)| key));
        }
        for segment in 0..self.segments() {
            self.each_overflow(segment, &mut |page, slot| {
                let position = Position::Overflow { page, slot };
                keys.extend(self.look(&mut writer, position).map(|(key, _)| key));
                false
            });
        }
        let mut value = Vec::new();
        for key in keys {
            value.clear();
            let found = self.get(key, &mut value);
            each(key, found.version, &value);
        }
    }

    /// A digest of all records that does not depend on where they stand.
    pub fn digest(&self) -> u64 {
        let mut digest = 0u64;
        self.for_each(&mut |key, version, value| {
            let record = xxh3_64_with_seed(value, key.0 ^ version.0.rotate_left(32));
            digest = digest.wrapping_add(record);
        });
        digest
    }

    /// Checks every structural invariant; for tests.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        let writer = &mut *self.writer();
        let reach = u64::from(self.geometry.displacement_max);
        let slots = self.geometry.slots + reach - 1;
        let mut records = 0;
        let mut previous = None;
        for slot in 0..slots {
            let found = self.look(writer, Position::Slot(slot)).map(|(key, _)| self.home(key));
            if let Some(home) = found {
                assert!(home <= slot, "no object stands before its home");
                assert!(slot - home < reach, "no object is D_m from its home");
                let order = previous.unwrap_or(slot);
                assert!(order <= home, "a run begins at home and is ordered by home");
                records += 1;
            }
            previous = found;
        }
        let mut overflowed = 0;
        for segment in 0..self.segments() {
            assert!(self.header(segment).moves.is_multiple_of(2), "no move is under way");
            self.each_overflow(segment, &mut |page, slot| {
                if let Some((key, _)) = self.look(writer, Position::Overflow { page, slot }) {
                    assert!(self.segment(key) == segment, "overflow belongs to its segment");
                    overflowed += 1;
                }
                false
            });
        }
        assert!(overflowed == self.overflowed(), "overflowed records are counted");
        assert!(records + overflowed == self.len(), "records are counted");
    }
}
