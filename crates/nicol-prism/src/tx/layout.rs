//! What a server's memory looks like: the slots of the table, and the items in the buffers.
//! [PRISM21 8.2, Figure 8]
//!
//! ```text
//! region   0: nothing, what a null pointer points to   64: slots   behind them: buffers by size
//! slot     PW 8 | PR 8 | C 8 | addr 8
//! item     stamp 8 | old PW 8 | old PR 8 | key 8 | bytes of the value 4, or DELETED | writes 2 |
//!          flags 2 | value
//! ```
//!
//! An item's stamp is its TS. The item that only gives a slot to a key has been written by no
//! transaction: its TS is 0, and its stamp a timestamp that nothing else has, so that the uses of a
//! buffer differ by their stamps ([`BufferPool`]).
//!
//! `PW | PR` and `C | addr` are each what one compare-and-swap covers (AMB-10). A slot that has got
//! a key keeps it for ever, whether or not there is a record: nobody may be between two keys'
//! timestamps.
//!
//! An item is written when it is allocated. Then only the write check's chain adds PW and PR as it
//! has found them, which says that the check of PW has succeeded, and the server's CPU sets
//! [`FINISHED`]. The paper's item is `TS | key | value`; the rest is AMB-14c.
//!
//! [`BufferPool`]: crate::pool::BufferPool

use nicol_core::ids::Key;
use nicol_core::wire::{Malformed, Reader};

use crate::tag::Tag;

/// Bytes before an item's value.
pub(super) const HEADER: u64 = 40;
/// Bytes of the smallest buffer.
pub(super) const SMALLEST: u64 = 64;
/// Bytes before the first slot: zeros, which are no item.
const NULL: u64 = 64;
/// Bytes of a slot.
pub(super) const SLOT: u64 = 32;
/// The length of the value of a record that is deleted, or was never there.
const DELETED: u32 = u32::MAX;
/// The old PW of an item whose write check has not succeeded: no transaction has it.
const UNCHECKED: Tag = Tag(u64::MAX);
/// It is an item, and not memory that never was one.
const ITEM: u16 = 1;
/// No recovery will ask for this item any more: its transaction is complete.
const FINISHED: u16 = 2;
/// It gives a slot to a key, and no transaction has written it.
const CLAIM: u16 = 4;

/// Words of a slot, as offsets.
pub(super) mod word {
    /// PW; PR follows it.
    pub(in super::super) const PW: u64 = 0;
    pub(in super::super) const PR: u64 = 8;
    /// C; the address follows it.
    pub(in super::super) const C: u64 = 16;
    /// The address of the item.
    pub(in super::super) const ADDR: u64 = 24;
}

/// Words of an item, as offsets.
pub(super) mod item {
    pub(in super::super) const STAMP: u64 = 0;
    /// The value's length, the count of writes, the flags.
    pub(in super::super) const META: u64 = 32;
}

const _: () = assert!(HEADER == item::META + 8, "the value follows the header");

/// The address of slot `index`.
pub(super) const fn slot_at(index: u64) -> u64 {
    NULL + index * SLOT
}

/// The words of a slot, as a READ returns them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slot {
    /// Of the last transaction that has prepared to write the key.
    pub(super) pw: Tag,
    /// Of the last transaction that has read the key and prepared.
    pub(super) pr: Tag,
    /// Of the last committed transaction that wrote the key, or of one that has given up later.
    pub(super) c: Tag,
    /// The address of the item; 0: the slot has no key.
    pub(super) addr: u64,
}

impl Slot {
    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes);
        let (pw, pr, c) = (Tag(from.u64()?), Tag(from.u64()?), Tag(from.u64()?));
        let addr = from.u64()?;
        from.finish()?;
        Ok(Self { pw, pr, c, addr })
    }
}

/// The word with an item's lengths and flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Meta(pub(super) u64);

impl Meta {
    /// Of a value of so many bytes, `None` of no record, among so many writes of its transaction.
    pub(super) const fn new(value: Option<usize>, writes: u16) -> Self {
        let len = match value {
            Some(len) => len as u32,
            None => DELETED,
        };
        Self(len as u64 | (writes as u64) << 32 | (ITEM as u64) << 48)
    }

    /// The same of a transaction that is complete.
    pub(super) const fn finished(self) -> Self {
        Self(self.0 | (FINISHED as u64) << 48)
    }

    pub(super) const fn is_item(self) -> bool {
        self.flags() & ITEM != 0
    }

    pub(super) const fn is_finished(self) -> bool {
        self.flags() & FINISHED != 0
    }

    const fn is_claim(self) -> bool {
        self.flags() & CLAIM != 0
    }

    /// The number of records that its transaction writes.
    pub(super) const fn writes(self) -> u16 {
        (self.0 >> 32) as u16
    }

    /// Bytes of the value; `None` of no record.
    pub(super) fn value(self) -> Option<usize> {
        let len = self.0 as u32;
        (len != DELETED).then_some(len as usize)
    }

    const fn flags(self) -> u16 {
        (self.0 >> 48) as u16
    }
}

