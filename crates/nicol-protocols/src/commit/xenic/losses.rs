//! What a crash takes from a node that survives it, and what it leaves behind there.
//!
//! Nothing recovers yet [Xenic21 4.2.1]. A shard is served by the node that was loaded with it, or
//! by none. A transaction that a crashed node has left undecided keeps its locks, and whoever wants
//! one is refused in words.

use std::rc::Rc;
use std::sync::atomic::Ordering;

use nicol_core::fabric::{Delivery, Fabric, FabricError, Service};
use nicol_core::ids::{Key, NodeId, ShardId, TxnId};
use nicol_core::system::Counter;
use nicol_core::txn::{Abort, Entry, RangeVersion, Txn};
use nicol_core::wire::Malformed;
use nicol_store::host_table::SlotHash;
use nicol_store::nic_index::LockRefused;

use super::Sabotage;
use super::messages::ship::ShipReply;
use super::messages::{LOCK, READ, SHIP};
use super::node::Node;
use crate::commit::messages::{EXECUTE, ExecuteReply, VALIDATE, ValidateReply};

/// What a transaction has done without a lost node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Without {
    /// It has committed without this backup's ack.
    Backup,
    /// It has ended without a COMMIT or ABORT at this primary.
    Primary,
    /// It was shipped there, and nobody knows what has become of it.
    ExecutionNode,
    /// No replica is left to keep what it writes to a shard.
    EveryReplica,
}

impl Without {
    pub(super) const COUNT: usize = 4;
    const NAMES: [&str; Self::COUNT] =
        ["logs_excused", "primaries_not_told", "ships_undecided", "writes_without_replica"];
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
        wanted: impl Fn(&Entry) -> bool,
    ) -> Result<(), Abort> {
        if !self.lost().are_any() {
            return Ok(());
        }
        let wanted = txn.entries().iter().filter(|entry| wanted(entry));
        let mut shards = wanted.map(|entry| self.shard_of(entry.key));
        let lost = shards.find(|&shard| self.is_lost(shard));
        lost.map_or(Ok(()), |shard| Err(Abort::ShardUnavailable { shard }))
    }

    /// Why a request to the primary of `shard` has failed.
    pub(super) fn failure(&self, shard: ShardId, error: FabricError) -> Abort {
        if self.is_lost(shard) { Abort::ShardUnavailable { shard } } else { Abort::Fabric(error) }
    }

    /// Is nothing to be expected of `backup` any more, because a view says that it is gone? One that
    /// merely does not answer may have logged, or may still.
    pub(super) fn is_excused(&self, backup: NodeId) -> bool {
        self.lost().contain(backup) || self.config().sabotage == Sabotage::ForgetsBackups
    }

    /// May what was read of this node's memory alone be reported? Without a lease others may have
    /// gone on without the node.
    pub(super) fn check_lease<F: Fabric>(&self, fabric: &F) -> Result<(), Abort> {
        if fabric.has_lease() { Ok(()) } else { Err(Abort::Fabric(FabricError::Unreachable)) }
    }

    /// Why `key` is not locked.
    pub(super) fn refusal(&self, refused: LockRefused, key: Key) -> Abort {
        match refused {
            LockRefused::Held(holder) => self.conflict(key, holder, Abort::LockConflict { key }),
            LockRefused::Shared => Abort::LockConflict { key },
            LockRefused::Full => Abort::NoResources,
        }
    }

    /// Why nobody may have `key`, which `holder` has locked: `conflict`, unless the lock is for
    /// good.
    pub(super) fn conflict(&self, key: Key, holder: TxnId, conflict: Abort) -> Abort {
        if self.lost().have_left(holder) { Abort::AwaitsRecovery { key } } else { conflict }
    }

    /// Why what was read of `key` is not current: somebody has written it or, it may be, has locked
    /// it for good.
    pub(super) fn staleness(&self, key: Key) -> Abort {
        let stale = Abort::Stale { key };
        self.holder(key).map_or(stale, |holder| self.conflict(key, holder, stale))
    }

    /// The same of a range.
    pub(super) fn staleness_of_range(&self, version: &RangeVersion) -> Abort {
        let left = |(_, holder): &(Key, TxnId)| self.lost().have_left(*holder);
        match self.write_counters().locked_in(version.range).into_iter().find(left) {
            Some((key, _)) => Abort::AwaitsRecovery { key },
            None => Abort::Stale { key: version.range.first() },
        }
    }

    /// The keys that only a recovery may release.
    pub(super) fn awaiting_recovery(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        if self.lost().are_any() {
            self.index().for_each_locked(&mut |key, holder| {
                if self.lost().have_left(holder) {
                    keys.push(key);
                }
            });
        }
        keys
    }

    /// Is every lock one that only a recovery may release?
    pub(super) fn has_released(&self) -> bool {
        let (locked, ordered) = (self.index().locked_count(), self.write_counters().locked_count());
        if locked == 0 && ordered == 0 {
            return true;
        }
        let keys = self.awaiting_recovery();
        let ordered_keys = keys.iter().filter(|key| key.is_ordered()).count();
        (keys.len(), ordered_keys) == (locked, ordered)
    }

    /// Takes the locks of the keys that `txn` is about to lock from those who have left them: broken
    /// on purpose.
    pub(super) fn steal(&self, keys: impl Iterator<Item = Key>) {
        for key in keys {
            let holder = self.index().holder(SlotHash::of(key), key);
            if let Some(holder) = holder.filter(|&holder| self.lost().have_left(holder)) {
                self.unlock(key, holder);
            }
        }
    }
}

/// A NIC engine of a node that has come back without its data: it serves no shard.
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
            (EXECUTE | READ, Some(abort)) => {
                let denied = ExecuteReply::Denied::<std::iter::Empty<_>>(abort);
                self.fabric.reply(reply_to, &denied);
            }
            (VALIDATE | LOCK, Some(abort)) => {
                self.fabric.reply(reply_to, &ValidateReply(Err(abort)));
            }
            (SHIP, Some(abort)) => self.fabric.reply(reply_to, &ShipReply::Denied(abort)),
            // What an earlier life has taken part in cannot be ended here: the view says so.
            _ => self.fabric.refuse(reply_to, FabricError::Unreachable),
        }
        Ok(())
    }
}
