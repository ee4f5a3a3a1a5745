//! Lookups: in local memory, and the spans and parsers of lookups by DMA.

use std::hint;

use nicol_core::ids::{Key, Version};
use nicol_core::memory::{Region, WORD};

use super::address::{Home, LEVELS_MAX, Progress, SlotHash};
use super::layout::{BlockRef, KEY, SlotRead, SlotView, block_in, parse_slot, read_slot};
use super::{HEADER_BYTES, HostTable, Lookup, PAGE_SLOTS, PageRef, SegmentHeader, Span, heap};
use crate::access::{load, store, words};

/// Words of a header, as byte offsets.
pub(super) mod header {
    pub(crate) const MOVES: u64 = 0;
    pub(crate) const OVERFLOW: u64 = 8;
    pub(crate) const FLOOR: u64 = 16;
    pub(crate) const LEVEL: u64 = 24;
}

impl HostTable {
    /// The current home of a hash.
    #[inline]
    pub(super) fn home_now(&self, hash: SlotHash) -> Home {
        self.geometry.home(hash, self.progress())
    }

    /// Looks `key` up in local memory; a value found is appended to `into`.
    ///
    /// Takes no lock; retries while the record or its segment is being rewritten.
    pub fn get(&self, key: Key, into: &mut Vec<u8>) -> Lookup {
        let hash = SlotHash::of(key);
        loop {
            let home = self.home_now(hash);
            let before = self.header(home.chunk, home.local());
            if let Some(found) = self.search(home, before.overflow, key, into) {
                return found;
            }
            let after = self.header(home.chunk, home.local());
            if before == after && self.proves(hash, home, &after) {
                return Lookup { version: after.floor, present: false };
            }
            hint::spin_loop();
        }
    }

    /// The floor of `key`'s home segment: the version of an absent key.
    pub fn floor(&self, key: Key) -> Version {
        let home = self.home_now(SlotHash::of(key));
        self.header(home.chunk, home.local()).floor
    }

    /// Given a header that has not changed since before `home`'s slots and overflow pages were
    /// read: would the hash's key have been there?
    pub fn proves(&self, hash: SlotHash, home: Home, header: &SegmentHeader) -> bool {
        header.moves.is_multiple_of(2)
            && self.geometry.segment_at(hash, header.level) == home.segment
    }

    /// Prefetches the home of `key`, so that [`HostTable::apply`] finds it in the cache.
    ///
    /// Cost: a hash and a cache miss, which nothing waits for: those of several keys overlap.
    #[inline]
    pub fn touch(&self, key: Key) {
        let home = self.home_now(SlotHash::of(key));
        let slot = self.geometry.slot_offset(home.chunk, home.slot);
        hint::black_box(load(self.chunk(home.chunk), slot + KEY));
    }

    /// Prefetches the block of `key`'s value, if its slot is near its home: after
    /// [`HostTable::touch`], and before [`HostTable::apply`] writes there.
    ///
    /// Cost: a look at the slots, and cache misses, which nothing waits for.
    #[inline]
    pub fn touch_value(&self, key: Key) {
        if self.heap.get(0).is_none() {
            return;
        }
        let home = self.home_now(SlotHash::of(key));
        let (first, bytes) =
            (self.geometry.slot_offset(home.chunk, home.slot), self.geometry.slot_bytes());
        let probed = self.geometry.probe_length() * bytes;
        let slots = words(self.chunk(home.chunk), first, probed);
        let (place, stride) = ((KEY / WORD as u64) as usize, bytes as usize / WORD);
        let found = slots.find(place, stride, key.0);
        let block = found.and_then(|at| block_in(slots.part(at * stride, stride)));
        if let Some(block) = block {
            heap::touch_block(&self.heap, block);
        }
    }

    /// Reads every slot where `key` may be once, upwards.
    fn search(
        &self,
        home: Home,
        overflow: Option<PageRef>,
        key: Key,
        into: &mut Vec<u8>,
    ) -> Option<Lookup> {
        let region = self.chunk(home.chunk);
        let first = self.geometry.slot_offset(home.chunk, home.slot);
        for position in 0..self.geometry.probe_length() {
            let at = first + position * self.geometry.slot_bytes();
            if let Some(found) = self.try_slot(region, at, key, into) {
                return Some(found);
            }
        }
        let mut page = overflow;
        while let Some(current) = page {
            let (region, offset) = self.page_at(current);
            for position in 0..PAGE_SLOTS {
                let at = offset + position * self.geometry.slot_bytes();
                if let Some(found) = self.try_slot(region, at, key, into) {
                    return Some(found);
                }
            }
            page = self.link(current);
        }
        None
    }

