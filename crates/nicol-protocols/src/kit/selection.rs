//! Which keys of a transaction go into which message.

use std::ops::Deref;

use nicol_core::ids::ShardId;

/// Indices of the keys of one shard, for one message to it, in ascending order. The buffer is kept
/// from one message to the next.
#[derive(Clone, Debug, Default)]
pub(crate) struct Selection(Vec<usize>);

impl Selection {
    /// Selects the keys of `shard`. `shards` has an item for each key of the transaction: its shard
    /// if it is wanted. Returns whether any is selected.
    pub(crate) fn of(
        &mut self,
        shard: ShardId,
        shards: impl Iterator<Item = Option<ShardId>>,
    ) -> bool {
        self.0.clear();
        let wanted = shards.enumerate().filter(|&(_, of)| of == Some(shard));
        self.0.extend(wanted.map(|(index, _)| index));
        !self.0.is_empty()
    }

    /// Selects the keys of the first shard behind `after` that has any, and returns that shard; so
    /// a loop visits the shards of a transaction in ascending order. `None` behind the last one.
    ///
    /// Cost: one pass over the keys per shard that has any, however many shards there are.
    pub(crate) fn next_shard(
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
    pub(crate) fn set(&mut self, indices: impl Iterator<Item = usize>) {
        self.0.clear();
        self.0.extend(indices);
    }

    /// Selects no key.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Adds a key.
    pub(crate) fn push(&mut self, index: usize) {
        self.0.push(index);
    }

    /// Keeps only the keys that `kept` accepts.
    pub(crate) fn retain(&mut self, mut kept: impl FnMut(usize) -> bool) {
        self.0.retain(|&index| kept(index));
    }

    /// Keeps only the first `len` keys.
    pub(crate) fn truncate(&mut self, len: usize) {
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
}
