//! Values out of line: blocks in slabs of one size, whose memory goes back to the system when they
//! are empty.
//!
//! Each size class has regions of its own. What is given back is memory and not address space: a
//! slab of another class takes the memory, and a stale pointer into an empty slab finds zeros, or
//! later another block of the same class at the same place, and never the inside of one.

use std::sync::Arc;

use nicol_core::ids::{Key, Version};
use nicol_core::memory::{Region, WORD, Words};
use xxhash_rust::xxh3::xxh3_64_with_seed;

use super::layout::BlockRef;
use super::memory::Chunks;
use super::size_class::{BLOCK_OVERHEAD, SizeClass, needed};
use crate::access::{load, read, words};

/// Block: key, then the value, then a seal of key and version. A reader that follows a stale
/// pointer finds another key or no valid seal, because a version is never reused for a key. One
/// that is overtaken by the block's reuse finds no valid seal either: the old seal is broken before
/// anything else is written, and no later one is equal. The key tells whose value it is that moves.
const BLOCK_HEADER: u64 = BLOCK_OVERHEAD - WORD as u64;
/// Slabs of a class's first region. After each four the next ones are twice as large.
const REGION_SLABS: u64 = 4;
/// Regions of a class that are equally large.
const REGIONS_PER_SIZE: u32 = 4;
/// Slabs that a region has at most: any place in one fits into the half of a pointer.
const REGION_SLABS_MAX: u64 = 1 << 14;
/// Slabs with a free block are kept by how full they are, in so many steps.
const FILLS: usize = 8;

/// Hands out heap blocks by size class.
#[derive(Clone, Debug)]
pub(super) struct Heap {
    /// By the number of the region.
    regions: Vec<HeapRegion>,
    slabs: Vec<Slab>,
    classes: Box<[Class]>,
    in_use: u64,
    bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct HeapRegion {
    class: SizeClass,
    /// The number of its first slab.
    first: u32,
}

#[derive(Clone, Debug, Default)]
struct Class {
    /// Regions made.
    regions: u32,
    /// Slabs with memory and a free block, the emptiest first.
    fills: [Vec<u32>; FILLS],
    /// Slabs without memory.
    vacant: Vec<u32>,
    /// Blocks of the slabs with memory, and those of them that hold a value.
    blocks: u64,
    used: u64,
}

/// Memory for blocks of one class.
#[derive(Clone, Debug)]
struct Slab {
    region: u32,
    /// Its first byte in the region.
    offset: u64,
    used: u32,
    /// Where it stands in the list of its fill.
    place: u32,
    /// A bit for each block that holds a value; empty without memory.
    taken: Box<[u64]>,
    /// The first word of `taken` that may have a bit free.
    free_from: u32,
}

impl Slab {
    /// Takes the first free block; its number.
    fn take(&mut self) -> u64 {
        let from = self.free_from as usize;
        let free = self.taken[from..].iter().position(|word| *word != u64::MAX);
        let Some(at) = free.map(|at| at + from) else { panic!("a listed slab has a free block") };
        let bit = self.taken[at].trailing_ones();
        self.taken[at] |= 1 << bit;
        self.free_from = at as u32;
        self.used += 1;
        at as u64 * 64 + u64::from(bit)
    }

    fn take_back(&mut self, block: u64) {
        let at = (block / 64) as u32;
        self.taken[at as usize] &= !(1 << (block % 64));
        self.free_from = self.free_from.min(at);
        self.used -= 1;
    }
}

impl Class {
    const fn free(&self) -> u64 {
        self.blocks - self.used
    }

    /// The fullest slab with a free block.
    fn fullest(&self) -> Option<u32> {
        self.fills.iter().rev().find_map(|slabs| slabs.last().copied())
    }

