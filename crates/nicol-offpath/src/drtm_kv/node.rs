//! A node of DrTM-KV: as a server its memory, as a client its engines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, NodeId, RKey, ShardId, Side, Version};
use nicol_core::memory::Access;
use nicol_core::steering::Decisions;
use nicol_core::system::{
    Audit, Counter, NodeState, Opening, Origin, SystemNode, TooSmall, load_records,
};
use nicol_core::view::ShardMap;
use nicol_kit::steering::Choice;
use nicol_kit::{LostNodes, Open, count, counters};

use super::config::{Alternative, DrtmKvConfig};
use super::layout::{BUCKET, Unfit, copy_stride, extent_bytes};
use super::messages::Keys;
use super::pace::Pace;
use super::table::Table;

/// Counters of a node.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Extents that were not what their entry meant, and were looked up again.
    stale: AtomicU64,
    /// Those of them of which half was what the entry meant.
    torn: AtomicU64,
    /// Buckets beyond the first of a chain that were read.
    pub(super) chained: AtomicU64,
    /// Gets that the SoC answered from the values that it keeps.
    pub(super) hits: AtomicU64,
    /// Gets that it answered with an address.
    pub(super) misses: AtomicU64,
}

impl Counts {
    pub(super) fn note(&self, unfit: Unfit) {
        count(&self.stale);
        if unfit == Unfit::Torn {
            count(&self.torn);
        }
    }
}

/// A node of DrTM-KV: a server, a client, or both.
pub struct Node {
    id: NodeId,
    config: DrtmKvConfig,
    lost: LostNodes,
    table: Option<Mutex<Table>>,
    /// The keys of index and values, once they are registered.
    index: Mutex<Option<RKey>>,
    values: Mutex<Option<RKey>>,
    kept: Mutex<Option<RKey>>,
    /// The way that its clients have found to be faster.
    choice: Option<Choice>,
    /// The expected latencies of READs, the first way, and of asking.
    pub(super) pace: Pace,
    /// Work of the server that is not done.
    open: Arc<AtomicU64>,
    pub(super) counts: Counts,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    pub(super) const fn config(&self) -> &DrtmKvConfig {
        &self.config
    }

    pub(super) const fn lost(&self) -> &LostNodes {
        &self.lost
    }

    /// The server of `key`.
    pub(super) fn server_of(&self, key: Key) -> NodeId {
        let view = self.lost.loaded();
        view.primary(view.shard_of(key))
    }

    /// The run-time choice of its clients between READs and asking, if it is on.
    pub(super) const fn choice(&self) -> Option<&Choice> {
        self.choice.as_ref()
    }

    /// Whether it is a server, with its memory in place.
    pub(super) const fn is_server(&self) -> bool {
        self.table.is_some()
    }

    /// The memory of a server. No engine waits while it holds it.
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        match &self.table {
            Some(table) => locked(table),
            None => panic!("only a node with memory serves"),
        }
    }

    /// Work begins at the server.
    pub(super) fn begin(&self) -> Open {
        Open::begin(&self.open)
    }

    /// The keys of a server's memory, once both sides have registered theirs.
    pub(super) fn keys(&self) -> Option<Keys> {
        let kept = *locked(&self.kept);
        if self.config.reads_kept() && kept.is_none() {
            return None;
        }
        Some(Keys { index: (*locked(&self.index))?, values: (*locked(&self.values))?, kept })
    }

    /// The first byte of a bucket in a copy of the index, the same on every server.
    pub(super) fn index_at(&self, bucket: u64, copy: u64) -> u64 {
        let buckets = self.config.buckets + self.config.spare_buckets;
        copy * copy_stride(buckets * BUCKET) + bucket * BUCKET
    }

    /// The same of a slot of what the SoC keeps.
    pub(super) fn kept_at(&self, slot: u32, copy: u64) -> u64 {
        let extent = extent_bytes(self.config.value_bytes);
        copy * copy_stride(self.config.kept_bytes()) + u64::from(slot) * extent
    }

    /// Registers what stands in the memory of this engine's side, once.
    pub(super) fn register<F: Fabric>(&self, fabric: &F) {
        let side = fabric.here().side;
        let index_side =
            if self.config.alternative.index_on_soc() { Side::Nic } else { Side::Host };
        if side == index_side {
            let region = self.table().index.clone();
            locked(&self.index).get_or_insert_with(|| fabric.register(&region, Access::Read));
        }
        if side == Side::Nic && self.config.reads_kept() {
            let region = self.table().kept.clone();
            locked(&self.kept).get_or_insert_with(|| fabric.register(&region, Access::Read));
        }
        if side == Side::Host {
            let region = self.table().values.clone();
            locked(&self.values).get_or_insert_with(|| fabric.register(&region, Access::Read));
        }
    }
}

