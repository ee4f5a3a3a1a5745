//! The bytes of a remotely read table: buckets, slots, heap blocks.
//!
//! A slot begins with its header word, which one-sided coordinators compare, swap, and read to
//! validate. The body carries a checksum of key, version, shape and value, as in Pilaf: a reader
//! detects a torn slot, a rewritten one, and a reused heap block. Versions per cache line would not
//! suffice, because words are the only unit of atomicity here.

use std::ops::Range;

use nicol_core::ids::{EngineId, Key, NodeId, Version};
use nicol_core::memory::{Region, WORD};
use nicol_core::view::NODES_MAX;

use crate::access::{store, write};
use xxhash_rust::xxh3::xxh3_64_with_seed;

/// Largest inline value in bytes; larger ones are stored out of line.
pub const INLINE_MAX: usize = 1_024;

const WORD_U64: u64 = WORD as u64;

/// Fields of a slot, in bytes from its start.
pub(super) mod field {
    use super::WORD;

    /// Lock and version: see [`super::Header`]. 0: nothing in the slot.
    pub const HEADER: usize = 0;
    pub const KEY: usize = WORD;
    /// The transaction that the owner locked the record for; 0 otherwise.
    pub const HOLDER: usize = 2 * WORD;
    pub const SHAPE: usize = 3 * WORD;
    pub const CHECKSUM: usize = 4 * WORD;
    pub const VALUE: usize = 5 * WORD;
}

/// Fields of a bucket's head.
pub(super) mod bucket {
    use super::WORD;

    /// The bucket version. It changes with every insertion and removal of a key of this home, and
    /// with every move of one to an earlier slot; odd during the change.
    pub const VERSION: usize = 0;
    /// The version of every absent key of this home.
    pub const FLOOR: usize = WORD;
    /// Number of the next bucket of the chain; 0: none.
    pub const LINK: usize = 2 * WORD;
    pub const HEAD: usize = 3 * WORD;
}

/// Kinds of slots, in bits 32 to 40 of the shape word.
mod kind {
    pub const EMPTY: u64 = 0;
    pub const ABSENT: u64 = 1;
    pub const INLINE: u64 = 2;
    pub const OUT_OF_LINE: u64 = 3;
}

/// A record's lock and version in one word.
///
/// Unlocked: 0 | incarnation (21 bits) | version (42 bits). Locked: 1 | owner (21 bits) | version.
/// The incarnation counts how often the slot was assigned to a record, so a compare-and-swap or a
/// validation with an old word fails once the slot holds another record at the same version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header(u64);

const VERSION_BITS: u32 = 42;
const TAG_BITS: u32 = EngineId::NODE_BITS + 9;
const TAG_MASK: u64 = (1 << TAG_BITS) - 1;
const VERSION_MASK: u64 = (1 << VERSION_BITS) - 1;
const LOCK: u64 = 1 << 63;
const _: () = assert!(1 + TAG_BITS + VERSION_BITS == 64, "a header is one word");

/// Owner of records that the table's own writer is changing; no engine's id packs to it.
const WRITER: u64 = TAG_MASK;

impl Header {
    /// The highest version that a header can hold: 50 days of a million installs a second of one
    /// key.
    pub const VERSION_MAX: Version = Version(VERSION_MASK);

    /// The header in a word; `None` for an empty slot's.
    pub const fn parse(word: u64) -> Option<Self> {
        if word == 0 { None } else { Some(Self(word)) }
    }

    /// The word in memory.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The record's version; while locked, the one before the lock.
    pub const fn version(self) -> Version {
        Version(self.0 & VERSION_MASK)
    }

    /// Returns true if it is locked.
    pub const fn is_locked(self) -> bool {
        self.0 & LOCK != 0
    }

    /// The engine whose transaction holds the lock; `None` if unlocked, or locked for a moment by
    /// the table's own writer.
    pub fn owner(self) -> Option<EngineId> {
        let tag = self.tag();
        if !self.is_locked() || tag == WRITER {
            return None;
        }
        let (node, core) = (NodeId((tag >> 9) as u16), tag as u8);
        let on_nic = tag >> 8 & 1 == 1;
        Some(if on_nic { EngineId::nic(node, core) } else { EngineId::host(node, core) })
    }

