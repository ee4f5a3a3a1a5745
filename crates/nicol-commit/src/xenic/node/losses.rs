//! What a crash leaves behind at a node that survives it, until survivors have decided about it, if
//! they do, and what it comes to lead (decisions 0020, 0102 and 0103) [Xenic21 4.2.1].
//!
//! A transaction that a crashed node left undecided keeps its locks. Other transactions that want
//! these keys are refused with the reason.

use nicol_core::fabric::{Fabric, ReplyTo};
use nicol_core::ids::{IdMap, Key, NodeId, ShardId, Side, TxnId, Version};
use nicol_core::txn::{Abort, RangeVersion};
use nicol_core::view::View;
use nicol_core::wire::Malformed;
use nicol_store::host_table::SlotHash;
use nicol_store::nic_index::{LockRefused, NicIndex};

use super::Node;
use super::begun::is_of_member;
use super::inherited::{Inherited, InheritedShard, first_version};
use super::size::indices_of;
use crate::decided::Decision;
use crate::messages::{EXECUTE, ExecuteReply, VALIDATE, ValidateReply};
use crate::survivor::Survivor;
use crate::xenic::config::{LogAtPrimary, Recovery};
use crate::xenic::messages::recovery::Account;
use crate::xenic::messages::ship::ShipReply;
use crate::xenic::messages::{LOCK, READ, SHIP};

impl Node {
    /// The shards that it leads since they have lost their primary.
    pub(in crate::xenic) const fn inherited(&self) -> &Inherited {
        &self.inherited
    }

    /// Learns from a later view who is lost, which shards have changed, and which of them this node
    /// leads now.
    pub(in crate::xenic) fn learn(&self, view: &View) {
        if !self.lives.is_meant_by(view, self.id) {
            return;
        }
        self.lives.learn(view, self.id);
        self.lost().learn(view);
        self.begun.learn(view);
        if self.config.recovery == Recovery::Prepared {
            self.inherited.learn(view, self.id, |shard| {
                let configs = indices_of(self.backup_of(shard), &self.config);
                let continues = self.config.hooks().continues_versions();
                let first = first_version(view.led_since(shard));
                let floor = if continues { first } else { Version(0) };
                configs.map(|config| NicIndex::above(*config, floor))
            });
        }
        let holds = self.shard.is_some() || self.backups.values().next().is_some();
        if holds && self.lost().are_any() && self.config.recovery == Recovery::Prepared {
            self.recovery.note_due(view.epoch());
        }
    }

    /// Does the primary of `shard` get the LOGs of a transaction, too, which `coordinator` commits?
    /// That node is one of those that back the shard up from the start: without a LOG at the
    /// primary, it might alone have what it tells its client. AMB-50
    pub(in crate::xenic) fn logs_at_primary(&self, coordinator: NodeId, shard: ShardId) -> bool {
        self.config.log_at_primary == LogAtPrimary::Needed
            && self.view.backups(shard).any(|backup| backup == coordinator)
    }

    /// Must the primary of `shard` have a LOG of `txn`, if its client was told that it is
    /// committed? Of a coordinator that has started again nobody knows what it backed up.
    pub(in crate::xenic) fn must_log_at_primary(&self, txn: TxnId, shard: ShardId) -> bool {
        let of_first_life = is_of_member(&self.view, txn);
        let coordinator = txn.engine().filter(|_| of_first_life);
        coordinator.is_some_and(|engine| self.logs_at_primary(engine.node, shard))
    }

    /// Does this node take LOGs of `shard`: as a backup or, where primaries do, as that?
    pub(in crate::xenic) fn logs(&self, shard: ShardId) -> bool {
        let as_primary = self.config.log_at_primary == LogAtPrimary::Needed;
        self.is_backup_of(shard) || as_primary && self.is_primary(shard)
    }

    /// The NIC's indices of all shards that it leads.
    pub(in crate::xenic) fn indices(&self) -> impl Iterator<Item = (Option<ShardId>, &NicIndex)> {
        self.lost_sides.expect_kept(Side::Nic);
        let inherited = self.inherited.iter();
        let inherited = inherited.map(|one| (Some(one.shard()), one.indices()));
        let shards = std::iter::once((self.shard, &self.indices)).chain(inherited);
        shards.flat_map(|(shard, indices)| indices.iter().map(move |index| (shard, index)))
    }