impl SystemNode for Node {
    type Config = DrtmKvConfig;

    type Shard = Table;

    const FOLLOWS_VIEWS: bool = true;

    fn load(from: &Origin<'_, DrtmKvConfig>, shard: ShardId) -> Result<Table, TooSmall> {
        let what = "bucket, or place for a value,";
        let too_small = TooSmall { what, instead: "more spare_buckets or extents" };
        let mut table = Table::new(from.config);
        load_records(from, shard, |key, value| {
            table.load(key, value).then_some(()).ok_or(too_small)
        })?;
        Ok(table)
    }

    fn open(from: &Origin<'_, DrtmKvConfig>, id: NodeId, _: &[Table]) -> Opening<Self, Table> {
        let (config, lost) = (from.config.clone(), LostNodes::new(from.view));
        let both = config.alternative == Alternative::A4AndA5;
        let steering = config.steering.filter(|_| both);
        Box::new(move |table| Self {
            id,
            config,
            lost,
            table: table.map(Mutex::new),
            index: Mutex::default(),
            values: Mutex::default(),
            kept: Mutex::default(),
            choice: steering.map(Choice::new),
            pace: Pace::default(),
            open: Arc::default(),
            counts: Counts::default(),
        })
    }
}

impl NodeState for Node {
    fn is_settled(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0
    }

    fn audit(&self) -> Audit {
        let lost = if self.table.is_some() { self.table().lost() } else { 0 };
        Audit { leaks: vec![("extents", lost)], ..Audit::default() }
    }

    fn counters(&self) -> Vec<Counter> {
        let counts = &self.counts;
        let named = [
            ("stale", &counts.stale),
            ("torn", &counts.torn),
            ("chained", &counts.chained),
            ("hits", &counts.hits),
            ("misses", &counts.misses),
        ];
        let planner = self.choice.iter().flat_map(Choice::counters);
        counters("drtm-kv", named).chain(planner).collect()
    }

    fn decisions(&self) -> Option<Decisions> {
        Some(self.choice.as_ref()?.decisions(self.id, ["reads", "asks"]))
    }

    fn check(&self) {
        if self.table.is_some() {
            self.table().check();
        }
    }

    fn records(&self) -> u64 {
        if self.table.is_some() { self.table().keys().count() as u64 } else { 0 }
    }

    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool {
        value.clear();
        let found = self.table.is_some().then(|| self.table().get(key)).flatten();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        found.is_some()
    }

    fn for_each(&self, each: &mut dyn FnMut(Key, &[u8])) {
        if self.table.is_none() {
            return;
        }
        let table = self.table();
        for key in table.keys() {
            if let Some(value) = table.get(key) {
                each(key, &value);
            }
        }
    }

    fn for_each_of(&self, shard: ShardId, each: &mut dyn FnMut(Key, Version, &[u8])) {
        if self.lost.loaded().primary(shard) == self.id {
            self.for_each(&mut |key, value| each(key, Version(0), value));
        }
    }
}
