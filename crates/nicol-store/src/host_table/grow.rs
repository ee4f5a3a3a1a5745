//! Memory that grows: overflow pages and heap blocks in regions that are added on demand and
//! never move.

use std::sync::{Arc, OnceLock};

use nicol_core::ids::{Key, Version};
use nicol_core::memory::{Region, WORD};
use nicol_core::units::Bytes;

use super::layout::{BlockRef, load, read, store, write};

/// Regions that a growing memory may have.
const CHUNKS_MAX: usize = 4_096;

/// Regions added on demand, readable without a lock.
pub(super) struct Chunks(Box<[OnceLock<Arc<Region>>]>);

impl Chunks {
    pub(super) fn new() -> Self {
        Self((0..CHUNKS_MAX).map(|_| OnceLock::new()).collect())
    }

    pub(super) fn get(&self, chunk: u32) -> Option<&Arc<Region>> {
        self.0.get(chunk as usize)?.get()
    }

    /// Adds a region; only the table's single writer calls it.
    fn add(&self, chunk: u32, size: u64) {
        let Some(cell) = self.0.get(chunk as usize) else {
            panic!("a table grows by at most {CHUNKS_MAX} regions");
        };
        let fresh = cell.set(Arc::new(Region::new(Bytes(size)))).is_ok();
        assert!(fresh, "a region is added once");
    }
}

/// Hands out overflow pages of one size.
#[derive(Debug, Default)]
pub(super) struct PageAllocator {
    chunks: u32,
    next: u32,
    end: u32,
}

/// Pages in the first region of overflow pages; each further one has as many again.
const PAGES_PER_CHUNK: u32 = 1_024;

impl PageAllocator {
    /// A fresh, zeroed page: region and page number within it.
    pub(super) fn page(&mut self, chunks: &Chunks, page_bytes: u64) -> (u32, u32) {
        if self.next == self.end {
            chunks.add(self.chunks, u64::from(PAGES_PER_CHUNK) * page_bytes);
            self.chunks += 1;
            self.next = 0;
            self.end = PAGES_PER_CHUNK;
        }
        self.next += 1;
        (self.chunks - 1, self.next - 1)
    }
}

/// Block: key, version, then the value, then the version again. A reader that followed a stale
/// pointer finds another key or version, since a version is never reused for a key.
const BLOCK_HEADER: u64 = 2 * WORD as u64;
const SMALLEST_CLASS: u32 = 9;
const CLASSES: usize = 13;
/// Bytes of a heap region for blocks below it.
const HEAP_CHUNK: u64 = 1 << 20;

/// Hands out heap blocks by power-of-two size class.
#[derive(Debug)]
pub(super) struct Heap {
    chunks: u32,
    free: [Vec<(u32, u32)>; CLASSES],
}

impl Default for Heap {
    fn default() -> Self {
        Self { chunks: 0, free: std::array::from_fn(|_| Vec::new()) }
    }
}

/// Bytes that a value of `len` bytes takes in its block.
fn needed(len: u32) -> u64 {
    BLOCK_HEADER + u64::from(len).next_multiple_of(WORD as u64) + WORD as u64
}

fn class_of(len: u32) -> usize {
    let bits = needed(len).next_power_of_two().trailing_zeros();
    (bits.max(SMALLEST_CLASS) - SMALLEST_CLASS) as usize
}

impl Heap {
    /// Writes a value into a free block.
    pub(super) fn put(
        &mut self,
        chunks: &Chunks,
        key: Key,
        version: Version,
        value: &[u8],
    ) -> BlockRef {
        let class = class_of(value.len() as u32);
        let size = 1u64 << (SMALLEST_CLASS as usize + class);
        if self.free[class].is_empty() {
            let region = size.max(HEAP_CHUNK);
            chunks.add(self.chunks, region);
            let blocks = (region / size) as u32;
            self.free[class].extend((0..blocks).rev().map(|block| (self.chunks, block)));
            self.chunks += 1;
        }
        let Some((chunk, block)) = self.free[class].pop() else {
            panic!("a region was just added");
        };
        let reference = BlockRef { chunk, block, len: value.len() as u32 };
        let (region, offset, len) = span(chunks, reference);
        store(region, offset + len - WORD as u64, 0);
        store(region, offset + WORD as u64, 0);
        store(region, offset, key.0);
        write(region, offset + BLOCK_HEADER, value);
        store(region, offset + WORD as u64, version.0);
        store(region, offset + len - WORD as u64, version.0);
        reference
    }

    /// Takes a block back. Readers that still hold its pointer will notice its reuse.
    pub(super) fn take_back(&mut self, block: BlockRef) {
        self.free[class_of(block.len)].push((block.chunk, block.block));
    }
}

/// The region, offset and length of a block's used bytes.
pub(super) fn span(chunks: &Chunks, block: BlockRef) -> (&Arc<Region>, u64, u64) {
    let Some(region) = chunks.get(block.chunk) else {
        panic!("a block lies in a region that exists");
    };
    let size = 1u64 << (SMALLEST_CLASS as usize + class_of(block.len));
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
        && word(bytes.len().checked_sub(WORD)?)? == version.0;
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
    // Upwards, as the writer of a reused block goes: trailer cleared first, set last.
    if load(region, offset) != key.0 || load(region, offset + WORD as u64) != version.0 {
        return None;
    }
    let start = into.len();
    into.resize(start + block.len as usize, 0);
    read(region, offset + BLOCK_HEADER, &mut into[start..]);
    if load(region, last) != version.0 || load(region, offset + WORD as u64) != version.0 {
        into.truncate(start);
        return None;
    }
    Some(())
}
