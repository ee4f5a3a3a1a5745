//! One node's memory: tables and logs. Shared by its host engines.

mod losses;
mod rings;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::engine::{Loss, LostSides};
use nicol_core::fabric::Fabric;
use nicol_core::ids::{EngineId, Key, NodeId, ShardId, Side, Version};
use nicol_core::memory::Copies;
use nicol_core::system::{Audit, Counter, NodeState, Opening, Origin, SystemNode, TooSmall};
use nicol_core::txn::VALUE_MAX;
use nicol_core::view::{Halves, ShardMap, View};
use nicol_store::address_cache::AddressCache;
use nicol_store::remote_table::{BlockRef, Geometry, RemoteTable};

use super::broken::choices::in_force;
use super::config::{RdmaOccConfig, Transport, Verbs};
use super::replica::{Primary, Replica};
use super::shape::Shape;
use crate::backups::Backups;
use crate::load_shard;
use crate::log::LogMemory;
use crate::survivor::{Survival, Survivor, WithoutData};
use crate::tables::ByTable;
use losses::deny;
use rings::Rings;

/// Log records that a node applies between two looks at whether old deletions may be forgotten.
const FORGET_EVERY: u64 = 1_024;

/// A node: primary of one shard, or of none if it is for clients only, and backup of others.
#[derive(Debug)]
pub struct Node {
    id: NodeId,
    view: View,
    survival: Survival,
    config: RdmaOccConfig,
    lost_sides: LostSides,
    shapes: ByTable<Shape>,
    shard: Option<ShardId>,
    primary: Primary,
    backups: Backups<Replica>,
    /// The logs of the cluster's host engines. An engine of another node writes its log here
    /// one-sidedly; one of this node keeps what it backs up.
    logs: Rings,
    /// The message logs that the cluster's host engines write here one-sidedly; none where messages
    /// are SENDs.
    messages: Rings,
    /// Where records of other shards stand.
    addresses: Mutex<Addresses>,
    /// Transactions that have begun here and still have something to do.
    open: AtomicU64,
    applied: AtomicU64,
    /// Per log: has it been in the tables, all of it, since deletions were last forgotten?
    idle: Mutex<Vec<bool>>,
}

impl Node {
    /// Its id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// How it runs.
    pub fn config(&self) -> &RdmaOccConfig {
        &self.config
    }

    /// Its primary shard.
    pub(super) fn primary(&self) -> &Primary {
        self.lost_sides.expect_kept(Side::Host);
        &self.primary
    }

    /// The shape of the table of `key`, in whichever shard.
    #[inline]
    pub(super) fn geometry(&self, key: Key) -> &Geometry {
        &self.shapes.of(key).geometry
    }

    /// The log that `engine` writes here.
    pub(super) fn log_of(&self, engine: EngineId) -> &Arc<LogMemory> {
        self.logs.of(self.position_of(engine))
    }

    /// The message log that `engine` writes here, if there are any.
    pub(super) fn messages_of(&self, engine: EngineId) -> Option<&Arc<LogMemory>> {
        (!self.messages.is_empty()).then(|| self.messages.of(self.position_of(engine)))
    }

    /// The place of `engine` among the host engines of the cluster.
    fn position_of(&self, engine: EngineId) -> usize {
        match self.view.host_index_of(engine) {
            Some(position) => position,
            None => panic!("{engine} is no host engine of this cluster"),
        }
    }

    /// The shard of `key`.
    pub(super) fn shard_of(&self, key: Key) -> ShardId {
        self.view.shard_of(key)
    }

    pub(super) fn is_primary_of(&self, key: Key) -> bool {
        Some(self.view.shard_of(key)) == self.shard
    }

    /// The copy of a shard that is backed up here.
    pub(super) fn backup(&self, shard: ShardId) -> Option<&Replica> {
        self.lost_sides.expect_kept(Side::Host);
        self.backups.get(shard)
    }

