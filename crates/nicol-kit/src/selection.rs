//! Which keys of a transaction go into which message.

use std::ops::{Deref, Index};

use nicol_core::ids::ShardId;
use nicol_core::txn::{Entry, Txn};
use nicol_core::view::ShardMap;

/// The shard of each key of a transaction, worked out once: several steps ask whose key is whose.
#[derive(Clone, Debug, Default)]
pub struct KeyShards(Vec<ShardId>);

impl KeyShards {
    /// Works out the shards of the keys that `txn` has been given since the last call.
    ///
    /// # Panics
    /// If it has fewer than then: keys are only added, until [`KeyShards::clear`].
    pub fn follow(&mut self, txn: &Txn, map: &impl ShardMap) {
        let entries = txn.entries();
        assert!(entries.len() >= self.0.len(), "keys are only added");
        self.0.extend(entries[self.0.len()..].iter().map(|entry| map.shard_of(entry.key)));
    }

    /// Forgets all keys, for another transaction.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// Of each key of `txn` its shard, if it is `wanted`.
    ///
    /// # Panics
    /// If `txn` was given keys since the last [`KeyShards::follow`].
    pub fn of(
        &self,
        txn: &Txn,
        wanted: impl Fn(&Entry) -> bool,
    ) -> impl Iterator<Item = Option<ShardId>> {
        let entries = txn.entries();
        assert!(entries.len() == self.0.len(), "the shard of every key is known");
        self.0.iter().zip(entries).map(move |(&shard, entry)| wanted(entry).then_some(shard))
    }

    /// The shards of all keys.
    pub fn iter(&self) -> impl Iterator<Item = ShardId> {
        self.0.iter().copied()
    }
}

impl Index<usize> for KeyShards {
    type Output = ShardId;

    fn index(&self, key: usize) -> &ShardId {
        &self.0[key]
    }
}

/// Indices of the keys of one shard, for one message to it, in ascending order. The buffer is kept
/// from one message to the next.
#[derive(Clone, Debug, Default)]
pub struct Selection(Vec<usize>);

impl Selection {
    /// Selects the keys of `shard`. `shards` has an item for each key of the transaction: its shard
    /// if it is wanted. Returns whether any is selected.
    pub fn of(&mut self, shard: ShardId, shards: impl Iterator<Item = Option<ShardId>>) -> bool {
        self.0.clear();
        for (index, of) in shards.enumerate() {
            if of == Some(shard) {
                self.0.push(index);
            }
        }
        !self.0.is_empty()
    }

    /// Selects the keys of the first shard behind `after` that has any, and returns that shard; so
    /// a loop visits the shards of a transaction in ascending order. `None` behind the last one.
    ///
    /// Cost: one pass over the keys per shard that has any, however many shards there are.
    pub fn next_shard(
        &mut self,
        after: Option<ShardId>,
        shards: impl Iterator<Item = Option<ShardId>>,
    ) -> Option<ShardId> {
        let mut found: Option<ShardId> = None;
        self.0.clear();
        for (index, shard) in shards.enumerate() {
            let Some(shard) = shard else { continue };
            if after.is_some_and(|after| shard <= after) || found.is_some_and(|best| shard > best) {
                continue;
            }
            if found != Some(shard) {
                found = Some(shard);
                self.0.clear();
            }
            self.0.push(index);
        }
        found
    }

    /// Selects exactly these keys.
    pub fn set(&mut self, indices: impl Iterator<Item = usize>) {
        self.0.clear();
        self.0.extend(indices);
    }

    pub fn clear(&mut self) {
        self.0.clear();
    }

    pub fn push(&mut self, index: usize) {
        self.0.push(index);
    }

    /// Keeps only the keys that `kept` accepts.
    pub fn retain(&mut self, mut kept: impl FnMut(usize) -> bool) {
        self.0.retain(|&index| kept(index));
    }

    /// Keeps only the first `len` keys.
    pub fn truncate(&mut self, len: usize) {
        self.0.truncate(len);
    }
}

impl Deref for Selection {
    type Target = [usize];

    fn deref(&self) -> &[usize] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::ids::{Key, TableId};
    use nicol_core::txn::ProcedureId;
    use nicol_core::view::View;

    use super::*;

    /// The keys' shards; `9` is a key that is not wanted.
    fn shards(numbers: &[u16]) -> impl Iterator<Item = Option<ShardId>> + Clone {
        numbers.iter().map(|&number| (number != 9).then_some(ShardId(number)))
    }

    #[test]
    fn shards_come_in_ascending_order_each_with_its_keys() {
        let keys = [3, 1, 9, 3, 0, 1, 9, 7];
        let (mut selection, mut seen, mut after) = (Selection::default(), Vec::new(), None);
        while let Some(shard) = selection.next_shard(after, shards(&keys)) {
            seen.push((shard.0, selection.to_vec()));
            after = Some(shard);
        }
        assert_eq!(seen, [(0, vec![4]), (1, vec![1, 5]), (3, vec![0, 3]), (7, vec![7])]);
        assert!(selection.is_empty());
        for (shard, indices) in seen {
            assert!(selection.of(ShardId(shard), shards(&keys)));
            assert_eq!(selection.to_vec(), indices);
        }
        assert!(!selection.of(ShardId(2), shards(&keys)));
    }

    #[test]
    fn no_wanted_key_is_no_shard() {
        let mut selection = Selection::default();
        assert_eq!(selection.next_shard(None, shards(&[9, 9])), None);
        assert_eq!(selection.next_shard(Some(ShardId(4)), shards(&[4, 2])), None);
    }

    #[test]
    fn shards_follow_the_keys_that_are_added() {
        let view = View::new(5, 1, 1, 1).unwrap();
        let (mut txn, mut shards) = (Txn::default(), KeyShards::default());
        let expected = |txn: &Txn| -> Vec<Option<ShardId>> {
            txn.entries().iter().map(|entry| Some(view.shard_of(entry.key))).collect()
        };
        let keys = |from, to| (from..to).map(|row| Key::new(TableId(0), row));
        for (first, end) in [(0, 4), (4, 40), (40, 40), (50, 51)] {
            keys(first, end).for_each(|key| _ = txn.write(key));
            shards.follow(&txn, &view);
            assert_eq!(shards.of(&txn, |_| true).collect::<Vec<_>>(), expected(&txn));
            assert!(shards.of(&txn, |entry| !entry.write).all(|shard| shard.is_none()));
        }
        txn.reset(ProcedureId(0), &[]);
        shards.clear();
        assert_eq!((shards.of(&txn, |_| true).count(), shards.iter().count()), (0, 0));
    }

    #[test]
    #[should_panic(expected = "the shard of every key is known")]
    fn a_key_without_its_shard_is_not_passed_over() {
        let mut txn = Txn::default();
        txn.read(Key::new(TableId(0), 1));
        _ = KeyShards::default().of(&txn, |_| true).count();
    }
}
