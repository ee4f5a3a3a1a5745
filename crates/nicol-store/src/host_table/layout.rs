//! The bytes of a host table: slots, segment headers, overflow pages, heap blocks.
//!
//! A slot has a seqlock word at each end. A writer makes the tail odd, then the head, writes, and
//! makes the head and then the tail even again. A reader reads upwards, as DMA does. Equal even
//! words mean that the bytes between them are one state of the slot (AMB-03, in place of HTM).
//!
//! A *reference* is the slot of a table all of whose values stand in blocks: four words. Its first
//! word has the seqlock in the lower half and the value's length in the upper one, its last word
//! the lowest bits of the seqlock below the block's place.

use nicol_core::ids::{Key, Version};
use nicol_core::memory::{Region, WORD, Words};

use super::memory::CHUNKS_MAX;
use crate::access::{load, read, store, words, write};

/// Largest value stored in a slot; larger ones are stored out of line. [Xenic21 4.1.2]
pub const INLINE_MAX: usize = 256;

const WORD_U64: u64 = WORD as u64;
/// Head seqlock word, key, version, length and kind; the value and the tail seqlock word follow.
const VALUE: u64 = 4 * WORD_U64;

/// Byte offsets of the key, of the version, and of the length and kind.
pub(super) const KEY: u64 = WORD_U64;
const VERSION: u64 = 2 * WORD_U64;
const SHAPE: u64 = 3 * WORD_U64;

/// Bytes of a reference: seqlock and length, key, version, block and seqlock.
const REFERENCE: u64 = 4 * WORD_U64;
/// Bits of the seqlock in the last word of a reference; the others are the block's place. Between
/// two loads of a reader it would have to be rewritten half a million times, to the very number, to
/// look unchanged; the block's seal would still tell.
const TAIL_BITS: u32 = 20;
const TAIL: u64 = (1 << TAIL_BITS) - 1;
const _: () = assert!(CHUNKS_MAX <= 1 << (u64::BITS - TAIL_BITS - u32::BITS), "a place fits");

/// Kinds of slots, in the upper half of the fourth word.
mod kind {
    pub const EMPTY: u64 = 0;
    pub const INLINE: u64 = 1;
    pub const OUT_OF_LINE: u64 = 2;
}

/// Where a slot's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredValue<'a> {
    /// In the slot.
    Inline(&'a [u8]),
    /// In a heap block. [Xenic21 4.1.2]
    OutOfLine(BlockRef),
}

/// A heap block and the length of the value in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRef {
    pub(super) chunk: u32,
    pub(super) block: u32,
    /// Bytes of the value.
    pub len: u32,
}

impl BlockRef {
    /// Where the block is, as a slot says it.
    fn pointer(self) -> u64 {
        u64::from(self.chunk) << 32 | u64::from(self.block)
    }

    /// The opposite of [`BlockRef::pointer`].
    const fn parse(pointer: u64, len: u32) -> Self {
        Self { chunk: (pointer >> 32) as u32, block: pointer as u32, len }
    }
}

/// A slot as a reader found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotView<'a> {
    Empty,
    /// A slot being written: read it again.
    Torn,
    Record {
        key: Key,
        version: Version,
        stored: StoredValue<'a>,
    },
}

/// Bytes of a slot whose value has at most `inline` bytes inline; 0: a reference.
pub(super) const fn slot_bytes(inline: usize) -> u64 {
    match inline {
        0 => REFERENCE,
        _ => VALUE + inline.next_multiple_of(WORD) as u64 + WORD_U64,
    }
}

const fn is_reference(slot_bytes: u64) -> bool {
    slot_bytes == REFERENCE
}

/// The first word of a reference.
const fn head_of(seqlock: u64, len: u32) -> u64 {
    (len as u64) << 32 | seqlock as u32 as u64
}

/// The last word of a reference.
const fn tail_of(seqlock: u64, pointer: u64) -> u64 {
    (pointer >> 32) << (32 + TAIL_BITS) | (pointer as u32 as u64) << TAIL_BITS | seqlock & TAIL
}