    /// Counts transactions with something to do.
    pub(super) fn opened(&self) {
        self.open.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn closed(&self) {
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts applied log records, and lets the backups forget deletions that no older record can
    /// undo any more.
    ///
    /// A write that a deletion followed was committed before, so that its log records had landed
    /// without a gap before them (`coordinator::log`): once all that had landed in each log has
    /// been in the tables, they are. Whether the log is free is another matter: with a second round
    /// of LOG (AMB-44), what was applied last never is.
    pub(super) fn applied(&self, records: u64) {
        let before = self.applied.fetch_add(records, Ordering::Relaxed);
        if before / FORGET_EVERY == (before + records) / FORGET_EVERY {
            return;
        }
        let Ok(mut idle) = self.idle.try_lock() else { return };
        for (index, log) in self.logs.made() {
            idle[index] |= log.is_in_tables(|| self.has_lost_writer(index));
        }
        if self.logs.made().all(|(index, _)| idle[index]) {
            self.backups.values().for_each(Replica::forget_old_deletions);
            idle.fill(false);
        }
    }

    /// Where the record of `key`, of another shard, stood last, and its value's block if it had
    /// one. [DrTM+H]
    pub(super) fn address_of(&self, key: Key) -> Option<(u64, Option<BlockRef>)> {
        if self.config.cached_addresses == 0 { None } else { self.addresses().get(key) }
    }

    /// Remembers where the record of `key` stands.
    pub(super) fn remember_address(&self, key: Key, address: u64) {
        if self.config.cached_addresses > 0 {
            self.addresses().slots.remember(key, address);
        }
    }

    /// Remembers where the value of `key` stands.
    pub(super) fn remember_block(&self, key: Key, block: BlockRef) {
        if self.config.cached_addresses > 0 {
            self.addresses().remember_block(key, block);
        }
    }

    /// Forgets an address where the record did not stand any more.
    pub(super) fn forget_address(&self, key: Key) {
        self.addresses().slots.forget(key);
    }

    /// Has everything been read that has landed in `logs`? What a node wrote last before it was
    /// lost may be torn, and what it wrote behind that is nobody's to read.
    fn are_read(&self, logs: &Rings) -> bool {
        logs.made().all(|(index, log)| {
            log.is_idle() || log.has_applied_what_it_saw() && self.has_lost_writer(index)
        })
    }

    /// True if the engine is lost that writes the rings at this place.
    fn has_lost_writer(&self, index: usize) -> bool {
        let mut writers = self.view.engine_ids().filter(|engine| engine.side == Side::Host);
        writers.nth(index).is_some_and(|writer| self.lost().contain(writer.node))
    }

    fn addresses(&self) -> MutexGuard<'_, Addresses> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Where records of other shards stand.
#[derive(Debug)]
struct Addresses {
    slots: AddressCache,
    /// Of values out of line: the block's offset, then [`LEN_BITS`] bits for its length.
    blocks: AddressCache,
}

/// Bits of a block's length beside its offset in one word.
const LEN_BITS: u32 = 27;
const _: () = assert!(VALUE_MAX < 1 << LEN_BITS, "any value's length fits");

impl Addresses {
    fn get(&mut self, key: Key) -> Option<(u64, Option<BlockRef>)> {
        let address = self.slots.get(key)?;
        if self.blocks.is_empty() {
            return Some((address, None));
        }
        let block = self.blocks.get(key).map(|packed| BlockRef {
            offset: packed >> LEN_BITS,
            len: (packed & ((1 << LEN_BITS) - 1)) as u32,
        });
        Some((address, block))
    }

    fn remember_block(&mut self, key: Key, block: BlockRef) {
        self.blocks.remember(key, block.offset << LEN_BITS | u64::from(block.len));
    }

    fn remember_all(&mut self, table: &RemoteTable) {
        /// Addresses that are remembered at a time.
        const BATCH: usize = 64;
        let mut batch = Vec::with_capacity(BATCH);
        table.each_address(&mut |key, address, block| {
            batch.push((key, address));
            if batch.len() == BATCH {
                self.slots.remember_several(&batch);
                batch.clear();
            }
            if let Some(block) = block {
                self.remember_block(key, block);
            }
        });
        self.slots.remember_several(&batch);
    }
}

impl Survivor for Node {
    fn survival(&self) -> &Survival {
        &self.survival
    }
}

impl SystemNode for Node {
    type Config = RdmaOccConfig;

    type Shard = Replica;

    const SHARES_COPIES: bool = true;

    const FOLLOWS_VIEWS: bool = true;

    /// "Host engines do everything; the NIC only moves bytes": its cores are spare.
    fn halves(config: &RdmaOccConfig) -> Halves {
        match config.verbs {
            Verbs::Card => Halves::HostAlone,
            // NIC engines execute the chains.
            Verbs::Software => Halves::Together,
        }
    }

    fn load(from: &Origin<'_, RdmaOccConfig>, shard: ShardId) -> Result<Replica, TooSmall> {
        let Origin { view, config, source } = *from;
        let replica = Replica::empty(&Shape::all(config, source));
        let touch = |key| replica.touch(key);
        load_shard(source, view, shard, touch, |key, value| replica.load(key, value));
        Ok(replica)
    }

    fn share(shard: &Replica) -> Option<Replica> {
        Some(shard.copy_in(Copies::Shared))
    }

    fn open(
        from: &Origin<'_, RdmaOccConfig>,
        id: NodeId,
        shards: &[Replica],
    ) -> Opening<Self, Replica> {
        let Origin { view, config, source } = *from;
        let others = u64::from(view.shards()) - view.led_by(id).count() as u64;
        let inline = config.table.inline;
        let long = |(len, records): &(u32, u64)| if *len as usize > inline { *records } else { 0 };
        let long: u64 = source.value_lengths().iter().map(long).sum();
        let long = if config.cached_addresses == 0 { 0 } else { long * 3 / 2 };
        let mut addresses = Addresses {
            slots: AddressCache::new((config.cached_addresses * others) as usize),
            blocks: AddressCache::new((long * others) as usize),
        };
        if config.warm_addresses {
            // All copies of a shard have their records in the same places.
            let others = view.shard_ids().filter(|&shard| view.primary(shard) != id);
            let tables = others.flat_map(|shard| shards[usize::from(shard.0)].tables.iter());
            tables.for_each(|table| addresses.remember_all(table));
        }
        let backups = Backups::copy(view, id, shards, |shard| shard.copy_in(config.copies));
        let engines = view.host_count();
        let pairs = if config.rpc_by == Transport::Write { engines } else { 0 };
        let shapes = Shape::all(config, source);
        let (view, config) = (view.clone(), config.clone());
        let shard = view.led_by(id).next();
        Box::new(move |led| Self {
            id,
            survival: Survival::new(&view, config.hooks()),
            lost_sides: LostSides::default(),
            shard,
            primary: Primary::new(led.unwrap_or_else(|| Replica::empty(&shapes))),
            shapes,
            backups,
            logs: Rings::new(engines, config.log),
            messages: Rings::new(pairs, config.message_log),
            addresses: Mutex::new(addresses),
            open: AtomicU64::new(0),
            applied: AtomicU64::new(0),
            idle: Mutex::new(vec![false; engines]),
            config: in_force(config),
            view,
        })
    }

    fn start_without_data<F: Fabric>(fabric: &F) {
        if fabric.here().side == Side::Host {
            WithoutData::start(fabric, deny);
        }
    }
}

impl NodeState for Node {
    fn crashed(&self, loss: &Loss) {
        self.lost_sides.lose(loss);
    }

    fn is_settled(&self) -> bool {
        // A transaction that has ended holds no locks. What is locked for a dead one is known once
        // the view tells of its end. That is asked last, since it goes over every record.
        self.open.load(Ordering::Relaxed) == 0
            && self.are_read(&self.logs)
            && self.are_read(&self.messages)
            && self.has_released()
    }

    fn audit(&self) -> Audit {
        let own = self.shard.map(|shard| (shard, self.primary.replica.digest()));
        let mut digests: Vec<_> = own.into_iter().collect();
        digests.extend(self.backups.iter().map(|(shard, replica)| (shard, replica.digest())));
        let keys_awaiting_recovery = self.awaiting_recovery();
        let locks = self.primary.locked_count() - keys_awaiting_recovery.len();
        Audit {
            leaks: vec![("locks", locks as u64)],
            awaiting_recovery: vec![("locks", keys_awaiting_recovery.len() as u64)],
            keys_awaiting_recovery,
            digests,
        }
    }

    fn counters(&self) -> Vec<Counter> {
        self.done_without().collect()
    }

    fn check(&self) {
        let replicas = std::iter::once(&self.primary.replica).chain(self.backups.values());
        let mut lines: Vec<_> = replicas.flat_map(Replica::check).collect();
        let addresses = self.addresses();
        lines.extend(addresses.slots.check());
        lines.extend(addresses.blocks.check());
        assert!(lines.is_empty(), "{:?}: {lines:#?}", self.id);
    }

    fn records(&self) -> u64 {
        self.primary.replica.len()
    }

    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool {
        match self.primary.get(key, value) {
            Ok(found) => found.present,
            Err(busy) => panic!("a quiet cluster's record is read: {busy}"),
        }
    }

    fn for_each(&self, each: &mut dyn FnMut(Key, &[u8])) {
        self.primary.replica.for_each(each);
    }

    fn for_each_of(&self, shard: ShardId, each: &mut dyn FnMut(Key, Version, &[u8])) {
        let own = (self.shard == Some(shard)).then_some(&self.primary.replica);
        if let Some(replica) = own.or_else(|| self.backup(shard)) {
            replica.for_each_version(each);
        }
    }
}

#[cfg(test)]
mod tests;