    #[cold]
    pub(super) fn expect_inherited(
        &self,
        mut keys: impl Iterator<Item = Key>,
    ) -> Result<Result<(), Abort>, Malformed> {
        let malformed = Malformed { what: "a key of another shard" };
        let Some(shard) = keys.next().map(|key| self.shard_of(key)) else { return Ok(Ok(())) };
        let may_lead = self.config.recovery == Recovery::Prepared && self.is_backup_of(shard);
        if !may_lead || keys.any(|key| self.shard_of(key) != shard) {
            return Err(malformed);
        }
        let hooks = self.config.hooks();
        let open = self.inherited.get(shard).is_some_and(|inherited| inherited.is_open());
        let served = open || self.inherited.get(shard).is_some() && hooks.serves_at_once();
        Ok(if served { Ok(()) } else { Err(Abort::ShardUnavailable { shard }) })
    }

    /// Why `key` is not locked.
    pub(in crate::xenic) fn refusal(&self, refused: LockRefused, key: Key) -> Abort {
        match refused {
            LockRefused::Held(holder) => self.conflict(key, holder, Abort::LockConflict { key }),
            LockRefused::Shared => Abort::LockConflict { key },
            LockRefused::Full => Abort::NoResources,
        }
    }

    /// Why a transaction that wants `key`, which `holder` has locked, aborts: `conflict`, or
    /// `AwaitsRecovery` if a lost node left the holder undecided.
    pub(in crate::xenic) fn conflict(&self, key: Key, holder: TxnId, conflict: Abort) -> Abort {
        if self.lost().have_left(holder) { Abort::AwaitsRecovery { key } } else { conflict }
    }

    /// Why a read of `key` is not current: the key was written, or it is locked, perhaps by a
    /// transaction that a lost node left undecided.
    pub(in crate::xenic) fn staleness(&self, key: Key) -> Abort {
        let stale = Abort::Stale { key };
        self.holder(key).map_or(stale, |holder| self.conflict(key, holder, stale))
    }

    /// The same of a range.
    pub(in crate::xenic) fn staleness_of_range(&self, version: &RangeVersion) -> Abort {
        let left = |(_, holder): &(Key, TxnId)| self.lost().have_left(*holder);
        match self.write_counters().locked_in(version.range).into_iter().find(left) {
            Some((key, _)) => Abort::AwaitsRecovery { key },
            None => Abort::Stale { key: version.range.first() },
        }
    }

    /// The keys that only a recovery may release.
    pub(in crate::xenic) fn awaiting_recovery(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        if self.lost().are_any() {
            for (_, index) in self.indices() {
                index.for_each_locked(&mut |key, holder| {
                    if self.lost().have_left(holder) {
                        keys.push(key);
                    }
                });
            }
        }
        keys
    }

    /// Is every lock one that only a recovery may release?
    pub(in crate::xenic) fn has_released(&self) -> bool {
        if self.write_counters().inserting_count() > 0 {
            return false;
        }
        let locked: usize = self.indices().map(|(_, index)| index.locked_count()).sum();
        let ordered = self.write_counters().locked_count();
        if locked == 0 && ordered == 0 {
            return true;
        }
        let keys = self.awaiting_recovery();
        let ordered_keys = keys.iter().filter(|key| key.is_ordered()).count();
        (keys.len(), ordered_keys) == (locked, ordered)
    }

    /// The transactions of lost coordinators that hold locks here, and of which shard.
    pub(in crate::xenic) fn locks_of_lost(&self) -> Vec<(TxnId, ShardId)> {
        let mut locked = Vec::new();
        for (shard, index) in self.indices() {
            let Some(shard) = shard else { continue };
            index.for_each_locked(&mut |_, holder| {
                if self.lost().have_left(holder) {
                    locked.push((holder, shard));
                }
            });
        }
        locked.sort_unstable();
        locked.dedup();
        locked
    }