    /// The emptiest slab that holds a value, among those with a free block.
    fn emptiest(&self, slabs: &[Slab]) -> Option<u32> {
        let holds = |&&slab: &&u32| slabs[slab as usize].used > 0;
        self.fills.iter().find_map(|slabs| slabs.iter().find(holds).copied())
    }
}

impl Default for Heap {
    fn default() -> Self {
        let classes = SizeClass::all().map(|_| Class::default()).collect();
        Self { regions: Vec::new(), slabs: Vec::new(), classes, in_use: 0, bytes: 0 }
    }
}

/// The word behind a value; it identifies key and version.
fn seal(key: Key, version: Version) -> u64 {
    xxh3_64_with_seed(&key.0.to_le_bytes(), version.0)
}

impl Heap {
    /// Blocks that hold a value.
    pub(super) fn in_use(&self) -> u64 {
        self.in_use
    }

    /// Bytes of the slabs that have memory.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The classes of whose values none can be stored without more memory, in a block of up to
    /// twice its size; one free block of a class is kept back, because a value is written before
    /// the block of the replaced one is freed.
    pub(super) fn exhausted(&self) -> impl Iterator<Item = SizeClass> {
        let mut nearest = None;
        SizeClass::all().rev().filter(move |&class| {
            if self.classes[class.index()].free() >= 2 {
                nearest = Some(class);
            }
            nearest.is_none_or(|near: SizeClass| near.block_bytes() > 2 * class.block_bytes())
        })
    }

    /// Writes a value into a free block: where memory `may_grow` in one of its class, else in one
    /// of up to twice the size if there is one.
    pub(super) fn put(
        &mut self,
        chunks: &Chunks,
        key: Key,
        version: Version,
        value: &[u8],
        may_grow: bool,
    ) -> BlockRef {
        let own = SizeClass::of_value(value.len() as u32);
        let has_free = |class: &SizeClass| self.classes[class.index()].free() > 0;
        let class = match may_grow || has_free(&own) {
            true => own,
            false => own.up_to_twice().find(has_free).unwrap_or(own),
        };
        let slab = match self.classes[class.index()].fullest() {
            Some(slab) => slab,
            None => self.commit(chunks, class),
        };
        let (chunk, offset) = self.take(slab, class);
        let block = (offset / WORD as u64) as u32;
        let reference = BlockRef { chunk, block, len: value.len() as u32 };
        fill(chunks, reference, key, version, value);
        self.in_use += 1;
        reference
    }

    /// Writes the next value of a key over the one in `block`, if its size is the block's. Readers
    /// that still have the block's pointer find its seal broken, and start again.
    pub(super) fn rewrite(
        &self,
        chunks: &Chunks,
        block: BlockRef,
        (key, version): (Key, Version),
        value: &[u8],
    ) -> Option<BlockRef> {
        let len = value.len() as u32;
        if self.regions[block.chunk as usize].class != SizeClass::of_value(len) {
            return None;
        }
        break_seal(chunks, block);
        let block = BlockRef { len, ..block };
        fill(chunks, block, key, version, value);
        Some(block)
    }

    /// Frees a block that no slot points to any more, and breaks its seal. Readers that still hold
    /// its pointer start again.
    pub(super) fn take_back(&mut self, chunks: &Chunks, block: BlockRef) -> SizeClass {
        break_seal(chunks, block);
        self.in_use -= 1;
        let HeapRegion { class, first } = self.regions[block.chunk as usize];
        let offset = u64::from(block.block) * WORD as u64;
        let number = first + (offset / class.slab_bytes()) as u32;
        let bit = offset % class.slab_bytes() / class.block_bytes();
        self.change(number, class, |slab| slab.take_back(bit));
        self.classes[class.index()].used -= 1;
        if self.slabs[number as usize].used == 0 {
            self.vacate_spare(chunks, class);
        }
        class
    }

    /// Gives the memory of empty slabs back, but of one that its class may soon need again: where
    /// values come and go one by one, it would be asked for and given back each time.
    fn vacate_spare(&mut self, chunks: &Chunks, class: SizeClass) {
        let is_empty = |&&slab: &&u32| self.slabs[slab as usize].used == 0;
        let of_class = &self.classes[class.index()];
        let kept = usize::from(of_class.used > 0);
        let spare: Vec<u32> =
            of_class.fills[0].iter().filter(is_empty).skip(kept).copied().collect();
        for slab in spare {
            self.vacate(chunks, slab, class);
        }
    }