    /// Reads one slot until it is not torn. Returns the record if it is `key`'s.
    fn try_slot(
        &self,
        region: &Region,
        offset: u64,
        key: Key,
        into: &mut Vec<u8>,
    ) -> Option<Lookup> {
        // A look at the key is enough to pass: a writer that overwrites a key here has first put
        // it, if it still exists, into a slot that is read later, or has changed the header.
        while load(region, offset + KEY) == key.0 {
            let start = into.len();
            match read_slot(words(region, offset, self.geometry.slot_bytes()), into) {
                SlotRead::Torn => hint::spin_loop(),
                SlotRead::Record(found, version, block) if found == key => {
                    if let Some(block) = block
                        && heap::read_block(&self.heap, block, key, version, into).is_none()
                    {
                        continue;
                    }
                    return Some(Lookup { version, present: true });
                }
                SlotRead::Empty => return None,
                SlotRead::Record(..) => {
                    into.truncate(start);
                    return None;
                }
            }
        }
        None
    }

    /// The home of `hash` in a table that has doubled so far: what a NIC computes.
    pub fn home(&self, hash: SlotHash, known: Progress) -> Home {
        self.geometry.home(hash, known)
    }

    /// The memory of `count` slots from the `from`th behind `home` on.
    ///
    /// # Panics
    /// If they are not all within D_m of it.
    pub fn slots_span(&self, home: Home, from: u64, count: u64) -> Span {
        assert!(
            from + count <= self.geometry.probe_length(),
            "an object is within D_m of its home"
        );
        Span {
            region: self.chunk(home.chunk).clone(),
            offset: self.geometry.slot_offset(home.chunk, home.slot + from),
            len: (count * self.geometry.slot_bytes()) as usize,
        }
    }

    /// The slots in the bytes of [`HostTable::slots_span`], in order.
    pub fn parse_slots<'a>(&self, bytes: &'a [u8]) -> impl Iterator<Item = SlotView<'a>> {
        bytes.chunks_exact(self.geometry.slot_bytes() as usize).map(parse_slot)
    }

    /// The memory of the header of `home`'s segment.
    pub fn header_span(&self, home: Home) -> Span {
        Span {
            region: self.chunk(home.chunk).clone(),
            offset: home.local() * HEADER_BYTES,
            len: HEADER_BYTES as usize,
        }
    }

    /// Parses the bytes of [`HostTable::header_span`]; `None` if they are not a header.
    pub fn parse_header(bytes: &[u8]) -> Option<SegmentHeader> {
        let mut words = bytes.chunks_exact(WORD).map(|chunk| {
            let mut word = [0; WORD];
            word.copy_from_slice(chunk);
            u64::from_le_bytes(word)
        });
        let (moves, overflow, floor) = (words.next()?, words.next()?, words.next()?);
        let level = u8::try_from(words.next()?).ok().filter(|&level| level <= LEVELS_MAX)?;
        Some(SegmentHeader {
            moves,
            overflow: PageRef::parse(overflow),
            floor: Version(floor),
            level,
        })
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
        let (region, offset, len) = heap::span(&self.heap, block);
        Span { region: region.clone(), offset, len: len as usize }
    }

    /// The value in the bytes of [`HostTable::block_span`]; `None` if the block was reused.
    pub fn parse_block(bytes: &[u8], key: Key, version: Version, len: u32) -> Option<&[u8]> {
        heap::parse_block(bytes, key, version, len)
    }

    pub(super) fn header(&self, chunk: u32, local: u64) -> SegmentHeader {
        let (region, at) = (self.chunk(chunk), local * HEADER_BYTES);
        SegmentHeader {
            moves: load(region, at + header::MOVES),
            overflow: PageRef::parse(load(region, at + header::OVERFLOW)),
            floor: Version(load(region, at + header::FLOOR)),
            level: load(region, at + header::LEVEL) as u8,
        }
    }

    fn link_offset(&self, page: PageRef) -> (&Region, u64) {
        let (region, offset) = self.page_at(page);
        (region, offset + self.geometry.page_bytes() - WORD as u64)
    }

    pub(super) fn link(&self, page: PageRef) -> Option<PageRef> {
        let (region, offset) = self.link_offset(page);
        PageRef::parse(load(region, offset))
    }

    pub(super) fn set_link(&self, page: PageRef, next: Option<PageRef>) {
        let (region, offset) = self.link_offset(page);
        store(region, offset, next.map_or(0, |next| next.0.get()));
    }
}
