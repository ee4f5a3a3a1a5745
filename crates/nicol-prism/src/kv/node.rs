//! A node of PRISM-KV: as a server its memory and its daemon, as a client its engines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, NodeId, ShardId, Version};
use nicol_core::system::{
    Audit, Counter, NodeMemory, NodeState, Opening, Origin, SystemNode, TooSmall, load_records,
};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::View;
use nicol_kit::{LostNodes, counters};

use super::config::KvConfig;
use super::name::Name;
use super::store::Store;
use crate::pool::BufferPool;
use crate::recycling::{Recycled, Recycles, Recycling};

/// Counters of a node.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// READs of slots beyond a search's first.
    pub(super) collisions: AtomicU64,
    /// Searches that found no place for a key.
    pub(super) no_slot: AtomicU64,
    /// CASes that did not hold.
    pub(super) failed_swaps: AtomicU64,
    /// Slots that another key has left, and a key has got.
    pub(super) reused_slots: AtomicU64,
}

/// A node of PRISM-KV: a server, a client, or both.
pub struct Node {
    id: NodeId,
    config: KvConfig,
    lost: LostNodes,
    /// The memory of a server.
    store: Option<Store>,
    /// Reports and scans that its engines have not finished.
    pub(super) open: Arc<AtomicU64>,
    pub(super) recycled: Recycled,
    pub(super) counts: Counts,
    /// Slots of deleted keys that the last scan has found.
    pub(super) deleted_slots: Mutex<Vec<u64>>,
}

impl Node {
    pub(super) const fn config(&self) -> &KvConfig {
        &self.config
    }

    /// The view under which everything was loaded.
    pub(super) fn view(&self) -> &View {
        self.lost.loaded()
    }

    pub(super) const fn lost(&self) -> &LostNodes {
        &self.lost
    }

    pub(super) const fn store(&self) -> Option<&Store> {
        self.store.as_ref()
    }

    /// The server of `name`.
    pub(super) fn server_of(&self, name: Name<'_>) -> NodeId {
        self.view().primary(name.shard(self.view()))
    }
}

impl Recycles for Node {
    fn recycling(&self) -> Recycling {
        self.config.recycling
    }

    fn recycled(&self) -> &Recycled {
        &self.recycled
    }

    fn open(&self) -> &Arc<AtomicU64> {
        &self.open
    }

    fn with_pool(&self, look: &mut dyn FnMut(&BufferPool)) {
        self.store.iter().for_each(|store| look(&store.pool));
    }

    async fn scan<F: Fabric>(&self, fabric: &F, after: Nanos) -> usize {
        let Some(store) = &self.store else { return 0 };
        let found = store.pool.scan(fabric, after).await;
        if self.config.reuses_slots() {
            let mut deleted = self.deleted_slots.lock().unwrap_or_else(PoisonError::into_inner);
            deleted.clear();
            deleted.extend(store.deleted());
        }
        found
    }
}

impl SystemNode for Node {
    type Config = KvConfig;

    type Shard = Store;

    /// Servers go on; the shard of a lost server is refused.
    const FOLLOWS_VIEWS: bool = true;

    fn load(from: &Origin<'_, KvConfig>, shard: ShardId) -> Result<Store, TooSmall> {
        let mut store = Store::new(from.config);
        load_records(from, shard, |key, value| store.load(key, value))?;
        Ok(store)
    }

    fn open(from: &Origin<'_, KvConfig>, id: NodeId, _: &[Store]) -> Opening<Self, Store> {
        let (config, lost) = (from.config.clone(), LostNodes::new(from.view));
        let (recycled, counts) = (Recycled::default(), Counts::default());
        let (open, deleted_slots) = (Arc::default(), Mutex::default());
        Box::new(move |store| Self {
            id,
            config,
            lost,
            store,
            open,
            recycled,
            counts,
            deleted_slots,
        })
    }
}

impl NodeState for Node {
    fn is_settled(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
            && (self.config.recycling.has_reports()
                || self.store.as_ref().is_none_or(|store| store.pool.is_clean()))
    }

    fn audit(&self) -> Audit {
        let Some(store) = &self.store else { return Audit::default() };
        let leaks =
            [("buffers", store.pool.unreferenced().len()), ("freed_items", store.pool.dangling())];
        let leaks = leaks.map(|(name, count)| (name, count as u64)).to_vec();
        Audit { leaks, ..Audit::default() }
    }

    fn counters(&self) -> Vec<Counter> {
        let Counts { collisions, no_slot, failed_swaps, reused_slots } = &self.counts;
        let named = [
            ("collisions", collisions),
            ("no_slot", no_slot),
            ("failed_swaps", failed_swaps),
            ("reused_slots", reused_slots),
        ];
        counters("prism_kv", named).chain(self.recycled.counters("prism_kv")).collect()
    }

    fn check(&self) {
        self.store.iter().for_each(Store::check);
    }

    fn memory(&self) -> Option<NodeMemory> {
        let tables = self.store.as_ref().map_or(Bytes(0), Store::used);
        Some(NodeMemory { tables, ..NodeMemory::default() })
    }

    fn is_full(&self) -> bool {
        self.counts.no_slot.load(Ordering::Relaxed) > 0
            || self.store.as_ref().is_some_and(|store| store.pool.is_short())
    }

    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool {
        let store = self.store.as_ref();
        store.is_some_and(|store| store.read(&key.0.to_be_bytes(), value))
    }

    /// Records with keys of another length than a workload's have no [`Key`]: they are left out.
    fn for_each(&self, each: &mut dyn FnMut(Key, &[u8])) {
        let Some(store) = &self.store else { return };
        store.for_each(&mut |_, item| {
            if let (Some(key), Some(value)) = (Name::of(item.key).key(), item.value) {
                each(key, value);
            }
        });
    }

    fn for_each_of(&self, shard: ShardId, each: &mut dyn FnMut(Key, Version, &[u8])) {
        if self.view().primary(shard) == self.id {
            self.for_each(&mut |key, value| each(key, Version(0), value));
        }
    }
}