/// An item, or the part of one that a READ has brought: its header, at least.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Item<'a> {
    /// Names its use of its buffer.
    pub(super) stamp: Tag,
    /// The transaction that wrote it; 0: none.
    pub(super) ts: Tag,
    /// PW as its write check has found it, or [`UNCHECKED`].
    pub(super) old_pw: Tag,
    /// PR as its write check has found it.
    pub(super) old_pr: Tag,
    pub(super) key: Key,
    pub(super) meta: Meta,
    /// The value, as far as it was read; `None` of no record.
    pub(super) value: Option<&'a [u8]>,
}

impl<'a> Item<'a> {
    /// One that is about to be allocated.
    pub(super) fn new(ts: Tag, key: Key, value: Option<&'a [u8]>, writes: u16) -> Self {
        let meta = Meta::new(value.map(<[u8]>::len), writes);
        Self { stamp: ts, ts, old_pw: UNCHECKED, old_pr: Tag(0), key, meta, value }
    }

    /// The one that gives a slot to `key`, without a record.
    pub(super) fn claim(stamp: Tag, key: Key) -> Self {
        let meta = Meta(Meta::new(None, 0).finished().0 | (CLAIM as u64) << 48);
        Self { stamp, ts: Tag(0), old_pw: UNCHECKED, old_pr: Tag(0), key, meta, value: None }
    }

    /// Parses what a slot points to: `None` if it points to nothing.
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Option<Self>, Malformed> {
        let mut from = Reader::new(bytes);
        let (stamp, old_pw, old_pr) = (Tag(from.u64()?), Tag(from.u64()?), Tag(from.u64()?));
        let (key, meta) = (Key(from.u64()?), Meta(from.u64()?));
        if !meta.is_item() {
            return Ok(None);
        }
        let rest = from.rest();
        let value = meta.value().map(|len| &rest[..rest.len().min(len)]);
        let ts = if meta.is_claim() { Tag(0) } else { stamp };
        Ok(Some(Self { stamp, ts, old_pw, old_pr, key, meta, value }))
    }

    /// The item as it stands in a buffer.
    pub(super) fn emit(&self) -> Vec<u8> {
        let value = self.value.unwrap_or_default();
        let mut bytes = Vec::with_capacity(HEADER as usize + value.len());
        let words = [self.stamp.0, self.old_pw.0, self.old_pr.0, self.key.0, self.meta.0];
        bytes.extend(words.map(u64::to_le_bytes).as_flattened());
        bytes.extend_from_slice(value);
        bytes
    }

    /// Whether it has raised PW.
    pub(super) fn has_raised(&self) -> bool {
        self.old_pw != UNCHECKED
    }

    /// Whether the write check has succeeded.
    pub(super) fn has_passed(&self) -> bool {
        self.has_raised() && self.old_pr <= self.ts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_survive_the_way_and_a_null_pointer_leads_to_none() {
        for value in [Some(&b"value"[..]), Some(b""), None] {
            let item = Item::new(Tag(9), Key(7), value, 3);
            let bytes = item.emit();
            assert_eq!(Item::parse(&bytes), Ok(Some(item)));
            assert!((0..HEADER as usize).all(|len| Item::parse(&bytes[..len]).is_err()));
            assert_eq!((item.meta.writes(), item.meta.is_finished()), (3, false));
            let finished = Item { meta: item.meta.finished(), ..item };
            assert!(finished.meta.is_finished() && finished.meta.value() == item.meta.value());
        }
        assert_eq!(Item::parse(&[0; 64]), Ok(None));
        let claim = Item::claim(Tag(9), Key(7));
        assert_eq!(Item::parse(&claim.emit()), Ok(Some(claim)));
        assert_eq!((claim.stamp, claim.ts, claim.value), (Tag(9), Tag(0), None));
        assert!(claim.meta.is_finished(), "no recovery asks for it");
    }

    #[test]
    fn the_halves_of_a_slot_are_what_a_compare_and_swap_may_cover() {
        for index in 0..9 {
            let slot = slot_at(index);
            assert!((slot + word::PW).is_multiple_of(16) && (slot + word::C).is_multiple_of(16));
            assert_eq!((word::PW + 8, word::C + 8), (word::PR, word::ADDR));
        }
        let words = [1, 2, 3, 4_u64].map(u64::to_le_bytes);
        let slot = Slot::parse(words.as_flattened()).unwrap();
        assert_eq!(slot, Slot { pw: Tag(1), pr: Tag(2), c: Tag(3), addr: 4 });
        assert!(Slot::parse(&words.as_flattened()[..31]).is_err());
    }

    #[test]
    fn a_write_check_has_passed_if_it_found_an_earlier_pw_and_no_later_pr() {
        let item = Item::new(Tag(9), Key(7), None, 1);
        let found = |old_pw, old_pr| Item { old_pw: Tag(old_pw), old_pr: Tag(old_pr), ..item };
        assert!(found(0, 0).has_passed() && found(8, 9).has_passed());
        assert!(!item.has_passed() && !item.has_raised());
        assert!(found(1, 10).has_raised() && !found(1, 10).has_passed());
    }
}
