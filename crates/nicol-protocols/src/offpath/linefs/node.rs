//! A node: its files, its log, and the memory that others write chunks to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, NodeId, RKey, ShardId, Side, Version};
use nicol_core::memory::{Access, Region};
use nicol_core::records::RecordSource;
use nicol_core::system::{Audit, Counter, SystemNode};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::{ShardMap, View};
use nicol_core::wire::Malformed;

use super::compress::packed_max;
use super::config::LineFsConfig;
use super::files::{Files, digest_of};
use super::messages::{Chunk, Keys, Slot};
use crate::kit::{LostNodes, Open, counters};

/// Names of a node's logs on its medium.
const LOG: u32 = 1;
const COPIES: u32 = 2;

/// What a node has counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Chunks of this node's log that the SoC replicated, and the host.
    pub(super) by_soc: AtomicU64,
    pub(super) by_host: AtomicU64,
    /// Chunks that were compressed, their bytes before and after.
    pub(super) packed_chunks: AtomicU64,
    raw_bytes: AtomicU64,
    packed_bytes: AtomicU64,
    /// Chunks that were handed over again.
    pub(super) repeated: AtomicU64,
    /// Chunks whose bytes were not those that were sent.
    pub(super) refused: AtomicU64,
    /// Time of the host's cores that another program took.
    elsewhere_ns: AtomicU64,
}

impl Counts {
    pub(super) fn packed(&self, raw: usize, packed: usize) {
        self.raw_bytes.fetch_add(raw as u64, Ordering::Relaxed);
        self.packed_bytes.fetch_add(packed as u64, Ordering::Relaxed);
    }

    pub(super) fn elsewhere(&self, span: Nanos) {
        self.elsewhere_ns.fetch_add(span.0, Ordering::Relaxed);
    }
}

/// A node.
pub struct Node {
    id: NodeId,
    config: LineFsConfig,
    lost: LostNodes,
    files: Mutex<Files>,
    /// Slots of the own host engines.
    log: Arc<Region>,
    log_key: Mutex<Option<RKey>>,
    /// By side: slots of every host engine of every node, and their key. What the host has in its own
    /// are the persistent copies; what comes to the SoC is packed.
    inboxes: [Arc<Region>; 2],
    inbox_keys: [Mutex<Option<RKey>>; 2],
    /// Host engines of the node that has most.
    engines: u64,
    /// Work that is not done.
    open: Arc<AtomicU64>,
    pub(super) counts: Counts,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

const fn place(side: Side) -> usize {
    match side {
        Side::Host => 0,
        Side::Nic => 1,
    }
}

impl Node {
    pub(super) const fn config(&self) -> &LineFsConfig {
        &self.config
    }

    pub(super) const fn lost(&self) -> &LostNodes {
        &self.lost
    }

    /// The files. No engine waits while it holds them.
    pub(super) fn files(&self) -> MutexGuard<'_, Files> {
        locked(&self.files)
    }

    pub(super) const fn log(&self) -> &Arc<Region> {
        &self.log
    }

    pub(super) const fn inbox(&self, side: Side) -> &Arc<Region> {
        &self.inboxes[place(side)]
    }

    /// Work begins.
    pub(super) fn begin(&self) -> Open {
        Open::begin(&self.open)
    }

    /// The primary of `key`.
    pub(super) fn primary_of(&self, key: Key) -> NodeId {
        let view = self.lost.loaded();
        view.primary(view.shard_of(key))
    }

    /// The backups of this node's shard, in the order of the chain.
    pub(super) fn backups(&self) -> Vec<NodeId> {
        let view = self.lost.loaded();
        view.led_by(self.id).next().map_or_else(Vec::new, |shard| view.backups(shard).collect())
    }

    /// Bytes of a slot: on the SoC chunks are packed, which may lengthen them.
    fn slot_bytes(&self, side: Side) -> u64 {
        match side {
            Side::Host => self.config.chunk.0.next_multiple_of(64),
            Side::Nic => packed_max(self.config.chunk.0).next_multiple_of(64),
        }
    }

    /// First byte of a slot in the own log.
    pub(super) fn offset_in_log(&self, slot: Slot) -> u64 {
        let number = u64::from(slot.core) * u64::from(self.config.slots) + u64::from(slot.slot);
        number * self.slot_bytes(Side::Host)
    }

    /// First byte of a slot in the memory of `side` that others write to: the same on every node.
    pub(super) fn place_of(&self, side: Side, slot: Slot) -> u64 {
        let log = u64::from(slot.node.0) * self.engines + u64::from(slot.core);
        let number = log * u64::from(self.config.slots) + u64::from(slot.slot);
        number * self.slot_bytes(side)
    }

    /// That a chunk names a slot that there is and fits into it.
    pub(super) fn check(&self, chunk: &Chunk) -> Result<(), Malformed> {
        let nodes = self.lost.loaded().nodes();
        let Slot { node, core, slot } = chunk.slot;
        let there = node.index() < nodes
            && u64::from(core) < self.engines
            && slot < self.config.slots
            && u64::from(chunk.raw) <= self.config.chunk.0
            && u64::from(chunk.len) <= self.slot_bytes(Side::Nic)
            && chunk.rest.iter().all(|backup| backup.index() < nodes);
        if there { Ok(()) } else { Err(Malformed { what: "a chunk's slot" }) }
    }

