//! Procedures over one record, for systems of single operations.

use nicol_core::ids::{Key, ShardId};
use nicol_core::key_value::{Failure, Reason};
use nicol_core::txn::{Abort, Outcome};

/// How a procedure over `key`, of `shard`, ends whose operation has failed.
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
