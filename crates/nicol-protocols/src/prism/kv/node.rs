//! A node of PRISM-KV: as a server its memory and its daemon, as a client its engines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::ids::{Key, NodeId, ShardId, Version};
use nicol_core::records::RecordSource;
use nicol_core::system::{Audit, Counter, SystemNode};
use nicol_core::view::View;

use super::config::{KvConfig, Reclaim};
use super::name::Name;
use super::store::Store;
use crate::kit::{LostNodes, counters};

/// What a node has counted.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Chains that found no buffer, and were tried again.
    pub(super) waits: AtomicU64,
    /// READs of slots beyond a search's first.
    pub(super) collisions: AtomicU64,
    /// CASes that did not hold.
    pub(super) failed_swaps: AtomicU64,
    /// Buffers that were posted again.
    pub(super) posted: AtomicU64,
    /// Scans of the index for what nobody has reported.
    pub(super) scans: AtomicU64,
}

/// A server's memory, loaded; nothing of a node for clients.
pub struct Shard(Option<Store>);

/// A node.
pub struct Node {
    id: NodeId,
    config: KvConfig,
    lost: LostNodes,
    /// The memory of a server.
    store: Option<Store>,
    /// What its engines have still to do: reports, scans.
    pub(super) open: Arc<AtomicU64>,
    pub(super) counts: Counts,
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

impl SystemNode for Node {
    type Config = KvConfig;
    type Shard = Shard;
    type Copies = ();

    /// What others hold they go on serving; a lost server's shard is refused.
    const FOLLOWS_VIEWS: bool = true;

    fn load(shard: ShardId, view: &View, config: &KvConfig, source: &dyn RecordSource) -> Shard {
        let mut store = Store::new(config);
        source.load(view, shard, &mut |key, value| store.load(key, value));
        Shard(Some(store))
    }

    fn empty(_: &KvConfig, _: &dyn RecordSource) -> Shard {
        Shard(None)
    }

    fn copy(_: NodeId, _: &View, _: &KvConfig, _: &dyn RecordSource, _: &[Shard]) {}

    fn build(id: NodeId, view: &View, config: &KvConfig, Shard(store): Shard, (): ()) -> Self {
        let (config, lost) = (config.clone(), LostNodes::new(view));
        Self { id, config, lost, store, open: Arc::default(), counts: Counts::default() }
    }

    fn is_settled(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
            && (self.config.reclaim == Reclaim::Reports
                || self.store.as_ref().is_none_or(|store| store.pool.is_clean()))
    }

    fn audit(&self) -> Audit {
        let Some(store) = &self.store else { return Audit::default() };
        let unreported = store.pool.unreferenced().len() as u64;
        // What a dead client has left nobody reports: the scan that finds it is asked for by others.
        let (leaked, awaiting) =
            if self.lost.are_any() { (0, unreported) } else { (unreported, 0) };
        Audit {
            leaks: vec![("buffers", leaked), ("freed_items", store.pool.dangling() as u64)],
            awaiting_recovery: vec![("buffers", awaiting)],
            ..Audit::default()
        }
    }

    fn counters(&self) -> Vec<Counter> {
        let Counts { waits, collisions, failed_swaps, posted, scans } = &self.counts;
        let named = [
            ("receiver_not_ready", waits),
            ("collisions", collisions),
            ("failed_swaps", failed_swaps),
            ("posted", posted),
            ("scans", scans),
        ];
        counters("prism_kv", named).collect()
    }

    fn check(&self) {
        self.store.iter().for_each(Store::check);
    }

    fn records(&self) -> u64 {
        let mut records = 0;
        self.for_each(&mut |_, _| records += 1);
        records
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