    /// Of a class that is sparse, the blocks of its emptiest slab that hold values, at most `most`.
    /// Once they are moved, the slab's memory goes back. Sparse is a class with more free blocks
    /// than a quarter of its used ones, and more than a slab has.
    pub(super) fn to_move(&self, class: SizeClass, most: usize) -> Vec<(u32, u64)> {
        let of_class = &self.classes[class.index()];
        if of_class.free() <= (of_class.used / 4).max(class.slab_blocks()) {
            return Vec::new();
        }
        // Not into itself, nor into one that is empty.
        let emptiest = of_class.emptiest(&self.slabs);
        let Some(slab) = emptiest.filter(|_| emptiest != of_class.fullest()) else {
            return Vec::new();
        };
        let Slab { region, offset, taken, .. } = &self.slabs[slab as usize];
        let bits =
            (0..class.slab_blocks()).filter(|bit| taken[*bit as usize / 64] >> (bit % 64) & 1 == 1);
        bits.map(|bit| (*region, offset + bit * class.block_bytes())).take(most).collect()
    }

    /// Gives memory to a slab, and lists it.
    fn commit(&mut self, chunks: &Chunks, class: SizeClass) -> u32 {
        if self.classes[class.index()].vacant.is_empty() {
            self.add_region(chunks, class);
        }
        let of_class = &mut self.classes[class.index()];
        let Some(number) = of_class.vacant.pop() else {
            panic!("a region was just added");
        };
        of_class.blocks += class.slab_blocks();
        let words = class.slab_blocks().div_ceil(64) as usize;
        let slab = &mut self.slabs[number as usize];
        (slab.taken, slab.free_from) = (vec![0; words].into(), 0);
        self.bytes += class.slab_bytes();
        self.list(number, class);
        number
    }

    fn add_region(&mut self, chunks: &Chunks, class: SizeClass) {
        let (region, first) = (self.regions.len() as u32, self.slabs.len() as u32);
        let of_class = &mut self.classes[class.index()];
        let doublings = of_class.regions / REGIONS_PER_SIZE;
        let slabs = (REGION_SLABS << doublings).min(REGION_SLABS_MAX);
        chunks.add_pages(region, slabs * class.slab_bytes());
        of_class.regions += 1;
        // The first ones are taken first.
        of_class.vacant.extend((first..first + slabs as u32).rev());
        let slab = |at| Slab {
            region,
            offset: at * class.slab_bytes(),
            used: 0,
            place: 0,
            taken: Box::default(),
            free_from: 0,
        };
        self.slabs.extend((0..slabs).map(slab));
        self.regions.push(HeapRegion { class, first });
    }

    /// Gives the memory of an empty slab back to the system.
    fn vacate(&mut self, chunks: &Chunks, number: u32, class: SizeClass) {
        self.unlist(number, class, Some(0));
        let slab = &mut self.slabs[number as usize];
        slab.taken = Box::default();
        release(chunks, slab.region, slab.offset, class.slab_bytes());
        let of_class = &mut self.classes[class.index()];
        of_class.blocks -= class.slab_blocks();
        of_class.vacant.push(number);
        self.bytes -= class.slab_bytes();
    }

    /// Takes a free block of a slab that has one; returns its region and offset.
    fn take(&mut self, number: u32, class: SizeClass) -> (u32, u64) {
        let block = self.change(number, class, Slab::take);
        let slab = &self.slabs[number as usize];
        self.classes[class.index()].used += 1;
        (slab.region, slab.offset + block * class.block_bytes())
    }