/// The four words of a reference; `None` if they are of different states.
fn reference_in([head, key, version, tail]: [u64; 4]) -> Option<SlotRead> {
    if !head.is_multiple_of(2) || (head ^ tail) & TAIL != 0 {
        return None;
    }
    if version == 0 {
        return Some(SlotRead::Empty);
    }
    let (chunk, block) = ((tail >> (32 + TAIL_BITS)) as u32, (tail >> TAIL_BITS) as u32);
    let block = BlockRef { chunk, block, len: (head >> 32) as u32 };
    Some(SlotRead::Record(Key(key), Version(version), Some(block)))
}

/// Writes a reference under its seqlock; of a record that stays, the key is written again.
#[inline]
fn write_reference(slot: Words<'_>, key: Key, version: Version, (len, pointer): (u32, u64)) {
    let (head, tail) = (slot.load(0), slot.load(3));
    assert!(head.is_multiple_of(2), "one writer at a time");
    let seqlock = head as u32;
    let (odd, even) = (seqlock.wrapping_add(1).into(), seqlock.wrapping_add(2).into());
    slot.store(3, tail & !TAIL | odd & TAIL);
    slot.store(0, head_of(odd, (head >> 32) as u32));
    slot.store(1, key.0);
    slot.store(2, version.0);
    slot.store(0, head_of(even, len));
    slot.store(3, tail_of(even, pointer));
}

fn word(bytes: &[u8], at: u64) -> u64 {
    let at = at as usize;
    let mut word = [0; WORD];
    word.copy_from_slice(&bytes[at..at + WORD]);
    u64::from_le_bytes(word)
}

/// Parses the bytes of one slot.
pub(super) fn parse_slot(bytes: &[u8]) -> SlotView<'_> {
    if is_reference(bytes.len() as u64) {
        let words = [0, 1, 2, 3].map(|place| word(bytes, place * WORD_U64));
        return match reference_in(words) {
            None | Some(SlotRead::Torn) => SlotView::Torn,
            Some(SlotRead::Record(key, version, Some(block))) => {
                SlotView::Record { key, version, stored: StoredValue::OutOfLine(block) }
            }
            Some(SlotRead::Empty | SlotRead::Record(.., None)) => SlotView::Empty,
        };
    }
    let (head, tail) = (word(bytes, 0), word(bytes, bytes.len() as u64 - WORD_U64));
    if head != tail || !head.is_multiple_of(2) {
        return SlotView::Torn;
    }
    let shape = word(bytes, SHAPE);
    let len = shape as u32;
    let value = &bytes[VALUE as usize..bytes.len() - WORD];
    let stored = match shape >> 32 {
        kind::EMPTY => return SlotView::Empty,
        kind::INLINE if len as usize <= value.len() => StoredValue::Inline(&value[..len as usize]),
        kind::OUT_OF_LINE => StoredValue::OutOfLine(BlockRef::parse(word(bytes, VALUE), len)),
        _ => return SlotView::Torn,
    };
    let (key, version) = (Key(word(bytes, WORD_U64)), Version(word(bytes, 2 * WORD_U64)));
    SlotView::Record { key, version, stored }
}

/// A slot as local accesses beside its writer find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotRead {
    Empty,
    /// A slot being written: read it again.
    Torn,
    /// A record: its key, its version, and its block if the value is out of line.
    Record(Key, Version, Option<BlockRef>),
}

