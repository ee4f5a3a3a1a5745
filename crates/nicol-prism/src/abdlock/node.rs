//! One node: a replica, or a client, or both.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use nicol_core::engine::Loss;
use nicol_core::fabric::Fabric;
use nicol_core::ids::{Incarnation, Key, NodeId, RKey, ShardId, Side, TableId};
use nicol_core::memory::{Access, Region};
use nicol_core::system::{Audit, NodeState, Opening, Origin, SystemNode, TooSmall};
use nicol_core::units::Bytes;
use nicol_core::view::{Halves, ShardMap, View};

use super::config::AbdlockConfig;
use crate::messages::Handles;
use crate::tag::{Name, Tag};

/// A node of ABDLOCK.
#[derive(Debug)]
pub struct Node {
    id: NodeId,
    view: View,
    config: AbdlockConfig,
    memory: Option<Memory>,
    rkey: OnceLock<RKey>,
    crashed: AtomicBool,
    open: Arc<AtomicU64>,
}

/// The blocks of a node, and the table whose rows number them.
#[derive(Debug)]
pub(super) struct Memory {
    region: Arc<Region>,
    table: TableId,
}

impl Node {
    pub fn config(&self) -> &AbdlockConfig {
        &self.config
    }

    pub(super) fn open(&self) -> &Arc<AtomicU64> {
        &self.open
    }

    /// The handles of this node's memory for clients; `None` unless it is a replica that has not
    /// crashed.
    pub(super) fn open_memory<F: Fabric>(&self, fabric: &F) -> Option<Handles> {
        let memory = self.memory()?;
        let rkey = || fabric.register(&memory.region, Access::ReadWrite);
        let region = *self.rkey.get_or_init(rkey);
        let lives = vec![Incarnation::FIRST; self.view.nodes()];
        Some(Handles { region, pointers: region, lists: Vec::new(), lives })
    }

    pub(super) fn memory(&self) -> Option<&Memory> {
        self.memory.as_ref().filter(|_| !self.crashed.load(Ordering::Relaxed))
    }

    /// The locks that are held here: the block, and the holder's word.
    fn locked(&self) -> impl Iterator<Item = (u64, u64)> {
        let region = self.memory().map(|memory| &memory.region);
        let lock = move |block| region.and_then(|region| region.load(self.config.lock(block)).ok());
        (0..self.config.blocks)
            .filter_map(move |block| Some((block, lock(block)?)))
            .filter(|(_, holder)| *holder != 0)
    }

    /// Releases what is held by lives that are over in `view`, of which nothing arrives any more.
    pub(super) fn release_locks_of_the_dead(&self, view: &View) {
        let Some(Memory { region, .. }) = self.memory() else { return };
        let gone = |holder: u64| Name(holder).writer().is_over_in(view);
        for (block, holder) in self.locked().filter(|(_, holder)| gone(*holder)) {
            // A holder that has released it meanwhile is not hurt: its name is never used again.
            let _released = region.compare_swap(self.config.lock(block), holder, 0);
        }
    }

    /// Calls `each` with every block of `shard` that is held here.
    fn each_of(&self, shard: ShardId, each: &mut dyn FnMut(Key, &[u8])) {
        let Some(Memory { region, table }) = self.memory() else { return };
        let mut bytes = vec![0; self.config.tagged_bytes() as usize];
        for key in (0..self.config.blocks).map(|block| Key::new(*table, block)) {
            let read = region.read(self.config.tag(key.row()), &mut bytes);
            if self.view.shard_of(key) == shard && read.is_ok() {
                each(key, &bytes[8..]);
            }
        }
    }
}

impl Memory {
    /// Loads what node `id` replicates; `None` for a node of clients.
    fn load(from: &Origin<'_, AbdlockConfig>, id: NodeId) -> Option<Self> {
        let config = from.config;
        let held =
            || from.view.shard_ids().filter(|&shard| from.view.replicas_of(shard).contains(&id));
        held().next()?;
        let region = Arc::new(Region::new(Bytes(config.blocks * config.stride())));
        let mut table = TableId(0);
        for shard in held() {
            from.source.load(from.view, shard, &mut |key, value| {
                table = key.table();
                let tag = config.tag(key.row());
                let stored = region.store(tag, Tag::LOADED.0);
                let stored = stored.and_then(|()| region.write(tag + 8, value));
                assert!(stored.is_ok(), "a block lies in its replica's region");
            });
        }
        Some(Self { region, table })
    }
}

impl SystemNode for Node {
    type Config = AbdlockConfig;

    /// Nothing: a node loads what it replicates by itself.
    type Shard = ();

    const REPLICAS_CONVERGE: bool = false;

    const FOLLOWS_VIEWS: bool = true;

    fn load(_: &Origin<'_, AbdlockConfig>, _: ShardId) -> Result<(), TooSmall> {
        Ok(())
    }

    fn open(from: &Origin<'_, AbdlockConfig>, id: NodeId, _: &[()]) -> Opening<Self, ()> {
        let node = Self {
            id,
            view: from.view.clone(),
            config: from.config.clone(),
            memory: Memory::load(from, id),
            rkey: OnceLock::new(),
            crashed: AtomicBool::new(false),
            open: Arc::default(),
        };
        Box::new(|_| node)
    }

    fn halves(config: &AbdlockConfig) -> Halves {
        config.verbs.halves()
    }
}

impl NodeState for Node {
    fn crashed(&self, loss: &Loss) {
        if [Side::Host, Side::Nic]
            .iter()
            .any(|&of| loss.of(of) && self.view.halves().are_lost_with(of))
        {
            self.crashed.store(true, Ordering::Relaxed);
        }
    }

    fn is_settled(&self) -> bool {
        // Of a dead client's locks the next view tells. That is asked last, since it goes over
        // every block.
        self.open.load(Ordering::Relaxed) == 0 && self.locked().next().is_none()
    }

    fn audit(&self) -> Audit {
        Audit { leaks: vec![("locks", self.locked().count() as u64)], ..Audit::default() }
    }

    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool {
        let Some(Memory { region, .. }) = self.memory() else { return false };
        value.resize(self.config.value_bytes as usize, 0);
        region.read(self.config.tag(key.row()) + 8, value).is_ok()
    }

    fn for_each(&self, each: &mut dyn FnMut(Key, &[u8])) {
        for shard in self.view.led_by(self.id) {
            self.each_of(shard, each);
        }
    }
}