    /// Releases every lock of transactions that are decided.
    pub(in crate::xenic) fn release_locks_of(&self, decisions: &[Decision]) {
        let decided: IdMap<TxnId, ()> =
            decisions.iter().map(|decision| (decision.txn, ())).collect();
        let mut locked = Vec::new();
        for (_, index) in self.indices() {
            index.for_each_locked(&mut |key, holder| {
                if decided.contains_key(&holder) {
                    locked.push((key, holder));
                }
            });
        }
        for (key, holder) in locked {
            self.unlock(key, holder);
        }
    }

    /// What this node has logged of lost coordinators: records that are undecided, and decisions.
    pub(in crate::xenic) fn account_of_lost(&self) -> Account {
        let mut account = Account::default();
        for undecided in &self.undecided {
            undecided.tell(&mut account, |txn| self.lost().have_left(txn));
        }
        account
    }

    /// The undecided records of a shard.
    pub(in crate::xenic) fn undecided_of(&self, shard: ShardId) -> Account {
        let records = self.undecided.iter().flat_map(|undecided| undecided.records_of(shard));
        Account { records: records.collect(), ..Account::default() }
    }

    /// Locks `key` for `txn`, which has logged it, unless another such transaction holds it.
    pub(in crate::xenic) fn lock_again(&self, key: Key, txn: TxnId) {
        if self.index_of(key).pass_lock(SlotHash::of(key), key, None, txn) && key.is_ordered() {
            self.write_counters().lock(key, txn);
        }
    }

    /// `txn`, which has logged `key` of an inherited shard, is decided, and the host knows it. The
    /// key is released if `txn` holds it: the next holds it that has logged it and is undecided,
    /// if there is one.
    pub(in crate::xenic) fn end_inherited(&self, of: &InheritedShard, key: Key, txn: TxnId) {
        self.index_of(key).forget(SlotHash::of(key), key);
        of.release(key, |next| match next {
            Some(next) => {
                let passed = self.index_of(key).pass_lock(SlotHash::of(key), key, Some(txn), next);
                if passed && key.is_ordered() {
                    self.write_counters().unlock(key, txn);
                    self.write_counters().lock(key, next);
                }
            }
            None => _ = self.unlock(key, txn),
        });
    }

    /// The keys of undecided records that only a recovery may decide about, of all shards that this
    /// node backs up.
    pub(in crate::xenic) fn undecided_of_lost(&self) -> Vec<Key> {
        let mut left = Vec::new();
        for undecided in &self.undecided {
            undecided.for_each(&mut |txn, keys| {
                if self.lost().have_left(txn) {
                    left.extend(keys);
                }
            });
        }
        left
    }

    /// Is every undecided record one that only a recovery may decide about?
    pub(in crate::xenic) fn has_decided(&self) -> bool {
        let mut decided = true;
        for undecided in &self.undecided {
            undecided.for_each(&mut |txn, _| decided &= self.lost().have_left(txn));
        }
        decided
    }

    /// Takes the locks of the keys that `txn` is about to lock from those who have left them:
    /// broken on purpose.
    pub(in crate::xenic) fn steal(&self, keys: impl Iterator<Item = Key>) {
        for key in keys {
            let holder = self.index_of(key).holder(SlotHash::of(key), key);
            if let Some(holder) = holder.filter(|&holder| self.lost().have_left(holder)) {
                self.unlock(key, holder);
            }
        }
    }
}

/// Denies a request to a NIC engine that has lost its shard.
pub(in crate::xenic) fn deny<F: Fabric>(
    fabric: &F,
    kind: u16,
    reply_to: ReplyTo,
    abort: Abort,
) -> bool {
    match kind {
        EXECUTE | READ => {
            fabric.reply(reply_to, &ExecuteReply::Denied::<std::iter::Empty<_>>(abort));
        }
        VALIDATE | LOCK => fabric.reply(reply_to, &ValidateReply(Err(abort))),
        SHIP => fabric.reply(reply_to, &ShipReply::Denied(abort)),
        _ => return false,
    }
    true
}
