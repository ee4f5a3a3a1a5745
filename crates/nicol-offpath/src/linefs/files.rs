//! The blocks of a node's files, with their versions.

use std::collections::BTreeMap;

use nicol_core::history::digest;
use nicol_core::ids::Key;

use super::layout::{Record, record_bytes};

/// A block. One that was removed keeps its version.
#[derive(Clone, Debug, Default)]
struct Block {
    /// That of its content; 0: nothing was ever published.
    version: u64,
    /// The newest that was given to a write.
    given: u64,
    value: Option<Box<[u8]>>,
}

/// The published blocks of a node.
#[derive(Clone, Debug, Default)]
pub struct Files(BTreeMap<Key, Block>);

impl Files {
    /// Loads a block, with version 1.
    pub(super) fn load(&mut self, key: Key, value: &[u8]) {
        self.0.insert(key, Block { version: 1, given: 1, value: Some(value.into()) });
    }

    /// A new version for a write of `key`.
    pub(super) fn give_version(&mut self, key: Key) -> u64 {
        let block = self.0.entry(key).or_default();
        block.given = block.given.max(block.version) + 1;
        block.given
    }

    /// Makes a write readable, unless a newer one is: `always` does so anyway, for negative tests.
    pub(super) fn publish(&mut self, record: &Record<'_>, always: bool) {
        let block = self.0.entry(record.key).or_default();
        if record.version > block.version || always {
            block.version = record.version;
            block.value = record.value.map(Into::into);
        }
    }

    /// Forgets blocks, with their versions.
    pub(super) fn forget(&mut self, forgotten: impl Fn(Key) -> bool) {
        self.0.retain(|key, _| !forgotten(*key));
    }

    /// Blocks of a shard from `first` on, one behind the other as in a chunk, at least one and not
    /// more than so many bytes of several; and the last key that they speak of.
    pub(super) fn page(
        &self,
        first: Key,
        bytes_max: usize,
        is_of_shard: impl Fn(Key) -> bool,
    ) -> (Vec<u8>, Key) {
        let (mut bytes, mut last) = (Vec::new(), first);
        let published = self.0.range(first..).filter(|(_, block)| block.version > 0);
        for (&key, Block { version, value, .. }) in published.filter(|(key, _)| is_of_shard(**key))
        {
            let value = value.as_deref();
            let longer = bytes.len() as u64 + record_bytes(value.map_or(0, <[u8]>::len));
            if !bytes.is_empty() && longer > bytes_max as u64 {
                return (bytes, last);
            }
            Record { key, version: *version, value }.emit(&mut bytes);
            last = key;
        }
        (bytes, Key(u64::MAX))
    }

    /// The version of a block, and its content if it exists.
    pub(super) fn get(&self, key: Key) -> (u64, Option<&[u8]>) {
        let block = self.0.get(&key);
        block.map_or((0, None), |block| (block.version, block.value.as_deref()))
    }

    /// Every block that exists, with its version.
    pub(super) fn blocks(&self) -> impl Iterator<Item = (Key, u64, &[u8])> {
        let blocks = self.0.iter();
        blocks.filter_map(|(key, block)| Some((*key, block.version, block.value.as_deref()?)))
    }
}

/// The part of a block in the digest of its shard.
pub(super) fn digest_of(key: Key, version: u64, value: &[u8]) -> u64 {
    let parts = [key.0, version, digest(value)];
    let mixed = parts
        .iter()
        .fold(0_u64, |sum, part| (sum ^ part).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(31));
    mixed.wrapping_mul(0xD6E8_FEB8_6659_FD93)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_older_write_changes_nothing_and_a_removed_block_keeps_its_version() {
        let mut files = Files::default();
        files.load(Key(1), b"loaded");
        let (first, second) = (files.give_version(Key(1)), files.give_version(Key(1)));
        assert_eq!((first, second), (2, 3));
        files.publish(&Record { key: Key(1), version: second, value: None }, false);
        files.publish(&Record { key: Key(1), version: first, value: Some(b"late") }, false);
        assert_eq!(files.get(Key(1)), (3, None));
        assert_eq!(files.give_version(Key(1)), 4);
        assert_eq!(files.blocks().count(), 0);
        files.publish(&Record { key: Key(2), version: 9, value: Some(b"new") }, false);
        assert_eq!(files.give_version(Key(2)), 10);
        assert_eq!(files.get(Key(2)), (9, Some(&b"new"[..])));
        assert_eq!(files.get(Key(3)), (0, None));
    }
}