    /// This unlocked header, locked by `owner`: the new word of a CAS that expects this one.
    ///
    /// # Panics
    /// If it is locked.
    pub fn locked_by(self, owner: EngineId) -> Self {
        assert!(!self.is_locked(), "an unlocked header is locked");
        let EngineId { node, side, core } = owner;
        assert!(node.index() < NODES_MAX, "a node's number has 12 bits");
        let tag = u64::from(node.0) << 9 | (side as u64) << 8 | u64::from(core);
        Self(LOCK | tag << VERSION_BITS | self.0 & VERSION_MASK)
    }

    /// This unlocked header after an install of `version` by the lock's holder.
    ///
    /// # Panics
    /// If it is locked, or the version does not move forward or is beyond the limit.
    pub fn installed(self, version: Version) -> Self {
        assert!(!self.is_locked(), "the header from before the lock is wanted");
        assert!(self.version() < version, "an install moves the version forward");
        Self::unlocked(self.tag(), version)
    }

    pub(super) fn unlocked(incarnation: u64, version: Version) -> Self {
        assert!(version <= Self::VERSION_MAX, "a version has 42 bits");
        Self(incarnation << VERSION_BITS | version.0)
    }

    pub(super) const fn locked_by_writer(self) -> Self {
        Self(LOCK | WRITER << VERSION_BITS | self.0 & VERSION_MASK)
    }

    const fn tag(self) -> u64 {
        self.0 >> VERSION_BITS & TAG_MASK
    }

    pub(super) const fn incarnation(self) -> u64 {
        self.tag()
    }
}

/// The incarnation after `incarnation`: never 0, so that no record's header is an empty slot's.
pub(super) const fn next_incarnation(incarnation: u64) -> u64 {
    if incarnation >= TAG_MASK { 1 } else { incarnation + 1 }
}

/// A heap block: byte offset in the region and the length of the value in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRef {
    /// First byte.
    pub offset: u64,
    /// Bytes of the value.
    pub len: u32,
}

/// Where a record's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredValue<'a> {
    /// No record: it is locked for insertion, or was deleted one-sidedly.
    Absent,
    /// In the slot.
    Inline(&'a [u8]),
    /// In a heap block.
    OutOfLine(BlockRef),
}

/// The third and fourth body words: what kind of value, how long, and the slot's incarnation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Shape(pub(super) u64);

impl Shape {
    const fn new(kind: u64, len: u32, incarnation: u64) -> Self {
        Self(incarnation << 40 | kind << 32 | len as u64)
    }

    /// An empty slot; it keeps its incarnation.
    pub(super) const fn empty(incarnation: u64) -> Self {
        Self::new(kind::EMPTY, 0, incarnation)
    }

    pub(super) const fn of(stored: StoredValue<'_>, incarnation: u64) -> Self {
        match stored {
            StoredValue::Absent => Self::new(kind::ABSENT, 0, incarnation),
            StoredValue::Inline(value) => Self::new(kind::INLINE, value.len() as u32, incarnation),
            StoredValue::OutOfLine(block) => Self::new(kind::OUT_OF_LINE, block.len, incarnation),
        }
    }

    pub(super) const fn incarnation(self) -> u64 {
        self.0 >> 40 & TAG_MASK
    }

    /// Kind and length: what a checksum covers.
    const fn content(self) -> u64 {
        self.0 & ((1 << 40) - 1)
    }

    /// The same content in a slot of another incarnation.
    pub(super) const fn moved_to(self, incarnation: u64) -> Self {
        Self(self.content() | incarnation << 40)
    }

    /// Bytes of the value area in use.
    pub(super) const fn stored_len(self) -> usize {
        match self.0 >> 32 & 0xff {
            kind::INLINE => self.0 as u32 as usize,
            kind::OUT_OF_LINE => WORD,
            _ => 0,
        }
    }

    /// The block of a value out of line; `pointer` fetches the slot's first value word.
    pub(super) fn block(self, pointer: impl FnOnce() -> u64) -> Option<BlockRef> {
        let out_of_line = self.0 >> 32 & 0xff == kind::OUT_OF_LINE;
        out_of_line.then(|| BlockRef { offset: pointer(), len: self.0 as u32 })
    }

    pub(super) const fn is_present(self) -> bool {
        matches!(self.0 >> 32 & 0xff, kind::INLINE | kind::OUT_OF_LINE)
    }
}

/// Covers a record's key, version, shape and the bytes in its slot.
pub(super) fn checksum(key: Key, version: Version, shape: Shape, value: &[u8]) -> u64 {
    let seed = key.0 ^ version.0.rotate_left(24) ^ shape.content().rotate_left(40);
    xxh3_64_with_seed(value, seed)
}