/// Reads `slot` upwards beside its writer; a value in it is appended to `into`, which is as before
/// unless that is a record's.
pub(super) fn read_slot(slot: Words<'_>, into: &mut Vec<u8>) -> SlotRead {
    if is_reference((slot.len() * WORD) as u64) {
        return reference_in([0, 1, 2, 3].map(|place| slot.load(place))).unwrap_or(SlotRead::Torn);
    }
    let (head, start) = (slot.load(0), into.len());
    let [key, version, shape] = [KEY, VERSION, SHAPE].map(|offset| slot.load(place(offset)));
    let (len, tail) = (shape as u32, slot.len() - 1);
    let block = match shape >> 32 {
        _ if !head.is_multiple_of(2) => return SlotRead::Torn,
        kind::INLINE if place(VALUE) + (len as usize).div_ceil(WORD) <= tail => {
            into.resize(start + len as usize, 0);
            slot.read(place(VALUE), &mut into[start..]);
            None
        }
        kind::OUT_OF_LINE => Some(BlockRef::parse(slot.load(place(VALUE)), len)),
        kind::EMPTY => None,
        _ => return SlotRead::Torn,
    };
    if slot.load(tail) != head {
        into.truncate(start);
        return SlotRead::Torn;
    }
    match shape >> 32 {
        kind::EMPTY => SlotRead::Empty,
        _ => SlotRead::Record(Key(key), Version(version), block),
    }
}

/// The place of the word at a byte offset.
const fn place(offset: u64) -> usize {
    (offset / WORD_U64) as usize
}

/// Bytes of a slot to be written: everything between the seqlock words, and of a reference what
/// stands there in other slots.
#[derive(Clone, Debug)]
pub(super) struct SlotImage {
    bytes: Vec<u8>,
    is_reference: bool,
}

impl SlotImage {
    pub(super) fn empty(slot_bytes: u64) -> Self {
        let is_reference = is_reference(slot_bytes);
        let bytes = if is_reference { VALUE } else { slot_bytes - 2 * WORD_U64 };
        Self { bytes: vec![0; bytes as usize], is_reference }
    }

    /// The image of a record.
    pub(super) fn set(&mut self, key: Key, version: Version, stored: StoredValue<'_>) {
        self.bytes.fill(0);
        for (position, word) in [key.0, version.0, shape(&stored)].into_iter().enumerate() {
            self.bytes[position * WORD..(position + 1) * WORD].copy_from_slice(&word.to_le_bytes());
        }
        let value = 3 * WORD;
        match stored {
            StoredValue::Inline(bytes) => {
                self.bytes[value..value + bytes.len()].copy_from_slice(bytes)
            }
            StoredValue::OutOfLine(block) => {
                self.bytes[value..value + WORD].copy_from_slice(&block.pointer().to_le_bytes());
            }
        }
    }

    /// The image of an empty slot.
    pub(super) fn clear(&mut self) {
        self.bytes.fill(0);
    }

    /// Writes the image into the slot at `offset`, under its seqlock.
    pub(super) fn write(&self, region: &Region, offset: u64) {
        if self.is_reference {
            let [key, version, shape, pointer] = [0, 1, 2, 3].map(|at| self.word(at));
            let (slot, place) = (words(region, offset, REFERENCE), (shape as u32, pointer));
            return write_reference(slot, Key(key), Version(version), place);
        }
        let tail = offset + WORD_U64 + self.bytes.len() as u64;
        let seqlock = load(region, tail);
        assert!(seqlock.is_multiple_of(2), "one writer at a time");
        store(region, tail, seqlock + 1);
        store(region, offset, seqlock + 1);
        write(region, offset + WORD_U64, &self.bytes);
        store(region, offset, seqlock + 2);
        store(region, tail, seqlock + 2);
    }

    /// Takes the image of the slot at `from`, which no one else writes.
    pub(super) fn take(&mut self, region: &Region, from: u64) {
        if self.is_reference {
            let slot = words(region, from, REFERENCE);
            match read_slot(slot, &mut Vec::new()) {
                SlotRead::Record(key, version, Some(block)) => {
                    self.set(key, version, StoredValue::OutOfLine(block));
                }
                SlotRead::Record(.., None) | SlotRead::Empty => self.clear(),
                SlotRead::Torn => panic!("no one else writes"),
            }
            return;
        }
        read(region, from + WORD_U64, &mut self.bytes);
    }

