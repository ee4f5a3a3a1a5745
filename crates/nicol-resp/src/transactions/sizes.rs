//! The sizes beyond which Redis holds a value in another form.
//!
//! Nicol holds every value in one form. What follows from them all the same: what OBJECT ENCODING
//! answers, where a node of a stream ends, and so what `XTRIM ~` leaves, and when a HyperLogLog
//! becomes dense, which a client can read as a string.

use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of [`Sizes`] in a plan.
pub const SIZES_LEN: usize = 4 * NAMES.len();

/// The settings of CONFIG, by place, and what Redis 7.0 has in each.
pub const NAMES: [(&str, u32); 8] = [
    ("hash-max-listpack-entries", 512),
    ("hash-max-listpack-value", 64),
    ("hll-sparse-max-bytes", 3_000),
    ("set-max-intset-entries", 512),
    ("stream-node-max-bytes", 4_096),
    ("stream-node-max-entries", 100),
    ("zset-max-listpack-entries", 128),
    ("zset-max-listpack-value", 64),
];

/// Older names of the same settings, by the places of the newer ones.
pub const ALIASES: [(&str, usize); 4] = [
    ("hash-max-ziplist-entries", 0),
    ("hash-max-ziplist-value", 1),
    ("zset-max-ziplist-entries", 6),
    ("zset-max-ziplist-value", 7),
];

/// The sizes by which a transaction goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes([u32; NAMES.len()]);

impl Default for Sizes {
    fn default() -> Self {
        Self(NAMES.map(|(_, size)| size))
    }
}

impl Sizes {
    /// Fields of a hash in a listpack.
    pub fn hash_fields(&self) -> usize {
        self.0[0] as usize
    }

    /// Bytes of the longest field or value there.
    pub fn hash_bytes(&self) -> usize {
        self.0[1] as usize
    }

    /// Bytes of a sparse HyperLogLog.
    pub fn sparse_bytes(&self) -> usize {
        self.0[2] as usize
    }

    /// Integers of a set in an intset.
    pub fn set_integers(&self) -> usize {
        self.0[3] as usize
    }

    /// Bytes of a node of a stream; no bound if it is 0.
    pub fn node_bytes(&self) -> usize {
        unbounded(self.0[4])
    }

    /// Entries of a node of a stream; no bound if it is 0.
    pub fn node_entries(&self) -> usize {
        unbounded(self.0[5])
    }

    /// Members of a sorted set in a listpack.
    pub fn zset_members(&self) -> usize {
        self.0[6] as usize
    }

    /// Bytes of the longest member there.
    pub fn zset_bytes(&self) -> usize {
        self.0[7] as usize
    }

    pub fn emit(&self) -> [u8; SIZES_LEN] {
        let mut bytes = [0; SIZES_LEN];
        for (place, size) in bytes.as_chunks_mut::<4>().0.iter_mut().zip(self.0) {
            *place = size.to_le_bytes();
        }
        bytes
    }

    pub fn parse(bytes: &[u8; SIZES_LEN]) -> Self {
        let mut sizes = Self::default();
        for (size, place) in sizes.0.iter_mut().zip(bytes.as_chunks::<4>().0) {
            *size = u32::from_le_bytes(*place);
        }
        sizes
    }
}

fn unbounded(size: u32) -> usize {
    if size == 0 { usize::MAX } else { size as usize }
}

/// What the commands of a plan go by, beside their arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Bytes of the largest value that a command may build.
    pub value_max: usize,
    pub sizes: Sizes,
}

impl Bounds {
    /// Values of so many bytes, and Redis' sizes.
    pub fn values(value_max: usize) -> Self {
        Self { value_max, sizes: Sizes::default() }
    }
}

/// The sizes that new plans go by; CONFIG SET changes them.
#[derive(Debug)]
pub struct ChosenSizes([AtomicU32; NAMES.len()]);

impl Default for ChosenSizes {
    fn default() -> Self {
        Self(NAMES.map(|(_, size)| AtomicU32::new(size)))
    }
}

impl ChosenSizes {
    /// The names of those that are not Redis'.
    pub fn changed(&self) -> impl Iterator<Item = &'static str> {
        let load = |place: usize| self.0[place].load(Ordering::Relaxed);
        NAMES
            .iter()
            .enumerate()
            .filter(move |(place, (_, first))| load(*place) != *first)
            .map(|(_, (name, _))| *name)
    }

    pub fn load(&self) -> Sizes {
        Sizes(std::array::from_fn(|place| self.0[place].load(Ordering::Relaxed)))
    }

    pub fn get(&self, place: usize) -> u32 {
        self.0[place].load(Ordering::Relaxed)
    }

    pub fn set(&self, place: usize, size: u32) {
        self.0[place].store(size, Ordering::Relaxed);
    }
}

/// The place of the setting of this name, new or old.
pub fn place(name: &str) -> Option<usize> {
    let alias = ALIASES.iter().find(|(alias, _)| *alias == name).map(|(_, place)| *place);
    alias.or_else(|| NAMES.iter().position(|(known, _)| *known == name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_as_they_were_written() {
        let chosen = ChosenSizes::default();
        assert_eq!(chosen.load(), Sizes::default());
        for place in 0..NAMES.len() {
            chosen.set(place, 7 + place as u32);
        }
        let sizes = chosen.load();
        assert_eq!(Sizes::parse(&sizes.emit()), sizes);
        assert_eq!((sizes.hash_fields(), sizes.zset_bytes()), (7, 14));
    }

    #[test]
    fn old_names_are_those_of_the_newer_settings() {
        for (alias, place) in ALIASES {
            assert_eq!(alias.replace("ziplist", "listpack"), NAMES[place].0);
        }
        assert_eq!(place("hash-max-ziplist-value"), place("hash-max-listpack-value"));
        assert_eq!(place("maxmemory"), None);
    }
}
