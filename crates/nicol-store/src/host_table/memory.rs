//! Memory that grows: overflow pages and heap blocks in regions that are added on demand and
//! never move.

use std::sync::{Arc, OnceLock};

use nicol_core::ids::{Key, Version};
use nicol_core::memory::{Region, WORD};
use nicol_core::txn::VALUE_MAX;
use nicol_core::units::Bytes;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::PageRef;
use super::layout::BlockRef;
use crate::access::{load, read, store, write};

/// Regions that overflow pages or heap blocks may take.
pub(super) const CHUNKS_MAX: usize = 4_096;
/// Regions of one size before their size doubles, so that memory ends before their number does.
const CHUNKS_PER_SIZE: u32 = 512;

/// Regions added on demand, readable without a lock.
pub(super) struct Chunks(Box<[OnceLock<Arc<Region>>]>);

impl Chunks {
    /// Space for so many regions.
    pub(super) fn new(chunks_max: usize) -> Self {
        Self((0..chunks_max).map(|_| OnceLock::new()).collect())
    }

    /// A deep copy.
    pub(super) fn copy(&self) -> Self {
        let copy = |cell: &OnceLock<Arc<Region>>| match cell.get() {
            Some(region) => OnceLock::from(Arc::new(region.copy())),
            None => OnceLock::new(),
        };
        Self(self.0.iter().map(copy).collect())
    }

    #[inline]
    pub(super) fn get(&self, chunk: u32) -> Option<&Arc<Region>> {
        self.0.get(chunk as usize)?.get()
    }

    /// Adds a region; only the table's single writer calls it.
    pub(super) fn add(&self, chunk: u32, size: u64) {
        let Some(cell) = self.0.get(chunk as usize) else {
            panic!("memory ends before {} regions do", self.0.len());
        };
        let fresh = cell.set(Arc::new(Region::new(Bytes(size)))).is_ok();
        assert!(fresh, "a region is added once");
    }

    /// The regions that exist, with their numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &Arc<Region>)> {
        let numbered = self.0.iter().enumerate();
        numbered.filter_map(|(number, cell)| Some((number as u32, cell.get()?)))
    }

    /// Bytes of the regions that exist.
    pub(super) fn bytes(&self) -> u64 {
        self.iter().map(|(_, region)| region.size().0).sum()
    }
}

/// How much larger the region with this number is than the first.
const fn scale(chunk: u32) -> u64 {
    1 << (chunk / CHUNKS_PER_SIZE)
}

/// Hands out overflow pages of one size.
#[derive(Clone, Debug, Default)]
pub(super) struct PageAllocator {
    chunks: u32,
    next: u32,
    end: u32,
    /// Pages taken back; they are empty.
    free: Vec<PageRef>,
}

/// Pages in the first region of overflow pages; see [`scale`] for the others.
const PAGES_PER_CHUNK: u32 = if cfg!(test) { 8 } else { 256 };

impl PageAllocator {
    /// An empty page without a link, and the bytes that were added for it.
    pub(super) fn page(&mut self, chunks: &Chunks, page_bytes: u64) -> (PageRef, u64) {
        if let Some(page) = self.free.pop() {
            return (page, 0);
        }
        let mut added = 0;
        if self.next == self.end {
            self.next = 0;
            self.end = PAGES_PER_CHUNK * scale(self.chunks) as u32;
            added = u64::from(self.end) * page_bytes;
            chunks.add(self.chunks, added);
            self.chunks += 1;
        }
        self.next += 1;
        (PageRef::new(self.chunks - 1, self.next - 1), added)
    }

    /// Frees a page that is empty and no longer linked. Readers that still follow an old link to it
    /// find a changed header.
    pub(super) fn take_back(&mut self, page: PageRef) {
        self.free.push(page);
    }

    /// Pages handed out.
    pub(super) fn in_use(&self) -> u64 {
        let full: u64 = (0..self.chunks).map(|at| u64::from(PAGES_PER_CHUNK) * scale(at)).sum();
        full - u64::from(self.end - self.next) - self.free.len() as u64
    }
}

/// Block: key, version, then the value, then a seal of key and version. A reader that follows a
/// stale pointer finds another key or version, because a version is never reused for a key. A
/// reader that is overtaken by the block's reuse finds no valid seal: the old seal is broken before
/// anything else is written, and no later one is equal.
const BLOCK_HEADER: u64 = 2 * WORD as u64;
/// Bytes of the blocks of each class. A quarter is lost on average for small values, which are the
/// many. From 576 on a class holds a power of two and an eighth: values often are powers of two,
/// and a block's own words and those of the value's owner come on top.
pub(super) const CLASS_BYTES: [u64; CLASSES] = [
    64, 96, 128, 160, 192, 224, 256, 320, 384, 576, 768, 1_152, 1_728, 2_304, 3_456, 4_608, 9_216,
    18_432, 36_864, 73_728, 147_456, 294_912, 589_824, 1_179_648,
];
/// As many as [`super::ExhaustedSpace`] has bits for.
pub(super) const CLASSES: usize = 24;
const _: () =
    assert!(needed(VALUE_MAX as u32) <= CLASS_BYTES[CLASSES - 1], "any value has a block");
