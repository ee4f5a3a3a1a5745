//! The `commit` family: distributed, replicated, serializable transactions.

pub mod hybrid;
mod log;
mod messages;
pub mod xenic;

use nicol_core::ids::ShardId;

/// What a node's memory looks like when everything is quiet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Audit {
    /// Locks that nobody will release.
    pub leaked_locks: u64,
    /// Index entries still pinned.
    pub pinned: u64,
    /// Records of the primary shard.
    pub records: u64,
    /// Digest of the primary shard, then of each backup shard held.
    pub digests: Vec<(ShardId, u64)>,
}
