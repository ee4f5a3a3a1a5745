//! When the views of a run changed, and when its lost shards were served again.

use serde::Serialize;

/// The changes of a run's membership, in the order of its clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Milestones {
    /// The views after the first.
    pub views: Vec<ViewMade>,
    /// The shards that another node came to lead.
    pub inherited: Vec<ShardInherited>,
}

/// The view service has made a view.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ViewMade {
    /// Nanoseconds from the start of the run.
    pub at_ns: u64,
    pub epoch: u32,
    /// The nodes of which a side is no member.
    pub without: Vec<u16>,
}

/// A shard is served again, by another node than before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShardInherited {
    /// Nanoseconds from the start of the run.
    pub at_ns: u64,
    pub shard: u16,
    pub by: u16,
}

impl Milestones {
    pub(crate) fn are_none(&self) -> bool {
        self.views.is_empty() && self.inherited.is_empty()
    }
}