/// Bytes of a slot whose value has at most `inline` bytes inline.
pub(super) const fn slot_bytes(inline: usize) -> u64 {
    (field::VALUE + inline.next_multiple_of(WORD)) as u64
}

pub(super) fn word_at(bytes: &[u8], at: usize) -> Option<u64> {
    let chunk = bytes.get(at..)?.first_chunk::<WORD>()?;
    Some(u64::from_le_bytes(*chunk))
}

/// A slot as a reader found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SlotView<'a> {
    /// Another key's, or nobody's.
    Other,
    /// The key's, but being rewritten under this header.
    Torn(Header),
    /// The key's record.
    Record { header: Header, incarnation: u64, stored: StoredValue<'a> },
}

/// Looks for `key` in the bytes of one slot.
pub(super) fn parse_slot(bytes: &[u8], key: Key) -> SlotView<'_> {
    let word = |at: usize| word_at(bytes, at).unwrap_or_default();
    let Some(header) = Header::parse(word(field::HEADER)) else { return SlotView::Other };
    if word(field::KEY) != key.0 {
        return SlotView::Other;
    }
    let shape = Shape(word(field::SHAPE));
    let len = shape.0 as u32;
    let value = &bytes[field::VALUE..];
    let (stored, covered): (_, Range<usize>) = match shape.0 >> 32 & 0xff {
        kind::ABSENT => (StoredValue::Absent, 0..0),
        kind::INLINE if len as usize <= value.len() => {
            (StoredValue::Inline(&value[..len as usize]), 0..len as usize)
        }
        kind::OUT_OF_LINE => {
            let offset = word(field::VALUE);
            (StoredValue::OutOfLine(BlockRef { offset, len }), 0..WORD)
        }
        _ => return SlotView::Torn(header),
    };
    let sum = checksum(key, header.version(), shape, &value[covered]);
    let incarnation = shape.incarnation();
    let unlocked_elsewhere = !header.is_locked() && header.incarnation() != incarnation;
    if sum != word(field::CHECKSUM) || unlocked_elsewhere {
        return SlotView::Torn(header);
    }
    SlotView::Record { header, incarnation, stored }
}

/// A slot's content behind its holder word.
pub(super) struct Body<'a> {
    pub(super) shape: Shape,
    pub(super) checksum: u64,
    /// The value, or the pointer to it, stored in `pointer`.
    pub(super) value: &'a [u8],
}

impl<'a> Body<'a> {
    pub(super) fn new(
        key: Key,
        version: Version,
        stored: StoredValue<'a>,
        incarnation: u64,
        pointer: &'a mut [u8; WORD],
    ) -> Self {
        let shape = Shape::of(stored, incarnation);
        let value: &[u8] = match stored {
            StoredValue::Absent => &[],
            StoredValue::Inline(value) => value,
            StoredValue::OutOfLine(block) => {
                *pointer = block.offset.to_le_bytes();
                pointer
            }
        };
        Self { shape, checksum: checksum(key, version, shape, value), value }
    }

    /// Appends the slot from [`field::HOLDER`] on, without a holder.
    pub(super) fn emit(&self, into: &mut Vec<u8>) {
        for word in [0, self.shape.0, self.checksum] {
            into.extend_from_slice(&word.to_le_bytes());
        }
        into.extend_from_slice(self.value);
    }
}

/// A block: the checksum of key, version and value, then the value.
pub(super) const BLOCK_HEAD: usize = WORD;

fn block_checksum(key: Key, version: Version, value: &[u8]) -> u64 {
    xxh3_64_with_seed(value, !key.0 ^ version.0.rotate_left(24))
}

/// Writes a value into its block.
pub(super) fn write_block(region: &Region, at: u64, key: Key, version: Version, value: &[u8]) {
    store(region, at, block_checksum(key, version, value));
    write(region, at + BLOCK_HEAD as u64, value);
}

/// The value in the bytes of a block, if they are still those of `key` at `version`.
pub(super) fn parse_block(bytes: &[u8], key: Key, version: Version) -> Option<&[u8]> {
    let value = bytes.get(BLOCK_HEAD..)?;
    (word_at(bytes, 0)? == block_checksum(key, version, value)).then_some(value)
}

/// Bytes of a block with a value of `len` bytes.
pub(super) const fn block_bytes(len: u32) -> u64 {
    BLOCK_HEAD as u64 + (len as u64).next_multiple_of(WORD_U64)
}