    pub(super) fn log_key(&self) -> Option<RKey> {
        *locked(&self.log_key)
    }

    pub(super) fn inbox_key(&self, side: Side) -> Option<RKey> {
        *locked(&self.inbox_keys[place(side)])
    }

    /// The keys of what others write to, once both sides have registered it.
    pub(super) fn keys(&self) -> Option<Keys> {
        let key = |side| self.inbox_key(side);
        Some(Keys { host: key(Side::Host)?, soc: key(Side::Nic)? })
    }

    /// Registers the memory of this engine's side, once.
    pub(super) fn register<F: Fabric>(&self, fabric: &F) {
        let side = fabric.here().side;
        locked(&self.inbox_keys[place(side)])
            .get_or_insert_with(|| fabric.register(self.inbox(side), Access::ReadWrite));
        if side == Side::Host {
            locked(&self.log_key).get_or_insert_with(|| fabric.register(&self.log, Access::Read));
        }
    }

    fn holds(&self, shard: ShardId) -> bool {
        self.lost.loaded().replicas_of(shard).contains(&self.id)
    }

    /// The shard that it leads.
    fn led(&self) -> Option<ShardId> {
        self.lost.loaded().led_by(self.id).next()
    }
}

impl SystemNode for Node {
    type Config = LineFsConfig;
    type Shard = Files;
    type Copies = Files;

    const FOLLOWS_VIEWS: bool = true;

    fn load(shard: ShardId, view: &View, _: &LineFsConfig, source: &dyn RecordSource) -> Files {
        let mut files = Files::default();
        source.load(view, shard, &mut |key, value| files.load(key, value));
        files
    }

    fn empty(_: &LineFsConfig, _: &dyn RecordSource) -> Files {
        Files::default()
    }

    fn copy(
        id: NodeId,
        view: &View,
        _: &LineFsConfig,
        _: &dyn RecordSource,
        shards: &[Files],
    ) -> Files {
        let mut files = Files::default();
        for shard in view.backed_up_by(id) {
            for (key, _, value) in shards[usize::from(shard.0)].blocks() {
                files.load(key, value);
            }
        }
        files
    }

    fn build(
        id: NodeId,
        view: &View,
        config: &LineFsConfig,
        mut own: Files,
        copies: Files,
    ) -> Self {
        for (key, _, value) in copies.blocks() {
            own.load(key, value);
        }
        let (nodes, engines) = (view.nodes() as u64, view.engines_most(Side::Host) as u64);
        let slots = engines * u64::from(config.slots);
        let host = config.chunk.0.next_multiple_of(64);
        let soc = packed_max(config.chunk.0).next_multiple_of(64);
        Self {
            id,
            config: config.clone(),
            lost: LostNodes::new(view),
            files: Mutex::new(own),
            log: Arc::new(Region::for_log(Bytes(slots * host), LOG)),
            log_key: Mutex::default(),
            inboxes: [
                Arc::new(Region::for_log(Bytes(nodes * slots * host), COPIES)),
                Arc::new(Region::new(Bytes(nodes * slots * soc))),
            ],
            inbox_keys: Default::default(),
            engines,
            open: Arc::default(),
            counts: Counts::default(),
        }
    }

    fn is_settled(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }

    fn audit(&self) -> Audit {
        let view = self.lost.loaded();
        let held = view.shard_ids().filter(|shard| self.holds(*shard));
        let mut digests: BTreeMap<ShardId, u64> = held.map(|shard| (shard, 0)).collect();
        for (key, version, value) in self.files().blocks() {
            if let Some(sum) = digests.get_mut(&view.shard_of(key)) {
                *sum = sum.wrapping_add(digest_of(key, version, value));
            }
        }
        Audit { digests: digests.into_iter().collect(), ..Audit::default() }
    }

    fn counters(&self) -> Vec<Counter> {
        let counts = &self.counts;
        let named = [
            ("chunks_by_soc", &counts.by_soc),
            ("chunks_by_host", &counts.by_host),
            ("packed_chunks", &counts.packed_chunks),
            ("raw_bytes", &counts.raw_bytes),
            ("packed_bytes", &counts.packed_bytes),
            ("repeated", &counts.repeated),
            ("refused", &counts.refused),
            ("elsewhere_ns", &counts.elsewhere_ns),
        ];
        counters("linefs", named).collect()
    }

    fn records(&self) -> u64 {
        let mut records = 0;
        self.for_each(&mut |_, _| records += 1);
        records
    }

    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool {
        value.clear();
        let files = self.files();
        let (_, found) = files.get(key);
        value.extend_from_slice(found.unwrap_or_default());
        found.is_some()
    }

    fn for_each(&self, each: &mut dyn FnMut(Key, &[u8])) {
        if let Some(shard) = self.led() {
            self.for_each_of(shard, &mut |key, _, value| each(key, value));
        }
    }

    fn for_each_of(&self, shard: ShardId, each: &mut dyn FnMut(Key, Version, &[u8])) {
        if !self.holds(shard) {
            return;
        }
        let view = self.lost.loaded();
        for (key, version, value) in self.files().blocks() {
            if view.shard_of(key) == shard {
                each(key, Version(version), value);
            }
        }
    }
}