/// Bytes of a heap region for blocks below it.
pub(super) const HEAP_CHUNK: u64 = if cfg!(test) { 1 << 13 } else { 1 << 18 };

/// Hands out heap blocks by size class.
#[derive(Clone, Debug)]
pub(super) struct Heap {
    chunks: u32,
    free: [Vec<(u32, u32)>; CLASSES],
    in_use: u64,
}

impl Default for Heap {
    fn default() -> Self {
        Self { chunks: 0, free: std::array::from_fn(|_| Vec::new()), in_use: 0 }
    }
}

/// The word behind a value; it identifies key and version.
fn seal(key: Key, version: Version) -> u64 {
    xxh3_64_with_seed(&key.0.to_le_bytes(), version.0)
}

/// Bytes that a value of `len` bytes takes in its block.
pub(super) const fn needed(len: u32) -> u64 {
    BLOCK_HEADER + (len as u64).next_multiple_of(WORD as u64) + WORD as u64
}

pub(super) fn class_of(len: u32) -> usize {
    let class = CLASS_BYTES.partition_point(|&bytes| bytes < needed(len));
    assert!(class < CLASSES, "the transaction's limits bound its values");
    class
}

/// The bit of [`Heap::without_block`] for a value of `len` bytes; of one beyond any value, all.
pub(super) fn class_bit(len: usize) -> u32 {
    if len > VALUE_MAX { (1 << CLASSES) - 1 } else { 1 << class_of(len as u32) }
}

impl Heap {
    /// Blocks that hold a value.
    pub(super) fn in_use(&self) -> u64 {
        self.in_use
    }

    /// The classes with at most one free block: one is kept back, because a value is written before
    /// the block of the replaced one is freed.
    pub(super) fn without_block(&self) -> u32 {
        let classes = self.free.iter().enumerate();
        classes.filter(|(_, free)| free.len() < 2).fold(0, |bits, (class, _)| bits | 1 << class)
    }

    /// Writes a value into a free block. Also returns how many bytes of memory were added.
    pub(super) fn put(
        &mut self,
        chunks: &Chunks,
        key: Key,
        version: Version,
        value: &[u8],
    ) -> (BlockRef, u64) {
        let mut added = 0;
        let class = class_of(value.len() as u32);
        let size = CLASS_BYTES[class];
        if self.free[class].is_empty() {
            let blocks = (HEAP_CHUNK * scale(self.chunks) / size).max(1) as u32;
            added = u64::from(blocks) * size;
            chunks.add(self.chunks, added);
            self.free[class].extend((0..blocks).rev().map(|block| (self.chunks, block)));
            self.chunks += 1;
        }
        let Some((chunk, block)) = self.free[class].pop() else {
            panic!("a region was just added");
        };
        let reference = BlockRef { chunk, block, len: value.len() as u32 };
        let (region, offset, len) = span(chunks, reference);
        store(region, offset, key.0);
        store(region, offset + WORD as u64, version.0);
        write(region, offset + BLOCK_HEADER, value);
        store(region, offset + len - WORD as u64, seal(key, version));
        self.in_use += 1;
        (reference, added)
    }

    /// Frees a block that no slot points to any more, and breaks its seal. Readers that still hold
    /// its pointer start again.
    pub(super) fn take_back(&mut self, chunks: &Chunks, block: BlockRef) {
        let (region, offset, len) = span(chunks, block);
        store(region, offset + len - WORD as u64, 0);
        self.in_use -= 1;
        self.free[class_of(block.len)].push((block.chunk, block.block));
    }
}

/// The region, offset and length of a block's used bytes.
pub(super) fn span(chunks: &Chunks, block: BlockRef) -> (&Arc<Region>, u64, u64) {
    let Some(region) = chunks.get(block.chunk) else {
        panic!("a block lies in a region that exists");
    };
    let size = CLASS_BYTES[class_of(block.len)];
    (region, u64::from(block.block) * size, needed(block.len))
}

/// The value in the bytes of a block, if they are still those of `key` at `version`.
pub(super) fn parse_block(bytes: &[u8], key: Key, version: Version, len: u32) -> Option<&[u8]> {
    let word = |at: usize| {
        let mut word = [0; WORD];
        word.copy_from_slice(bytes.get(at..at + WORD)?);
        Some(u64::from_le_bytes(word))
    };
    let whole = word(0)? == key.0
        && word(WORD)? == version.0
        && word(bytes.len().checked_sub(WORD)?)? == seal(key, version);
    let value = BLOCK_HEADER as usize;
    whole.then(|| bytes.get(value..value + len as usize))?
}

/// Reads a block's value with local accesses; `None` if the block has been reused.
pub(super) fn read_block(
    chunks: &Chunks,
    block: BlockRef,
    key: Key,
    version: Version,
    into: &mut Vec<u8>,
) -> Option<()> {
    let (region, offset, len) = span(chunks, block);
    let last = offset + len - WORD as u64;
    // Upwards, as DMA reads.
    if load(region, offset) != key.0 || load(region, offset + WORD as u64) != version.0 {
        return None;
    }
    let start = into.len();
    into.resize(start + block.len as usize, 0);
    read(region, offset + BLOCK_HEADER, &mut into[start..]);
    if load(region, last) != seal(key, version) {
        into.truncate(start);
        return None;
    }
    Some(())
}
