//! The shards that this node has backed up from the start, and leads since their primary was lost.
//! [Xenic21 4.2.1] (decision 0103)
//!
//! The records are those of the backup. The NIC begins with an empty index, in which it locks the
//! keys of what is undecided before it serves any: the LOGs of coordinators that live, which will
//! say how their transactions have ended, and those about which no survivor can decide.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use nicol_core::ids::{Epoch, Key, NodeId, ShardId, TxnId, Version};
use nicol_core::view::View;
use nicol_store::nic_index::NicIndex;

use crate::log::logged;
use crate::tables::ByTable;

/// The bit from which on versions tell in which view a shard was inherited. An absent key begins
/// there, above every version that an earlier primary may have shown or deleted.
const EPOCH_SHIFT: u32 = 40;

/// What absent keys of a shard begin with, that was inherited in the view of `epoch`.
pub(super) const fn first_version(Epoch(epoch): Epoch) -> Version {
    Version((epoch as u64) << EPOCH_SHIFT)
}

/// The shards that one node may inherit.
#[derive(Debug)]
pub(in crate::xenic) struct Inherited {
    /// Without one, every question costs this read.
    any: AtomicBool,
    shards: Box<[InheritedShard]>,
}

impl Inherited {
    /// None yet, of these shards.
    pub(super) fn of(shards: impl Iterator<Item = ShardId>) -> Self {
        Self { any: AtomicBool::new(false), shards: shards.map(InheritedShard::new).collect() }
    }

    /// Learns from `view` which shards `id` leads now; `indices` are those that a shard's NIC
    /// begins with.
    pub(super) fn learn(
        &self,
        view: &View,
        id: NodeId,
        indices: impl Fn(ShardId) -> ByTable<NicIndex>,
    ) {
        let leads =
            |one: &&InheritedShard| view.primary(one.shard) == id && !view.is_lost(one.shard);
        for inherited in self.shards.iter().filter(leads) {
            inherited.indices.get_or_init(|| indices(inherited.shard));
            self.any.store(true, Ordering::Release);
        }
    }

    /// Whether there is any.
    #[inline]
    pub(in crate::xenic) fn are_any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    /// `shard`, if it is inherited.
    pub(in crate::xenic) fn get(&self, shard: ShardId) -> Option<&InheritedShard> {
        self.iter().find(|inherited| inherited.shard == shard)
    }

    /// All that are inherited.
    pub(in crate::xenic) fn iter(&self) -> impl Iterator<Item = &InheritedShard> {
        let shards = if self.are_any() { &self.shards[..] } else { &[] };
        shards.iter().filter(|one| one.indices.get().is_some())
    }
}

/// A shard that may be inherited.
#[derive(Debug)]
pub(in crate::xenic) struct InheritedShard {
    shard: ShardId,
    /// Set once a view names this node as the primary.
    indices: OnceLock<ByTable<NicIndex>>,
    /// Is it served?
    open: AtomicBool,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    /// Before it is served: what has been decided since it was inherited.
    decided: Vec<TxnId>,
    /// The undecided transactions whose keys are locked, with the bodies of their LOGs. Several may
    /// write a key: one that was unlocked may be undecided together with the next that has locked.
    undecided: BTreeMap<TxnId, Vec<Box<[u8]>>>,
}

impl Kept {
    /// Another undecided transaction that writes `key`.
    fn writer_of(&self, key: Key) -> Option<TxnId> {
        let writes = |records: &[Box<[u8]>]| keys_of(records).any(|written| written == key);
        self.undecided.iter().find(|(_, records)| writes(records)).map(|(&txn, _)| txn)
    }
}

/// The keys that these LOGs write.
pub(in crate::xenic) fn keys_of(records: &[Box<[u8]>]) -> impl Iterator<Item = Key> {
    records.iter().flat_map(|body| logged(body)).map(|(key, ..)| key)
}

impl InheritedShard {
    fn new(shard: ShardId) -> Self {
        let (indices, open, kept) = (OnceLock::new(), AtomicBool::new(false), Mutex::default());
        Self { shard, indices, open, kept }
    }

    pub(in crate::xenic) const fn shard(&self) -> ShardId {
        self.shard
    }

    /// The NIC's indices of its tables.
    ///
    /// # Panics
    /// If no view has named this node: [`Inherited`] hands out no such shard.
    pub(super) fn indices(&self) -> &ByTable<NicIndex> {
        match self.indices.get() {
            Some(indices) => indices,
            None => panic!("a shard is inherited before it is used"),
        }
    }

    /// Is it served?
    pub(in crate::xenic) fn is_open(&self) -> bool {
        self.open.load(Ordering::Acquire)
    }

    /// How many decisions have come since it was inherited.
    pub(in crate::xenic) fn decisions_so_far(&self) -> usize {
        self.kept().decided.len()
    }

    /// Serves it from here on. `records` are the LOGs that were undecided after so many decisions
    /// had come: `lock` has their keys locked. False if one of these was decided meanwhile, so that
    /// its record may not be in the table yet.
    pub(in crate::xenic) fn open(
        &self,
        records: Vec<Box<[u8]>>,
        after: usize,
        lock: impl Fn(Key, TxnId),
    ) -> bool {
        let kept = &mut *self.kept();
        let since = &kept.decided[after..];
        if records.iter().any(|record| since.contains(&logged(record).txn)) {
            return false;
        }
        for record in records {
            let logged = logged(&record);
            let txn = logged.txn;
            logged.for_each(|(key, ..)| lock(key, txn));
            kept.undecided.entry(txn).or_default().push(record);
        }
        kept.decided = Vec::new();
        self.open.store(true, Ordering::Release);
        true
    }

    /// `txn` is decided: its LOGs, if its keys are locked until this is done.
    pub(in crate::xenic) fn decide(&self, txn: TxnId) -> Vec<Box<[u8]>> {
        let kept = &mut *self.kept();
        if !self.is_open() {
            kept.decided.push(txn);
        }
        kept.undecided.remove(&txn).unwrap_or_default()
    }

    /// `pass` has `key` locked for the next undecided transaction that writes it, if there is one.
    pub(in crate::xenic) fn release(&self, key: Key, pass: impl FnOnce(Option<TxnId>)) {
        let kept = self.kept();
        pass(kept.writer_of(key));
    }

    /// Are there no undecided transactions whose keys are locked, but such that only a recovery may
    /// decide, as `left` says?
    pub(in crate::xenic) fn is_settled(&self, left: impl Fn(TxnId) -> bool) -> bool {
        self.is_open() && self.kept().undecided.keys().all(|&txn| left(txn))
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