    /// Copies the slot at `from` (which no one else writes) over the one at `to`.
    pub(super) fn copy(&mut self, region: &Region, from: u64, to: u64) {
        self.take(region, from);
        self.write(region, to);
    }

    fn word(&self, place: u64) -> u64 {
        word(&self.bytes, place * WORD_U64)
    }
}

/// The fourth word of a record, and its value's own bytes in the slot.
#[inline]
fn shape(stored: &StoredValue<'_>) -> u64 {
    match stored {
        StoredValue::Inline(value) => kind::INLINE << 32 | value.len() as u64,
        StoredValue::OutOfLine(block) => kind::OUT_OF_LINE << 32 | u64::from(block.len),
    }
}

/// Replaces version and value of the record in `slot`, under its seqlock.
#[inline]
pub(super) fn replace(slot: Words<'_>, version: Version, stored: StoredValue<'_>) {
    if is_reference((slot.len() * WORD) as u64) {
        let StoredValue::OutOfLine(block) = stored else {
            panic!("a reference has no space for a value");
        };
        let key = Key(slot.load(place(KEY)));
        return write_reference(slot, key, version, (block.len, block.pointer()));
    }
    let (head, tail) = (0, slot.len() - 1);
    let seqlock = slot.load(tail);
    assert!(seqlock.is_multiple_of(2), "one writer at a time");
    slot.store(tail, seqlock + 1);
    slot.store(head, seqlock + 1);
    slot.store(place(VERSION), version.0);
    slot.store(place(SHAPE), shape(&stored));
    match stored {
        StoredValue::Inline(value) => slot.write(place(VALUE), value),
        StoredValue::OutOfLine(block) => slot.store(place(VALUE), block.pointer()),
    }
    slot.store(head, seqlock + 2);
    slot.store(tail, seqlock + 2);
}

/// The key in the slot at `offset`, which no one else writes. Only of an empty slot the version
/// is 0.
pub(super) fn key_at(region: &Region, offset: u64) -> Option<Key> {
    let empty = load(region, offset + VERSION) == 0;
    (!empty).then(|| Key(load(region, offset + KEY)))
}

/// The block of the record in `slot`, as far as can be told beside its writer: to prefetch it.
#[inline]
pub(super) fn block_in(slot: Words<'_>) -> Option<BlockRef> {
    if is_reference((slot.len() * WORD) as u64) {
        return match reference_in([0, 1, 2, 3].map(|place| slot.load(place))) {
            Some(SlotRead::Record(.., block)) => block,
            Some(SlotRead::Empty | SlotRead::Torn) | None => None,
        };
    }
    let shape = slot.load(place(SHAPE));
    let out_of_line = shape >> 32 == kind::OUT_OF_LINE;
    out_of_line.then(|| BlockRef::parse(slot.load(place(VALUE)), shape as u32))
}

/// The version of the record in `slot`, which no one else writes, and its block if its value is out
/// of line; `None` if the slot is empty.
///
/// # Panics
/// If it is of no kind.
#[inline]
pub(super) fn record_in(slot: Words<'_>) -> Option<(Version, Option<BlockRef>)> {
    if is_reference((slot.len() * WORD) as u64) {
        let words = [0, 1, 2, 3].map(|place| slot.load(place));
        return match reference_in(words) {
            Some(SlotRead::Record(_, version, block)) => Some((version, block)),
            Some(SlotRead::Empty) => None,
            Some(SlotRead::Torn) | None => panic!("the writer is alone"),
        };
    }
    let shape = slot.load(place(SHAPE));
    let block = match shape >> 32 {
        kind::EMPTY => return None,
        kind::INLINE => None,
        kind::OUT_OF_LINE => Some(BlockRef::parse(slot.load(place(VALUE)), shape as u32)),
        kind => panic!("the writer is alone, and has written a slot of kind {kind}"),
    };
    Some((Version(slot.load(place(VERSION))), block))
}
