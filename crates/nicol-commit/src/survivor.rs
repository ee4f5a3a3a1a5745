//! How the nodes that are left go on after a crash, in every system of the family (decision 0020):
//! which requests they refuse, which backups they no longer wait for, and what they count of that.
//!
//! A single node does not recover. A shard that no view gives to another one is refused from then
//! on. The locks that a lost node left are handled by each system, in its own `losses`.

use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::commit::WITHOUT_LOST_NODES;
use nicol_core::fabric::{Delivery, Fabric, FabricError, ReplyTo, Service};
use nicol_core::ids::{NodeId, ShardId};
use nicol_core::system::Counter;
use nicol_core::txn::{Abort, Entry, Txn};
use nicol_core::view::{ShardMap, View};
use nicol_core::wire::Malformed;
use nicol_kit::LostNodes;

use super::broken::Hooks;
use super::messages::parse_verdict;

/// What a transaction has done without a lost node.
#[derive(Clone, Copy, Debug)]
pub(super) enum Without {
    /// It has committed without this backup's ack.
    Backup,
    /// It has ended without a COMMIT or ABORT at this primary.
    Primary,
    /// No replica is left to keep what it writes to a shard.
    EveryReplica,
    /// It was shipped there, and its outcome is unknown.
    ExecutionNode,
}

impl Without {
    const NAMES: [&str; 4] =
        ["logs_excused", "primaries_not_told", "writes_without_replica", "ships_undecided"];
}

/// How often transactions of one node have done each [`Without`].
#[derive(Debug, Default)]
struct DoneWithout([AtomicU64; Without::NAMES.len()]);

/// What one node knows of crashes that it has survived.
#[derive(Debug)]
pub(super) struct Survival {
    lost: LostNodes,
    without: DoneWithout,
    hooks: Hooks,
}

impl Survival {
    /// No node is lost: everything has just been loaded under `view`.
    pub(super) fn new(view: &View, hooks: Hooks) -> Self {
        Self { lost: LostNodes::new(view), without: DoneWithout::default(), hooks }
    }
}

/// What the engines of a node that survives a crash ask it.
pub(super) trait Survivor {
    fn survival(&self) -> &Survival;

    /// The nodes that have lost their data.
    fn lost(&self) -> &LostNodes {
        &self.survival().lost
    }

    /// Counts what was done without a lost node.
    fn did(&self, without: Without) {
        self.survival().without.0[without as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// What was done without lost nodes; nothing where there are none.
    fn done_without(&self) -> impl Iterator<Item = Counter> {
        let counts = if self.lost().are_any() { &self.survival().without.0[..] } else { &[] };
        Without::NAMES.iter().zip(counts).map(|(name, count)| Counter {
            group: WITHOUT_LOST_NODES,
            name,
            value: count.load(Ordering::Relaxed),
        })
    }

    /// Has the node that holds the primary of `shard` lost it, so that no node serves it?
    fn is_lost(&self, shard: ShardId) -> bool {
        self.lost().contain_primary_of(shard)
    }

    /// Errors: the shard of a key that `txn` wants is not served any more. Without a crash the cost
    /// is one read.
    fn check_served(&self, txn: &Txn, wanted: impl Fn(usize, &Entry) -> bool) -> Result<(), Abort> {
        if !self.lost().are_any() {
            return Ok(());
        }
        let entries = txn.entries().iter().enumerate();
        let wanted = entries.filter(|&(index, entry)| wanted(index, entry));
        let mut shards = wanted.map(|(_, entry)| self.lost().loaded().shard_of(entry.key));
        let lost = shards.find(|&shard| self.is_lost(shard));
        lost.map_or(Ok(()), |shard| Err(Abort::ShardUnavailable { shard }))
    }

    /// Why a request or a verb to the primary of `shard` has failed.
    fn failure(&self, shard: ShardId, error: FabricError) -> Abort {
        if self.is_lost(shard) { Abort::ShardUnavailable { shard } } else { Abort::Fabric(error) }
    }

    /// What the primary of `shard` answers to a VALIDATE, a LOCK or a RESERVE.
    fn verdict(
        &self,
        shard: ShardId,
        reply: Result<impl AsRef<[u8]>, FabricError>,
    ) -> Result<(), Abort> {
        let body = reply.map_err(|error| self.failure(shard, error))?;
        parse_verdict(body.as_ref()).unwrap_or(Err(Abort::Fabric(FabricError::Malformed)))
    }

    /// Is nothing to be expected of `backup` any more, because a view says that it is gone? One
    /// that merely does not answer may have logged, or may still.
    fn is_excused(&self, backup: NodeId) -> bool {
        self.survival().hooks.excuses(self.lost().contain(backup))
    }

    /// May what was read be reported without having written anything? Without a lease others may
    /// have gone on without this node.
    fn check_lease<F: Fabric>(&self, fabric: &F) -> Result<(), Abort> {
        if fabric.has_lease() { Ok(()) } else { Err(Abort::Fabric(FabricError::Unreachable)) }
    }
}

/// Refuses a request of a kind with the reason; false if that kind has no reply for it.
type Deny<F> = fn(&F, u16, ReplyTo, Abort) -> bool;

/// An engine of a node that has come back without its data: it serves no shard.
pub(super) struct WithoutData<F> {
    fabric: F,
    deny: Deny<F>,
}

impl<F: Fabric> WithoutData<F> {
    pub(super) fn start(fabric: &F, deny: Deny<F>) {
        let first = fabric.serve(Rc::new(Self { fabric: fabric.clone(), deny }));
        assert!(first, "an engine runs one system");
    }

    /// The reason with which it refuses its shard.
    fn denial(&self) -> Option<Abort> {
        let shard = self.fabric.view().led_by(self.fabric.here().node).next()?;
        Some(Abort::ShardUnavailable { shard })
    }
}

impl<F: Fabric> Service for WithoutData<F> {
    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), Malformed> {
        let Some(reply_to) = delivery.reply_to else { return Ok(()) };
        let deny = |abort| (self.deny)(&self.fabric, delivery.kind, reply_to, abort);
        if !self.denial().is_some_and(deny) {
            // What an earlier life has taken part in cannot be ended here: the view says so.
            self.fabric.refuse(reply_to, FabricError::Unreachable);
        }
        Ok(())
    }
}
