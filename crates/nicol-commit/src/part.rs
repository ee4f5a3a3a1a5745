//! Which part of a transaction a LOG or COMMIT is.

use nicol_core::ids::ShardId;
use nicol_core::txn::KEYS_MAX;
use nicol_core::view::NODES_MAX;
use nicol_core::wire::{Malformed, Reader};

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
const _: () = assert!(KEYS_MAX < 1 << Part::KEYS_BITS, "a number of keys has 11 bits");

impl Part {
    const SHARD_BITS: u32 = 12;
    const KEYS_BITS: u32 = 11;
    const SHARDS_BITS: u32 = 31 - Self::SHARD_BITS - Self::KEYS_BITS;

    pub(super) fn pack(self) -> u32 {
        let high = u32::from(self.shards.min(SHARDS_MAX)) << Self::KEYS_BITS | u32::from(self.keys);
        u32::from(self.listed) << 31 | high << Self::SHARD_BITS | u32::from(self.shard.0)
    }

    pub(super) fn parse(from: &mut Reader<'_>) -> Result<Self, Malformed> {
        let word = from.u32()?;
        let field = |shift: u32, bits: u32| (word >> shift & ((1 << bits) - 1)) as u16;
        let keys = field(Self::SHARD_BITS, Self::KEYS_BITS);
        if usize::from(keys) > KEYS_MAX {
            return Err(Malformed { what: "more keys than a transaction may touch" });
        }
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

    #[test]
    fn a_part_survives_its_word() {
        let keys = KEYS_MAX as u16;
        for (shard, keys, shards) in [(0, 0, 1), (4_095, keys, SHARDS_MAX), (17, 3, 2)] {
            for listed in [false, true] {
                let part = Part { shard: ShardId(shard), keys, shards, listed };
                let word = part.pack().to_le_bytes();
                assert_eq!(Part::parse(&mut Reader::new(&word)).unwrap(), part);
            }
        }
        let many = Part { shard: ShardId(0), keys: keys + 1, shards: 1, listed: false };
        assert!(Part::parse(&mut Reader::new(&many.pack().to_le_bytes())).is_err());
    }

    #[test]
    fn shards_are_counted_once_each() {
        let count = |shards: &[u16]| count_shards(shards.iter().map(|&shard| ShardId(shard)));
        assert_eq!((count(&[]), count(&[7]), count(&[7, 7, 7])), (0, 1, 1));
        assert_eq!((count(&[7, 7, 3]), count(&[3, 7, 3, 4_095, 7, 64])), (2, 4));
    }
}
