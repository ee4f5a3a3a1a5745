//! A node's memory of one life: its log, and what others write chunks to.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::fabric::Fabric;
use nicol_core::ids::{RKey, ShardId, Side};
use nicol_core::memory::{Access, Region};
use nicol_core::units::Bytes;
use nicol_core::view::{ShardMap, View};
use nicol_core::wire::Malformed;

use super::compress::packed_max;
use super::config::LineFsConfig;
use super::messages::{Chunk, Keys, Slot, Submit, Way};

/// Names of a node's logs on its medium.
const LOG: u32 = 1;
const COPIES: u32 = 2;

/// The memory of one life: the log, and the slots into which others write chunks.
pub(super) struct Memory {
    /// Slots of the own host engines.
    log: Arc<Region>,
    log_key: Mutex<Option<RKey>>,
    /// By side: slots of every host engine of every node, and their key. What the host has in its
    /// own are the persistent copies; what comes to the SoC is packed.
    inboxes: [Arc<Region>; 2],
    inbox_keys: [Mutex<Option<RKey>>; 2],
    nodes: usize,
    shards: u16,
    /// Host engines of the node that has most.
    engines: u64,
    slots: u8,
    /// Bytes of a chunk at most.
    chunk: Bytes,
    host_compresses: bool,
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

/// Bytes of a slot: where chunks are packed, that may lengthen them.
const fn slot_bytes(chunk: Bytes, packed: bool) -> u64 {
    let most = if packed { packed_max(chunk.0) } else { chunk.0 };
    most.next_multiple_of(64)
}

impl Memory {
    pub(super) fn new(config: &LineFsConfig, view: &View) -> Self {
        let (nodes, engines) = (view.nodes(), view.engines_most(Side::Host) as u64);
        let slots = engines * u64::from(config.slots);
        let host = slot_bytes(config.chunk, config.host_compresses);
        let soc = slot_bytes(config.chunk, true);
        let all = nodes as u64 * slots;
        Self {
            log: Arc::new(Region::for_log(Bytes(slots * host), LOG)),
            log_key: Mutex::default(),
            inboxes: [
                Arc::new(Region::for_log(Bytes(all * host), COPIES)),
                Arc::new(Region::new(Bytes(all * soc))),
            ],
            inbox_keys: Default::default(),
            nodes,
            shards: view.shards(),
            engines,
            slots: config.slots,
            chunk: config.chunk,
            host_compresses: config.host_compresses,
        }
    }

    pub(super) const fn log(&self) -> &Arc<Region> {
        &self.log
    }

    pub(super) const fn inbox(&self, side: Side) -> &Arc<Region> {
        &self.inboxes[place(side)]
    }

    fn slot_bytes(&self, side: Side) -> u64 {
        slot_bytes(self.chunk, side == Side::Nic || self.host_compresses)
    }

    /// First byte of a slot in the own log.
    pub(super) fn offset_in_log(&self, slot: Slot) -> u64 {
        let number = u64::from(slot.core) * u64::from(self.slots) + u64::from(slot.slot);
        number * self.slot_bytes(Side::Host)
    }

    /// First byte of a slot in the memory of `side` that others write to: the same on every node.
    pub(super) fn place_of(&self, side: Side, slot: Slot) -> u64 {
        let log = u64::from(slot.node.0) * self.engines + u64::from(slot.core);
        let number = log * u64::from(self.slots) + u64::from(slot.slot);
        number * self.slot_bytes(side)
    }

    /// That a chunk names a slot that there is and fits into it.
    pub(super) fn check(&self, chunk: &Chunk) -> Result<(), Malformed> {
        self.check_content(chunk.slot, chunk.raw, &chunk.way)?;
        let fits = u64::from(chunk.len) <= self.slot_bytes(Side::Nic);
        if fits { Ok(()) } else { Err(Malformed { what: "a chunk's length" }) }
    }

    /// The same of a chunk in a slot of the own log.
    pub(super) fn check_submit(&self, submit: &Submit) -> Result<(), Malformed> {
        self.check_content(submit.slot, submit.len, &submit.way)
    }

    fn check_content(&self, slot: Slot, raw: u32, way: &Way) -> Result<(), Malformed> {
        self.check_shard(way.shard)?;
        let Slot { node, core, slot } = slot;
        let there = node.index() < self.nodes
            && u64::from(core) < self.engines
            && slot < self.slots
            && u64::from(raw) <= self.chunk.0
            && way.rest.iter().all(|backup| backup.index() < self.nodes);
        if there { Ok(()) } else { Err(Malformed { what: "a chunk's slot" }) }
    }

    /// That there is such a shard.
    pub(super) fn check_shard(&self, shard: ShardId) -> Result<(), Malformed> {
        if shard.0 < self.shards { Ok(()) } else { Err(Malformed { what: "a shard's number" }) }
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
}
