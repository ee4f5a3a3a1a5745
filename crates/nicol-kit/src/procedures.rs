//! Procedures of transactions: what a round of one has led to, and how one over a single record
//! ends in systems of single operations.

use nicol_core::ids::{Key, ShardId};
use nicol_core::key_value::{Failure, Reason};
use nicol_core::txn::{Abort, Outcome, Verdict};

/// The outcome of a round of execution logic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computed {
    /// The write set is complete.
    EveryWrite,
    /// There are keys to read before the logic runs again.
    AddedKeys,
}

impl Computed {
    /// The effect of the logic's verdict; an abort if it refuses.
    pub fn of(verdict: Verdict) -> Result<Self, Abort> {
        match verdict {
            Verdict::Commit => Ok(Self::EveryWrite),
            Verdict::More => Ok(Self::AddedKeys),
            Verdict::Refuse => Err(Abort::Refused),
        }
    }
}

/// The outcome of a procedure over `key`, of `shard`, whose operation has failed.
pub fn outcome_of(failure: Failure, key: Key, shard: ShardId) -> Outcome {
    match failure {
        Failure::Unknown => Outcome::Unknown,
        Failure::Aborted(Reason::Fabric(error)) => Outcome::Aborted(Abort::Fabric(error)),
        Failure::Aborted(Reason::ShardUnavailable) => {
            Outcome::Aborted(Abort::ShardUnavailable { shard })
        }
        Failure::Aborted(Reason::NoResources) => Outcome::Aborted(Abort::NoResources),
        Failure::Aborted(Reason::Conflict) => Outcome::Aborted(Abort::Stale { key }),
    }
}
