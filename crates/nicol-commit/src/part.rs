//! Which part of a transaction a LOG or COMMIT is.

use nicol_core::ids::ShardId;
use nicol_core::txn::KEYS_MAX;
use nicol_core::view::NODES_MAX;
use nicol_core::wire::{Malformed, Reader, Writer};

/// What a LOG or COMMIT is of its transaction: the shard, how many keys follow, and how many shards
/// the transaction updates, so that recovery knows whether it has the records of all shards. The
/// list of these says whom it must ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) shard: ShardId,
    pub(super) keys: u16,
    pub(super) shards: u16,
    /// Does the epoch of its begin follow, and the list of the other shards?
    pub(super) listed: bool,
}

/// Shards that one transaction may update, at most: their number travels in 8 bits.
pub(super) const SHARDS_MAX: u16 = (1 << Part::SHARDS_BITS) - 1;
const _: () = assert!(NODES_MAX <= 1 << Part::SHARD_BITS, "a shard's number has 12 bits");
const _: () = assert!(KEYS_MAX <= u16::MAX as usize, "a number of keys has 16 bits");

/// The number of keys in the first word from which on the true one stands in a second word. It is
/// more than the 1,024 that a transaction could touch when there was no second word, so every log
/// of that time reads as it did.
const MANY: u16 = (1 << Part::KEYS_BITS) - 1;

impl Part {
    const SHARD_BITS: u32 = 12;
    const KEYS_BITS: u32 = 11;
    const SHARDS_BITS: u32 = 31 - Self::SHARD_BITS - Self::KEYS_BITS;

    /// Appends a part that has at most `most` keys. [`Part::put_keys`] with the same `most` follows
    /// once their number is known.
    pub(super) fn emit(self, most: usize, to: &mut Writer<'_>) {
        to.u32(self.pack(most));
        if most >= usize::from(MANY) {
            to.u32(self.keys.into());
        }
    }

    /// Bytes of a part that was begun with `most`.
    pub(super) const fn len(most: usize) -> usize {
        if most >= MANY as usize { 2 * size_of::<u32>() } else { size_of::<u32>() }
    }

    /// Sets the number of keys of the part that [`Part::emit`] appended at `at`.
    pub(super) fn put_keys(self, at: usize, most: usize, to: &mut Writer<'_>) {
        if most >= usize::from(MANY) {
            to.put_u32(at + size_of::<u32>(), self.keys.into());
        } else {
            to.put_u32(at, self.pack(most));
        }
    }

    /// The first word.
    fn pack(self, most: usize) -> u32 {
        let keys = if most >= usize::from(MANY) { MANY } else { self.keys };
        let high = u32::from(self.shards.min(SHARDS_MAX)) << Self::KEYS_BITS | u32::from(keys);
        u32::from(self.listed) << 31 | high << Self::SHARD_BITS | u32::from(self.shard.0)
    }

    pub(super) fn parse(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let mut part = Self::parse_lead(from)?;
        if part.keys == MANY {
            part.keys = from.u32()?.try_into().unwrap_or(u16::MAX);
        }
        if usize::from(part.keys) > KEYS_MAX {
            return Err(Malformed { what: "more keys than a transaction may touch" });
        }
        Ok(part)
    }

    /// The first word alone: its number of keys may be that of a second word.
    pub(super) fn parse_lead(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let word = from.u32()?;
        let field = |shift: u32, bits: u32| (word >> shift & ((1 << bits) - 1)) as u16;
        let keys = field(Self::SHARD_BITS, Self::KEYS_BITS);
        let shards = field(Self::SHARD_BITS + Self::KEYS_BITS, Self::SHARDS_BITS);
        let shard = ShardId(field(0, Self::SHARD_BITS));
        Ok(Self { shard, keys, shards, listed: word >> 31 == 1 })
    }
}

/// How many different shards there are.
///
/// Cost: a look at each; where there are more than two, one more at a set of bits.
pub(super) fn count_shards(mut shards: impl Iterator<Item = ShardId>) -> u16 {
    let Some(first) = shards.next() else { return 0 };
    let Some(second) = shards.find(|&shard| shard != first) else { return 1 };
    let Some(third) = shards.find(|&shard| shard != first && shard != second) else { return 2 };
    let mut seen = [0_u64; NODES_MAX / 64];
    let mut count = 0;
    for shard in [first, second, third].into_iter().chain(shards) {
        let (word, bit) = (usize::from(shard.0) / 64, 1 << (shard.0 % 64));
        count += u16::from(seen[word] & bit == 0);
        seen[word] |= bit;
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(part: Part, most: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut to = Writer::new(&mut bytes);
        let at = to.position();
        Part { keys: 0, ..part }.emit(most, &mut to);
        part.put_keys(at, most, &mut to);
        bytes
    }

    #[test]
    fn a_part_survives_its_words() {
        let most = KEYS_MAX as u16;
        for keys in [0, 3, 1_024, MANY - 1, MANY, MANY + 1, most] {
            for (shard, shards) in [(0, 1), (4_095, SHARDS_MAX), (17, 2)] {
                let listed = keys % 2 == 1;
                let part = Part { shard: ShardId(shard), keys, shards, listed };
                // Keys that are locked and not updated may be more than those that follow.
                for further in [0, 1, usize::from(most)] {
                    let most = usize::from(keys) + further;
                    let bytes = bytes(part, most);
                    assert_eq!(bytes.len(), Part::len(most));
                    assert_eq!(Part::parse(&mut Reader::new(&bytes)).unwrap(), part);
                    let lead = Part::parse_lead(&mut Reader::new(&bytes[..4])).unwrap();
                    assert_eq!((lead.shard, lead.shards), (part.shard, part.shards));
                }
            }
        }
        let many = Part { shard: ShardId(0), keys: most + 1, shards: 1, listed: false };
        let many = bytes(many, usize::from(most) + 1);
        assert!(Part::parse(&mut Reader::new(&many)).is_err());
        assert!(Part::parse(&mut Reader::new(&many[..4])).is_err());
    }

    #[test]
    fn a_part_of_1024_keys_has_the_word_that_it_always_had() {
        let part = Part { shard: ShardId(5), keys: 1_024, shards: 3, listed: false };
        assert_eq!(bytes(part, 1_024), (3_u32 << 23 | 1_024 << 12 | 5).to_le_bytes());
    }

    #[test]
    fn shards_are_counted_once_each() {
        let count = |shards: &[u16]| count_shards(shards.iter().map(|&shard| ShardId(shard)));
        assert_eq!((count(&[]), count(&[7]), count(&[7, 7, 7])), (0, 1, 1));
        assert_eq!((count(&[7, 7, 3]), count(&[3, 7, 3, 4_095, 7, 64])), (2, 4));
    }
}
