//! What a server's memory looks like: the slots of the index, and the items in the buffers.
//!
//! ```text
//! region   0: nothing, what a null pointer points to   32: what a free slot points to, an item without
//!          a key   64: slots   behind them: buffers by size
//! slot     pointer | pointer, bound | generation, pointer | generation, pointer, bound, 0
//! item     stamp 8 | bytes of the key 4 | bytes of the value 4, or DELETED, or CLAIMED | key | value
//! ```
//!
//! A slot is naturally aligned, so that one CAS covers it. An item is written once, when its buffer
//! is allocated, and never changed. Its stamp names the PUT that wrote it.

use nicol_core::chain::Target;
use nicol_core::ids::EngineId;
use nicol_core::ids::Incarnation;
use nicol_core::memory::WORD;
use nicol_core::wire::{Malformed, Reader};

/// Bytes before an item's key.
pub(super) const ITEM_HEADER: u64 = 16;
/// Bytes before the first slot: zeros, which are no item.
const NULL: u64 = 64;
/// The pointer of a slot that is free, but does not end a search. AMB-48
pub(super) const RETIRED: u64 = 32;
/// The length of the value of a deleted key, and of one that has got a slot and no value yet.
const DELETED: u32 = u32::MAX;
const CLAIMED: u32 = u32::MAX - 1;
/// The stamp of what was loaded.
pub(super) const LOADED: u64 = u64::MAX;
/// Words of a slot at most.
pub(super) const SLOT_WORDS_MAX: usize = 4;

/// The content of a slot of the index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slots {
    /// A pointer: a GET asks for as many bytes as the largest item may have.
    Pointer,
    /// A pointer and the item's length, its bound: a GET gets as many bytes as there are. The chain
    /// of a PUT then begins with a WRITE that stages the bound. AMB-40
    Bounded,
}

/// The way that keeps a PUT from overwriting a slot which by now belongs to another object.
/// [PRISM21 6.1, footnote 2]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reuse {
    /// The pointer is compared. This prevents every concurrent update, and is only enough where a
    /// slot keeps its key for ever ([`DeletedSlots::Kept`], AMB-48).
    Pointer,
    /// A generation is compared that only grows when the slot gets a different object.
    Generation,
}

/// The use of a deleted key's slot. AMB-48.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeletedSlots {
    /// It keeps its key for ever: no PUT takes part of a server's CPU.
    Kept,
    /// Another key may take it: the server's CPU says which slot a key gets that has none.
    Reused,
}

/// Offsets of the words of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotForm {
    /// Words of a slot: one, two or four, as a CAS has.
    pub(super) words: usize,
    /// The word with the generation.
    pub(super) generation: Option<usize>,
    /// The word with the pointer.
    pub(super) pointer: usize,
    /// The word with the bound.
    pub(super) bound: Option<usize>,
}

impl SlotForm {
    pub(super) const fn new(slots: Slots, reuse: Reuse) -> Self {
        let (words, generation, pointer) = match reuse {
            Reuse::Pointer => (1, None, 0),
            Reuse::Generation => (2, Some(0), 1),
        };
        match slots {
            Slots::Pointer => Self { words, generation, pointer, bound: None },
            Slots::Bounded => {
                Self { words: 2 * words, generation, pointer, bound: Some(pointer + 1) }
            }
        }
    }

    /// Bytes of a slot.
    pub(super) const fn bytes(&self) -> u64 {
        (self.words * WORD) as u64
    }

    /// The address of slot `index`.
    pub(super) const fn at(&self, index: u64) -> u64 {
        NULL + index * self.bytes()
    }

    /// The index of the slot whose pointer is at `pointer`, if there is such a slot among so many.
    pub(super) fn index_of(&self, pointer: u64, entries: u64) -> Option<u64> {
        let offset = pointer.checked_sub(self.pointer_at(self.at(0)))?;
        let index = offset / self.bytes();
        (offset.is_multiple_of(self.bytes()) && index < entries).then_some(index)
    }

    /// The address of the pointer of the slot at `slot`.
    pub(super) const fn pointer_at(&self, slot: u64) -> u64 {
        slot + (self.pointer * WORD) as u64
    }

    /// The item to which the slot at `slot` points, up to its bound if there is one.
    pub(super) const fn item_of(&self, slot: u64) -> Target {
        match self.bound {
            Some(_) => Target::Bounded(self.pointer_at(slot)),
            None => Target::Indirect(self.pointer_at(slot)),
        }
    }
}

/// The words of a slot; those that it does not have are zero.
pub(super) type SlotWords = [u64; SLOT_WORDS_MAX];

/// The words that `bytes` begins with.
pub(super) fn words_of(bytes: &[u8]) -> SlotWords {
    let mut words = [0; SLOT_WORDS_MAX];
    let (chunks, _) = bytes.as_chunks::<WORD>();
    for (word, chunk) in words.iter_mut().zip(chunks) {
        *word = u64::from_le_bytes(*chunk);
    }
    words
}

/// The bytes of the first `count` of `words`.
pub(super) fn bytes_of(words: &SlotWords, count: usize) -> Vec<u8> {
    words[..count].iter().flat_map(|word| word.to_le_bytes()).collect()
}

/// An item, or the part of one that a READ has brought: the header and the key, at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    /// Names the PUT that wrote it.
    pub(super) stamp: u64,
    pub(super) key: &'a [u8],
    /// The value, as far as it was read; `None` of a deleted key, and of one that has got a slot
    /// only.
    pub(super) value: Option<&'a [u8]>,
}

