//! What a crash leaves behind at a node that survives it, where nothing recovers yet (decision
//! 0020).
//!
//! Keys that a crashed coordinator locked, by CAS or through their owner, stay locked. Transactions
//! that want them are refused with the reason, which follows from the lock word: it names the
//! engine that holds it.
//!
//! A card executes the verbs of every engine that has its keys, without a lease. So a node that was
//! given up can still lock, log and install at a node that does not know the new view. That does no
//! harm as long as no view moves a shard. A verb to an incarnation that is over fails, since its
//! keys are revoked.

use std::collections::BTreeSet;

use nicol_core::fabric::{Fabric, ReplyTo};
use nicol_core::ids::{Key, NodeId};
use nicol_core::txn::{Abort, RangeVersion, VersionRange};

use super::Node;
use crate::messages::{EXECUTE, ExecuteReply, VALIDATE, ValidateReply};
use crate::rdma_occ::messages::{LOCK, RESERVE};
use crate::survivor::Survivor;

impl Node {
    /// Why a transaction that wants `key`, which an engine of `holder` has locked, aborts:
    /// `conflict`, or `AwaitsRecovery` if the holder is lost.
    pub(in crate::rdma_occ) fn conflict(
        &self,
        key: Key,
        holder: Option<NodeId>,
        conflict: Abort,
    ) -> Abort {
        match holder {
            Some(holder) if self.lost().contain(holder) => Abort::AwaitsRecovery { key },
            _ => conflict,
        }
    }

    /// Why a request for a key of this node's shard is refused: for `abort` or, if the lock that it
    /// has met is for good, for that.
    pub(in crate::rdma_occ) fn explained(&self, abort: Abort) -> Abort {
        match abort {
            Abort::LockConflict { key } | Abort::ValidateLocked { key }
                if self.lost().are_any() =>
            {
                self.conflict(key, self.primary().holder_of(key), abort)
            }
            _ => abort,
        }
    }

    /// Why what was scanned is not current: somebody has written a key of it or, it may be, has
    /// locked it for good.
    pub(in crate::rdma_occ) fn staleness_of_range(&self, version: &RangeVersion) -> Abort {
        let mut left = None;
        if self.lost().are_any() {
            self.primary().for_each_locked(&mut |key, holder| {
                let is_here = key.is_ordered() && VersionRange::of(key) == version.range;
                if is_here && self.lost().contain(holder) {
                    left = Some(left.map_or(key, |other: Key| other.min(key)));
                }
            });
        }
        let stale = Abort::Stale { key: version.range.first() };
        left.map_or(stale, |key| Abort::AwaitsRecovery { key })
    }

    /// True if every lock is one that only a recovery may release. Goes over every record.
    pub(in crate::rdma_occ) fn has_released(&self) -> bool {
        self.primary().locked_count() == self.awaiting_recovery().len()
    }

    /// The keys that only a recovery may release.
    pub(in crate::rdma_occ) fn awaiting_recovery(&self) -> Vec<Key> {
        let mut keys = BTreeSet::new();
        if self.lost().are_any() {
            self.primary().for_each_locked(&mut |key, holder| {
                if self.lost().contain(holder) {
                    keys.insert(key);
                }
            });
        }
        keys.into_iter().collect()
    }
}

/// Denies a request of a host engine to one that has lost its shard.
pub(in crate::rdma_occ) fn deny<F: Fabric>(
    fabric: &F,
    kind: u16,
    reply_to: ReplyTo,
    abort: Abort,
) -> bool {
    match kind {
        EXECUTE => fabric.reply(reply_to, &ExecuteReply::Denied::<std::iter::Empty<_>>(abort)),
        LOCK | VALIDATE | RESERVE => fabric.reply(reply_to, &ValidateReply(Err(abort))),
        _ => return false,
    }
    true
}