    /// Changes a slab, and lists it anew if it is in another step then.
    fn change<T>(
        &mut self,
        number: u32,
        class: SizeClass,
        change: impl FnOnce(&mut Slab) -> T,
    ) -> T {
        let before = self.fill(number, class);
        let changed = change(&mut self.slabs[number as usize]);
        let after = self.fill(number, class);
        if before != after {
            self.unlist(number, class, before);
            self.list(number, class);
        }
        changed
    }

    /// The list of a slab with a free block; `None`: it is full.
    fn fill(&self, number: u32, class: SizeClass) -> Option<usize> {
        let fill = u64::from(self.slabs[number as usize].used) * FILLS as u64 / class.slab_blocks();
        Some(fill as usize).filter(|&fill| fill < FILLS)
    }

    fn list(&mut self, number: u32, class: SizeClass) {
        let Some(fill) = self.fill(number, class) else { return };
        let list = &mut self.classes[class.index()].fills[fill];
        self.slabs[number as usize].place = list.len() as u32;
        list.push(number);
    }

    /// Takes a slab out of the list of `fill`.
    fn unlist(&mut self, number: u32, class: SizeClass, fill: Option<usize>) {
        let Some(fill) = fill else { return };
        let list = &mut self.classes[class.index()].fills[fill];
        let place = self.slabs[number as usize].place;
        list.swap_remove(place as usize);
        if let Some(&moved) = list.get(place as usize) {
            self.slabs[moved as usize].place = place;
        }
    }
}

fn release(chunks: &Chunks, region: u32, offset: u64, len: u64) {
    let region = chunks.get(region).map(|region| region.release(offset, len));
    assert!(region == Some(Ok(())), "a slab lies in a region that exists");
}

/// The words of a block's used bytes.
#[inline]
fn words_of(chunks: &Chunks, block: BlockRef) -> Words<'_> {
    let (region, offset, len) = span(chunks, block);
    words(region, offset, len)
}

/// Writes a value into a block without a seal, and seals it.
#[inline]
fn fill(chunks: &Chunks, block: BlockRef, key: Key, version: Version, value: &[u8]) {
    let words = words_of(chunks, block);
    words.store(0, key.0);
    words.write(BLOCK_HEADER as usize / WORD, value);
    words.store(words.len() - 1, seal(key, version));
}

/// Breaks a block's seal: whoever reads the value from here on starts again.
#[inline]
fn break_seal(chunks: &Chunks, block: BlockRef) {
    let words = words_of(chunks, block);
    words.store(words.len() - 1, 0);
}

/// Prefetches the first and the last word of a block, if there is one.
#[inline]
pub(super) fn touch_block(chunks: &Chunks, block: BlockRef) {
    let Some(region) = chunks.get(block.chunk) else { return };
    let offset = u64::from(block.block) * WORD as u64;
    for at in [offset, offset + needed(block.len) - WORD as u64] {
        // A torn slot may say anything.
        let _touched = std::hint::black_box(region.load(at));
    }
}

/// The region, offset and length of a block's used bytes.
pub(super) fn span(chunks: &Chunks, block: BlockRef) -> (&Arc<Region>, u64, u64) {
    let Some(region) = chunks.get(block.chunk) else {
        panic!("a block lies in a region that exists");
    };
    (region, u64::from(block.block) * WORD as u64, needed(block.len))
}

/// The key in a block that holds a value.
pub(super) fn key_of_block(chunks: &Chunks, region: u32, offset: u64) -> Key {
    let Some(region) = chunks.get(region) else {
        panic!("a block lies in a region that exists");
    };
    Key(load(region, offset))
}

/// The value in the bytes of a block, if they are still those of `key` at `version`.
pub(super) fn parse_block(bytes: &[u8], key: Key, version: Version, len: u32) -> Option<&[u8]> {
    let word = |at: usize| {
        let mut word = [0; WORD];
        word.copy_from_slice(bytes.get(at..at + WORD)?);
        Some(u64::from_le_bytes(word))
    };
    let whole = word(0)? == key.0 && word(bytes.len().checked_sub(WORD)?)? == seal(key, version);
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
    if load(region, offset) != key.0 {
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