/// The state of what a slot points to, by the header of the item alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    /// There is a value.
    Live,
    /// The key was deleted, or there is none.
    Deleted,
    /// The key has got the slot, and no value yet.
    Claimed,
}

impl Header {
    /// Of an item whose second word is this.
    pub(super) const fn of_lengths(lengths: u64) -> Self {
        match (lengths >> 32) as u32 {
            DELETED => Self::Deleted,
            CLAIMED => Self::Claimed,
            _ => Self::Live,
        }
    }
}

/// The bytes of an item of `key` that has got a slot, and no value yet.
pub(super) fn claimed(stamp: u64, key: &[u8]) -> Vec<u8> {
    let mut bytes = Item { stamp, key, value: None }.emit();
    bytes[12..16].copy_from_slice(&CLAIMED.to_le_bytes());
    bytes
}

/// The bytes of what a slot points to that is free.
pub(super) fn retired() -> Vec<u8> {
    Item { stamp: 0, key: b"", value: None }.emit()
}

impl<'a> Item<'a> {
    /// Parses what a slot points to: `None` if it points to nothing.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let mut from = Reader::new(bytes);
        if bytes.is_empty() {
            return Ok(None);
        }
        let (stamp, key, value) = (from.u64()?, from.u32()?, from.u32()?);
        if key == 0 && value != DELETED {
            return Ok(None);
        }
        let key = from.bytes(key as usize)?;
        let rest = from.rest();
        let live = Header::of_lengths(u64::from(value) << 32) == Header::Live;
        let value = live.then(|| &rest[..rest.len().min(value as usize)]);
        Ok(Some(Self { stamp, key, value }))
    }

    /// The item as it stands in a buffer.
    pub(super) fn emit(&self) -> Vec<u8> {
        let value = self.value.unwrap_or_default();
        let mut bytes = Vec::with_capacity(ITEM_HEADER as usize + self.key.len() + value.len());
        bytes.extend(self.stamp.to_le_bytes());
        bytes.extend((self.key.len() as u32).to_le_bytes());
        bytes.extend(self.value.map_or(DELETED, |value| value.len() as u32).to_le_bytes());
        bytes.extend_from_slice(self.key);
        bytes.extend_from_slice(value);
        bytes
    }
}

/// The lowest bit of the engine in a stamp.
pub(super) const STAMP_ENGINE: u32 = 40;

/// The stamp of an engine's PUT number `sequence` in one of its lives: no other item has it.
pub(super) const fn stamp(engine: EngineId, life: Incarnation, sequence: u32) -> u64 {
    (engine.pack() as u64) << STAMP_ENGINE | (life.0 as u64 & 0xff) << 32 | sequence as u64
}

/// The slot of a key, or a free slot for it, as it was read, with the stamp of the item of the key
/// that it holds.
pub(super) struct Located {
    pub(super) slot: u64,
    pub(super) words: SlotWords,
    pub(super) stamp: Option<u64>,
    /// Whether it holds a value of the key.
    pub(super) live: bool,
}

impl Located {
    /// Whether it holds an item of the key, with a value or without.
    pub(super) const fn is_slot_of_key(&self) -> bool {
        self.stamp.is_some()
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::NodeId;

    use super::*;

    #[test]
    fn a_slot_is_what_one_compare_and_swap_covers() {
        for (slots, reuse, words, pointer) in [
            (Slots::Pointer, Reuse::Pointer, 1, 0),
            (Slots::Bounded, Reuse::Pointer, 2, 0),
            (Slots::Pointer, Reuse::Generation, 2, 8),
            (Slots::Bounded, Reuse::Generation, 4, 8),
        ] {
            let form = SlotForm::new(slots, reuse);
            assert_eq!((form.words, form.pointer_at(64)), (words, 64 + pointer));
            assert!((0..9).all(|slot| form.at(slot).is_multiple_of(form.bytes())));
            assert_eq!(form.bound.is_some(), slots == Slots::Bounded);
        }
    }

    #[test]
    fn items_survive_the_way_and_a_null_pointer_leads_to_none() {
        for value in [Some(&b"value"[..]), Some(b""), None] {
            let item = Item { stamp: 7, key: b"key", value };
            let bytes = item.emit();
            assert_eq!(Item::parse(&bytes), Ok(Some(item)));
            let key_only = Item::parse(&bytes[..19]).unwrap().unwrap();
            assert_eq!((key_only.key, key_only.value.is_some()), (item.key, value.is_some()));
            assert!((1..19).all(|len| Item::parse(&bytes[..len]).is_err()));
        }
        let (claimed, retired) = (claimed(7, b"key"), retired());
        assert_eq!(Item::parse(&claimed), Ok(Some(Item { stamp: 7, key: b"key", value: None })));
        assert_eq!(Item::parse(&retired), Ok(Some(Item { stamp: 0, key: b"", value: None })));
        assert_eq!(Item::parse(&[]), Ok(None));
        assert_eq!(Item::parse(&[0; 64]), Ok(None));
    }

    #[test]
    fn stamps_differ_between_engines_lives_and_puts() {
        let of = |node, life, sequence| {
            stamp(EngineId::host(NodeId(node), 3), Incarnation(life), sequence)
        };
        let stamps = [of(1, 1, 1), of(2, 1, 1), of(1, 2, 1), of(1, 1, 2), LOADED];
        let different: std::collections::BTreeSet<_> = stamps.into_iter().collect();
        assert_eq!(different.len(), stamps.len());
    }
}
