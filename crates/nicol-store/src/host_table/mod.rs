//! Xenic's host store: a Robinhood table that a NIC reads by DMA. [Xenic21 4.1.2]
//!
//! Closed hashing with linear probing, objects ordered by home along a run (what Robinhood's
//! steal-from-the-rich swaps lead to). D_m bounds the insertion's probe: if no slot is free within
//! D_m of the new object's home, it goes to the overflow pages of its home's segment and nothing
//! moves (AMB-01), so every object in the table is within D_m of its home.
//!
//! One writer at a time (a mutex inside); readers take no lock. Objects only ever move by being
//! copied before their old slot is overwritten. Moves to the right are met by every reader that
//! goes upwards; a move to the left (deletion) makes the segment's move counter odd meanwhile, and a
//! reader that found nothing looks at the counter again.

mod grow;
mod layout;
mod writer;

use std::fmt;
use std::hint;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::ids::{Key, Version};
use nicol_core::memory::{Region, WORD};
use nicol_core::units::Bytes;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use grow::Chunks;
pub use layout::{BlockRef, INLINE_MAX, Place, SlotView};
use layout::{load, parse_slot, slot_bytes};
use writer::Writer;

/// Seed of the slot hash: another than the partition hash's, which all keys of a shard agree in.
const SLOT_SEED: u64 = 0x7c15_9e37_79b9_4a7f;
/// Slots of a segment: the unit of the NIC's hints and of overflow.
pub const SEGMENT_SLOTS: u64 = 16;
/// Words of a segment's header: move counter, overflow link, floor, spare.
const HEADER_BYTES: u64 = 4 * WORD as u64;
/// Slots of an overflow page; a link word follows them.
const PAGE_SLOTS: u64 = 4;

/// A table's shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    slots: u64,
    displacement_max: u16,
    inline: usize,
}

impl Geometry {
    /// `slots` slots (rounded up to segments), displacement limit D_m, and values of up to `inline`
    /// bytes in the slot.
    ///
    /// # Panics
    /// If D_m is 0 or beyond a segment's reach (64), or `inline` is not 8 to 256.
    pub fn new(slots: u64, displacement_max: u16, inline: usize) -> Self {
        assert!((1..=64).contains(&displacement_max), "D_m is 1 to 64 slots");
        assert!((8..=INLINE_MAX).contains(&inline), "8 to {INLINE_MAX} bytes stand in a slot");
        let slots = slots.max(1).next_multiple_of(SEGMENT_SLOTS);
        Self { slots, displacement_max, inline }
    }

    /// Slots that keys may hash to; D_m - 1 more follow, so that a run never wraps around.
    pub const fn slots(&self) -> u64 {
        self.slots
    }

    /// D_m.
    pub const fn displacement_max(&self) -> u16 {
        self.displacement_max
    }

    const fn slot_bytes(&self) -> u64 {
        slot_bytes(self.inline)
    }

    const fn page_bytes(&self) -> u64 {
        PAGE_SLOTS * self.slot_bytes() + WORD as u64
    }

    const fn segments(&self) -> u64 {
        self.slots / SEGMENT_SLOTS
    }

    const fn slots_offset(&self) -> u64 {
        self.segments() * HEADER_BYTES
    }
}

/// What a lookup found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lookup {
    /// The record's version; of an absent one, its segment's floor.
    pub version: Version,
    /// Does the record exist?
    pub present: bool,
}

/// What an applied write did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The record was inserted, replaced or deleted.
    Changed,
    /// The table already had this version or a newer one.
    Skipped,
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
    /// Odd while an object moves to the left; changes with every such move.
    pub moves: u64,
    /// The first overflow page.
    pub overflow: Option<PageRef>,
    /// The highest version at which a key of the segment was deleted.
    pub floor: Version,
}

/// An overflow page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRef(u64);

impl PageRef {
    const fn parse(word: u64) -> Option<Self> {
        if word == 0 { None } else { Some(Self(word)) }
    }

