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
        Self::of(view.backed_up_by(id), |shard| copy(&shards[usize::from(shard.0)]))
    }

    /// What `make` makes for each of `shards`.
    pub(super) fn of(shards: impl Iterator<Item = ShardId>, make: impl Fn(ShardId) -> S) -> Self {
        let mut shards: Vec<ShardId> = shards.collect();
        shards.sort_unstable();
        Self(shards.into_iter().map(|shard| (shard, make(shard))).collect())
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
