//! Keys: byte strings, the eight bytes of a workload's keys among them.

use nicol_core::ids::{Key, ShardId, TableId};
use nicol_core::view::ShardMap;

use super::config::Hash;

/// Seeds of the hash by which slots are found, and of that by which a long key's server is.
const SLOT_SEED: u64 = 0x7072_6973_6d2d_6b76;
const SERVER_SEED: u64 = 0x7365_7276_6572_0001;

/// A key, as its client looks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Name<'a>(&'a [u8]);

impl<'a> Name<'a> {
    /// The key of these bytes.
    ///
    /// # Panics
    /// If there are none.
    pub(crate) fn of(bytes: &'a [u8]) -> Self {
        assert!(!bytes.is_empty(), "a key has a byte");
        Self(bytes)
    }

    pub(crate) const fn bytes(self) -> &'a [u8] {
        self.0
    }

    /// The key of a workload that it is, if it has its eight bytes.
    pub(crate) fn key(self) -> Option<Key> {
        self.0.try_into().ok().map(u64::from_be_bytes).map(Key)
    }

    /// The shard that holds it.
    pub(crate) fn shard(self, shards: &impl ShardMap) -> ShardId {
        let hashed = || Key::new(TableId(0), hash(self.0, SERVER_SEED) >> 8);
        shards.shard_of(self.key().unwrap_or_else(hashed))
    }

    /// The slots where it may be, in their order, of so many. [PRISM21 6.1]
    pub(crate) fn probes(self, by: Hash, entries: u64) -> impl Iterator<Item = u64> + use<> {
        let first = match (by, self.key()) {
            (Hash::CollisionFree, Some(key)) => key.row(),
            _ => hash(self.0, SLOT_SEED),
        };
        let first = first % entries;
        (0..entries).map(move |step| (first + step) % entries)
    }
}

impl Name<'_> {
    /// Three slots where it may be, by as many hashes: those of a cuckoo table.
    pub(crate) fn three(self, entries: u64) -> [u64; 3] {
        [1, 2, 3].map(|way| hash(self.0, SLOT_SEED ^ way << 48) % entries)
    }
}

/// FNV-1a with a finalizer: short keys, and a table that is larger than any attack on it.
fn hash(bytes: &[u8], seed: u64) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = bytes.iter().fold(seed ^ 0xcbf2_9ce4_8422_2325, mix);
    hash = (hash ^ hash >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
    hash ^ hash >> 29
}

#[cfg(test)]
mod tests {
    use nicol_core::view::View;

    use super::*;

    #[test]
    fn every_slot_is_probed_once_from_where_the_hash_says() {
        let long = Name::of(b"a longer key");
        let record = Key::new(TableId(1), 5).0.to_be_bytes();
        let record = Name::of(&record);
        for by in [Hash::Probing, Hash::CollisionFree] {
            for name in [long, record] {
                let mut probes: Vec<_> = name.probes(by, 16).collect();
                probes.sort_unstable();
                assert_eq!(probes, (0..16).collect::<Vec<_>>());
            }
        }
        assert_eq!(record.probes(Hash::CollisionFree, 16).next(), Some(5));
        assert_eq!(record.key(), Some(Key::new(TableId(1), 5)));
        assert_eq!(long.key(), None);
    }

    #[test]
    fn keys_spread_over_slots_and_shards() {
        let view = View::new(4, 1, 1, 1).unwrap();
        let mut slots = std::collections::BTreeSet::new();
        let mut shards = std::collections::BTreeSet::new();
        for number in 0..256_u32 {
            let bytes = format!("key number {number}").into_bytes();
            let name = Name::of(&bytes);
            slots.extend(name.probes(Hash::Probing, 1 << 20).next());
            shards.insert(name.shard(&view));
        }
        assert!(slots.len() > 250 && shards.len() == 4, "{} {}", slots.len(), shards.len());
    }
}
