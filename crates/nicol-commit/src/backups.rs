//! The shards that a node backs up.

use nicol_core::ids::{NodeId, ShardId};
use nicol_core::view::View;

/// The copies of the shards that a node backs up, in the order of their numbers.
///
/// Every log record is of one of them, so that finding it must cost next to nothing; they are as
/// many as a shard has backups, and are looked through.
#[derive(Debug)]
pub(super) struct Backups<S>(Box<[(ShardId, S)]>);

impl<S> Backups<S> {
    /// Copies of the shards that node `id` backs up; `shards` are all, in the order of their
    /// numbers.
    pub(super) fn copy(view: &View, id: NodeId, shards: &[S], copy: impl Fn(&S) -> S) -> Self {
        let mut backed_up: Vec<ShardId> = view.backed_up_by(id).collect();
        backed_up.sort_unstable();
        let copies =
            backed_up.into_iter().map(|shard| (shard, copy(&shards[usize::from(shard.0)])));
        Self(copies.collect())
    }

    /// The copy of `shard`, if it backs it up.
    pub(super) fn get(&self, shard: ShardId) -> Option<&S> {
        self.0.iter().find(|(backed_up, _)| *backed_up == shard).map(|(_, held)| held)
    }

    /// Each with its shard.
    pub(super) fn iter(&self) -> impl Iterator<Item = (ShardId, &S)> {
        self.0.iter().map(|(shard, held)| (*shard, held))
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &S> {
        self.0.iter().map(|(_, held)| held)
    }
}