    const fn new(chunk: u32, page: u32) -> Self {
        Self(((chunk as u64) << 32) | (page as u64 + 1))
    }

    const fn chunk(self) -> u32 {
        (self.0 >> 32) as u32
    }

    const fn page(self) -> u64 {
        (self.0 as u32 - 1) as u64
    }
}

/// See the module.
pub struct HostTable {
    geometry: Geometry,
    region: Arc<Region>,
    pages: Chunks,
    heap: Chunks,
    writer: Mutex<Writer>,
    len: AtomicU64,
    overflowed: AtomicU64,
    capacity: u64,
}

impl HostTable {
    /// An empty table with room for `capacity` records. Room is a matter of admission: see
    /// [`HostTable::has_room`].
    pub fn new(geometry: Geometry, capacity: u64) -> Self {
        let slots = geometry.slots + u64::from(geometry.displacement_max) - 1;
        let size = geometry.slots_offset() + slots * geometry.slot_bytes();
        Self {
            geometry,
            region: Arc::new(Region::new(Bytes(size))),
            pages: Chunks::new(),
            heap: Chunks::new(),
            writer: Mutex::new(Writer::new(geometry.slot_bytes())),
            len: AtomicU64::new(0),
            overflowed: AtomicU64::new(0),
            capacity,
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

    /// Has it no record?
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Records in overflow pages.
    pub fn overflowed(&self) -> u64 {
        self.overflowed.load(Ordering::Relaxed)
    }

    /// May a transaction insert a record? Asked before commit: a committed insert always finds a
    /// place, since overflow pages grow.
    pub fn has_room(&self) -> bool {
        self.len() < self.capacity
    }

    /// Segments of the table.
    pub fn segments(&self) -> u64 {
        self.geometry.segments()
    }

    /// The slot that `key` hashes to.
    pub fn home(&self, key: Key) -> u64 {
        let hash = xxh3_64_with_seed(&key.0.to_le_bytes(), SLOT_SEED);
        ((u128::from(hash) * u128::from(self.geometry.slots)) >> 64) as u64
    }

    /// The segment of `key`'s home.
    pub fn segment(&self, key: Key) -> u64 {
        self.home(key) / SEGMENT_SLOTS
    }

    /// Looks `key` up in local memory; a value found is appended to `into`.
    ///
    /// Takes no lock; retries while the record or its segment is being rewritten.
    pub fn get(&self, key: Key, into: &mut Vec<u8>) -> Lookup {
        let segment = self.segment(key);
        loop {
            let before = self.header(segment);
            if let Some(found) = self.search(key, into) {
                return found;
            }
            let after = self.header(segment);
            if before == after && before.moves.is_multiple_of(2) {
                return Lookup { version: after.floor, present: false };
            }
            hint::spin_loop();
        }
    }

    /// Every slot where `key` may be, once.
    fn search(&self, key: Key, into: &mut Vec<u8>) -> Option<Lookup> {
        let home = self.home(key);
        let mut slot = [0; slot_bytes(INLINE_MAX) as usize];
        let slot = &mut slot[..self.geometry.slot_bytes() as usize];
        for position in home..home + u64::from(self.geometry.displacement_max) {
            if let Some(found) =
                self.try_slot(&self.region, self.slot_offset(position), key, slot, into)
            {
                return Some(found);
            }
        }
        let mut page = self.header(home / SEGMENT_SLOTS).overflow;
        while let Some(current) = page {
            let (region, offset) = self.page_at(current);
            for position in 0..PAGE_SLOTS {
                let at = offset + position * self.geometry.slot_bytes();
                if let Some(found) = self.try_slot(region, at, key, slot, into) {
                    return Some(found);
                }
            }
            page = PageRef::parse(load(region, offset + self.geometry.page_bytes() - WORD as u64));
        }
        None
    }

    /// Reads one slot until it is whole; the record if it is `key`'s.
    fn try_slot(
        &self,
        region: &Region,
        offset: u64,
        key: Key,
        slot: &mut [u8],
        into: &mut Vec<u8>,
    ) -> Option<Lookup> {
        loop {
            layout::read(region, offset, slot);
            match parse_slot(slot) {
                SlotView::Torn => hint::spin_loop(),
                SlotView::Record { key: found, version, place } if found == key => {
                    match place {
                        Place::Inline(value) => into.extend_from_slice(value),
                        Place::OutOfLine(block) => {
                            if grow::read_block(&self.heap, block, key, version, into).is_none() {
                                continue;
                            }
                        }
                    }
                    return Some(Lookup { version, present: true });
                }
                SlotView::Empty | SlotView::Record { .. } => return None,
            }
        }
    }

    /// The memory of `count` slots from `first` on.
    ///
    /// # Panics
    /// If they are not all within D_m of a home.
    pub fn slots_span(&self, first: u64, count: u64) -> Span {
        let slots = self.geometry.slots + u64::from(self.geometry.displacement_max) - 1;
        assert!(first + count <= slots, "a span of slots lies in the table");
        Span {
            region: self.region.clone(),
            offset: self.slot_offset(first),
            len: (count * self.geometry.slot_bytes()) as usize,
        }
    }

    /// The slots in the bytes of [`HostTable::slots_span`], in order.
    pub fn parse_slots<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = SlotView<'a>> {
        bytes.chunks_exact(self.geometry.slot_bytes() as usize).map(parse_slot)
    }

    /// The memory of a segment's header.
    pub fn header_span(&self, segment: u64) -> Span {
        let offset = segment * HEADER_BYTES;
        Span { region: self.region.clone(), offset, len: HEADER_BYTES as usize }
    }

    /// Parses the bytes of [`HostTable::header_span`]; `None` if there are too few.
    pub fn parse_header(bytes: &[u8]) -> Option<SegmentHeader> {
        let mut words = bytes.chunks_exact(WORD).map(|chunk| {
            let mut word = [0; WORD];
            word.copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        let (moves, overflow, floor) = (words.next()?, words.next()?, words.next()?);
        Some(SegmentHeader { moves, overflow: PageRef::parse(overflow), floor: Version(floor) })
    }

    /// The memory of an overflow page.
    pub fn page_span(&self, page: PageRef) -> Span {
        let (region, offset) = self.page_at(page);
        Span { region: region.clone(), offset, len: self.geometry.page_bytes() as usize }
    }

    /// The next page in the bytes of [`HostTable::page_span`]; their slots are parsed like others.
    pub fn parse_page_link(bytes: &[u8]) -> Option<PageRef> {
        let link = bytes.last_chunk::<WORD>()?;
        PageRef::parse(u64::from_le_bytes(*link))
    }

    /// The memory of a value out of line.
    pub fn block_span(&self, block: BlockRef) -> Span {
        let (region, offset, len) = grow::span(&self.heap, block);
        Span { region: region.clone(), offset, len: len as usize }
    }

    /// The value in the bytes of [`HostTable::block_span`]; `None` if the block was reused.
    pub fn parse_block(bytes: &[u8], key: Key, version: Version, len: u32) -> Option<&[u8]> {
        grow::parse_block(bytes, key, version, len)
    }

    fn slot_offset(&self, slot: u64) -> u64 {
        self.geometry.slots_offset() + slot * self.geometry.slot_bytes()
    }

    fn page_at(&self, page: PageRef) -> (&Arc<Region>, u64) {
        let Some(region) = self.pages.get(page.chunk()) else {
            panic!("a linked page lies in a region that exists");
        };
        (region, page.page() * self.geometry.page_bytes())
    }

    fn header(&self, segment: u64) -> SegmentHeader {
        let at = segment * HEADER_BYTES;
        SegmentHeader {
            moves: load(&self.region, at),
            overflow: PageRef::parse(load(&self.region, at + WORD as u64)),
            floor: Version(load(&self.region, at + 2 * WORD as u64)),
        }
    }

    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for HostTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostTable({} records, {} slots)", self.len(), self.geometry.slots)
    }
}

#[cfg(test)]
mod tests;
