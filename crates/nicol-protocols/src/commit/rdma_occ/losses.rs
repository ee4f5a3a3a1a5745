//! What a crash takes from a node that survives it, and what it leaves behind there (decision 0020).
//!
//! Nothing recovers yet. A shard is served by the node that was loaded with it, or by none. What a
//! crashed coordinator has locked, by CAS or by its owner, stays locked, and whoever wants it is
//! refused in words: a lock word names the engine that holds it.
//!
//! A card executes verbs for whoever has its keys, and asks no lease: the verbs of a node that others
//! have given up still lock, log and install until it learns so. That harms nobody as long as no
//! view moves a shard. A verb to a life that is over ends in an error, as its keys are void.

use std::collections::BTreeSet;
use std::rc::Rc;
use std::sync::atomic::Ordering;

use nicol_core::fabric::{Delivery, Fabric, FabricError, Service};
use nicol_core::ids::{Key, NodeId, ShardId};
use nicol_core::system::Counter;
use nicol_core::txn::{Abort, Entry, RangeVersion, Txn, VersionRange};
use nicol_core::wire::Malformed;

use super::messages::{LOCK, RESERVE};
use super::node::Node;
use crate::commit::Sabotage;
use crate::commit::messages::{EXECUTE, ExecuteReply, VALIDATE, ValidateReply};

/// What a transaction has done without a lost node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Without {
    /// It has committed without this backup's ack.
    Backup,
    /// It has ended without a COMMIT or ABORT at this primary.
    Primary,
    /// No replica is left to keep what it writes to a shard.
    EveryReplica,
}

impl Without {
    pub(super) const COUNT: usize = 3;
    const NAMES: [&str; Self::COUNT] =
        ["logs_excused", "primaries_not_told", "writes_without_replica"];
}

/// The group of counters of what was done without lost nodes.
const WITHOUT: &str = "without_lost_nodes";

impl Node {
    /// Counts what was done without a lost node.
    pub(super) fn did(&self, without: Without) {
        self.without()[without as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// What was done without lost nodes; nothing where there are none.
    pub(super) fn done_without(&self) -> impl Iterator<Item = Counter> {
        let counts = if self.lost().are_any() { &self.without()[..] } else { &[] };
        Without::NAMES.iter().zip(counts).map(|(name, count)| Counter {
            group: WITHOUT,
            name,
            value: count.load(Ordering::Relaxed),
        })
    }

    /// Has the node that holds the primary of `shard` lost it?
    pub(super) fn is_lost(&self, shard: ShardId) -> bool {
        self.lost().contain(self.primary_node(shard))
    }

    /// Errors: the shard of a key that `txn` wants is not served any more. Without a crash the cost
    /// is one read.
    pub(super) fn check_served(
        &self,
        txn: &Txn,
        wanted: impl Fn(usize, &Entry) -> bool,
    ) -> Result<(), Abort> {
        if !self.lost().are_any() {
            return Ok(());
        }
        let entries = txn.entries().iter().enumerate();
        let wanted = entries.filter(|&(index, entry)| wanted(index, entry));
        let mut shards = wanted.map(|(_, entry)| self.shard_of(entry.key));
        let lost = shards.find(|&shard| self.is_lost(shard));
        lost.map_or(Ok(()), |shard| Err(Abort::ShardUnavailable { shard }))
    }

    /// Why a request or a verb to the primary of `shard` has failed.
    pub(super) fn failure(&self, shard: ShardId, error: FabricError) -> Abort {
        if self.is_lost(shard) { Abort::ShardUnavailable { shard } } else { Abort::Fabric(error) }
    }

    /// Is nothing to be expected of `backup` any more, because a view says that it is gone? One that
    /// merely does not answer may have logged, or may still.
    pub(super) fn is_excused(&self, backup: NodeId) -> bool {
        self.lost().contain(backup) || self.config().sabotage == Sabotage::ForgetsBackups
    }

    /// May what was read be reported without having written anything? Without a lease others may
    /// have gone on without this node.
    pub(super) fn check_lease<F: Fabric>(&self, fabric: &F) -> Result<(), Abort> {
        if fabric.has_lease() { Ok(()) } else { Err(Abort::Fabric(FabricError::Unreachable)) }
    }

    /// Why nobody may have `key`, which an engine of `holder` has locked: `conflict`, unless the
    /// lock is for good.
    pub(super) fn conflict(&self, key: Key, holder: Option<NodeId>, conflict: Abort) -> Abort {
        match holder {
            Some(holder) if self.lost().contain(holder) => Abort::AwaitsRecovery { key },
            _ => conflict,
        }
    }

    /// Why a request for a key of this node's shard is refused: for `abort` or, if the lock that it
    /// has met is for good, for that.
    pub(super) fn explained(&self, abort: Abort) -> Abort {
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
    pub(super) fn staleness_of_range(&self, version: &RangeVersion) -> Abort {
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

    /// Is every lock one that only a recovery may release? Goes over every record.
    pub(super) fn has_released(&self) -> bool {
        self.primary().locked_count() == self.awaiting_recovery().len()
    }

    /// The keys that only a recovery may release.
    pub(super) fn awaiting_recovery(&self) -> Vec<Key> {
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

/// A host engine of a node that has come back without its data: it serves no shard.
pub(super) struct WithoutData<F> {
    fabric: F,
}

impl<F: Fabric> WithoutData<F> {
    pub(super) fn start(fabric: &F) {
        let first = fabric.serve(Rc::new(Self { fabric: fabric.clone() }));
        assert!(first, "an engine runs one system");
    }

    /// What it says to who wants its shard.
    fn denial(&self) -> Option<Abort> {
        let shard = self.fabric.view().led_by(self.fabric.here().node).next()?;
        Some(Abort::ShardUnavailable { shard })
    }
}

impl<F: Fabric> Service for WithoutData<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Some(reply_to) = delivery.reply_to else { return Ok(()) };
        match (delivery.kind, self.denial()) {
            (EXECUTE, Some(abort)) => {
                let denied = ExecuteReply::Denied::<std::iter::Empty<_>>(abort);
                self.fabric.reply(reply_to, &denied);
            }
            (LOCK | VALIDATE | RESERVE, Some(abort)) => {
                self.fabric.reply(reply_to, &ValidateReply(Err(abort)));
            }
            // What an earlier life has taken part in cannot be ended here: the view says so.
            _ => self.fabric.refuse(reply_to, FabricError::Unreachable),
        }
        Ok(())
    }
}
