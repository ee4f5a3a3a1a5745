//! A node: its files and its memory.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::engine::Loss;
use nicol_core::fabric::{Fabric, Local};
use nicol_core::ids::{Key, NodeId, ShardId, Side, Version};
use nicol_core::system::{Audit, Counter, NodeState, Opening, Origin, SystemNode, TooSmall};
use nicol_core::units::Nanos;
use nicol_core::view::{Role, ShardMap, View};
use nicol_kit::{Open, counters};

use super::broken::views::learn;
use super::config::LineFsConfig;
use super::files::{Files, digest_of};
use super::memory::Memory;
use super::saturation::SocLoad;
use super::standing::State;

/// Counters of a node.
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
    /// Blocks that were copied from a head, or by one that had lost them.
    copied: AtomicU64,
    /// Time of the host's cores that another program took.
    elsewhere_ns: AtomicU64,
    pub(super) times: Times,
}

/// The time of the chunks that a node has sent or taken, by part, summed up. Parts of a chunk
/// overlap, and so do chunks.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// The SoC fetches a chunk of its host.
    pub(super) fetch: AtomicU64,
    pub(super) pack: AtomicU64,
    /// It is written to the next node; before, it waits for others of the engine.
    pub(super) write: AtomicU64,
    /// The next node, and those behind it, acknowledge it.
    pub(super) acknowledge: AtomicU64,
    /// A backup decompresses it.
    pub(super) unpack: AtomicU64,
    /// Its SoC brings it to the host.
    pub(super) land: AtomicU64,
    pub(super) persist: AtomicU64,
    /// Its writes become readable.
    pub(super) publish: AtomicU64,
    /// On the primary from the moment on at which it was sealed until it is readable.
    pub(super) whole: AtomicU64,
}

/// Adds the time since `began`.
pub(super) fn add_time<F: Local>(time: &AtomicU64, fabric: &F, began: Nanos) {
    time.fetch_add(fabric.now().since(began).0, Ordering::Relaxed);
}

impl Counts {
    pub(super) fn packed(&self, raw: usize, packed: usize) {
        self.raw_bytes.fetch_add(raw as u64, Ordering::Relaxed);
        self.packed_bytes.fetch_add(packed as u64, Ordering::Relaxed);
    }

    pub(super) fn copied(&self, blocks: usize) {
        self.copied.fetch_add(blocks as u64, Ordering::Relaxed);
    }

    pub(super) fn elsewhere(&self, span: Nanos) {
        self.elsewhere_ns.fetch_add(span.0, Ordering::Relaxed);
    }
}

/// A node of LineFS: it holds files, has clients, or both.
pub struct Node {
    id: NodeId,
    config: LineFsConfig,
    /// Under which everything was loaded.
    loaded: View,
    state: Mutex<State>,
    memory: Mutex<Arc<Memory>>,
    /// Work that is not done.
    open: Arc<AtomicU64>,
    pub(super) counts: Counts,
    /// The SoC's share of the own log, where chunks go by that.
    pub(super) soc: SocLoad,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Node {
    pub(super) const fn config(&self) -> &LineFsConfig {
        &self.config
    }

    /// Its files, and what it is to each shard. No engine waits while it holds them.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        locked(&self.state)
    }

    /// Its memory of this life.
    pub(super) fn memory(&self) -> Arc<Memory> {
        locked(&self.memory).clone()
    }

    pub(super) fn begin(&self) -> Open {
        Open::begin(&self.open)
    }

    pub(super) fn shard_of(&self, key: Key) -> ShardId {
        self.loaded.shard_of(key)
    }

    /// Learns a view, as an engine of it has it: one of its own life has that as a member.
    pub(super) fn learn<F: Fabric>(&self, fabric: &F, view: &View) {
        let here = fabric.here();
        let own = view.side(here.node, here.side);
        if own.up && own.incarnation == fabric.incarnation() {
            learn(&mut self.state(), view, &self.config);
        }
    }

    fn holds(&self, shard: ShardId) -> bool {
        self.loaded.replicas_of(shard).contains(&self.id)
    }

    /// The shard that it led when everything was loaded.
    fn led(&self) -> Option<ShardId> {
        self.loaded.led_by(self.id).next()
    }
}

impl SystemNode for Node {
    type Config = LineFsConfig;

    type Shard = Files;

    const RECOVERS: bool = true;

    const FOLLOWS_VIEWS: bool = true;

    fn load(from: &Origin<'_, LineFsConfig>, shard: ShardId) -> Result<Files, TooSmall> {
        let mut files = Files::default();
        from.source.load(from.view, shard, &mut |key, value| files.load(key, value));
        Ok(files)
    }

    fn open(from: &Origin<'_, LineFsConfig>, id: NodeId, shards: &[Files]) -> Opening<Self, Files> {
        let mut copies = Files::default();
        for shard in from.view.backed_up_by(id) {
            for (key, _, value) in shards[usize::from(shard.0)].blocks() {
                copies.load(key, value);
            }
        }
        let (config, loaded) = (from.config.clone(), from.view.clone());
        Box::new(move |led| {
            let mut own = led.unwrap_or_default();
            for (key, _, value) in copies.blocks() {
                own.load(key, value);
            }
            Self {
                id,
                state: Mutex::new(State::loaded(id, &loaded, own, config.hooks())),
                memory: Mutex::new(Arc::new(Memory::new(&config, &loaded))),
                config,
                soc: SocLoad::new(loaded.engines(id, Side::Nic).max(1)),
                loaded,
                open: Arc::default(),
                counts: Counts::default(),
            }
        })
    }

    /// It copies what it is to hold, and is a backup then; its clients do not come back.
    fn restart<F: Fabric>(self: &Arc<Self>, fabric: &F) {
        if self.loaded.role(self.id) == Some(Role::Server) {
            let _has_no_clients = self.start_engine(fabric);
        }
    }
}

impl NodeState for Node {
    fn crashed(&self, _: &Loss) {
        self.state().lose();
        *locked(&self.memory) = Arc::new(Memory::new(&self.config, &self.loaded));
    }

    fn has_recovered(&self) -> bool {
        self.state().is_complete()
    }

    fn is_settled(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0 && self.state().is_settled()
    }

    fn audit(&self) -> Audit {
        let view = &self.loaded;
        let held = view.shard_ids().filter(|shard| self.holds(*shard));
        let mut digests: BTreeMap<ShardId, u64> = held.map(|shard| (shard, 0)).collect();
        for (key, version, value) in self.state().files.blocks() {
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
            ("copied_blocks", &counts.copied),
            ("elsewhere_ns", &counts.elsewhere_ns),
        ];
        let times = &counts.times;
        let timed = [
            ("fetch_ns", &times.fetch),
            ("pack_ns", &times.pack),
            ("write_ns", &times.write),
            ("acknowledge_ns", &times.acknowledge),
            ("unpack_ns", &times.unpack),
            ("land_ns", &times.land),
            ("persist_ns", &times.persist),
            ("publish_ns", &times.publish),
            ("whole_ns", &times.whole),
        ];
        counters("linefs", named).chain(counters("linefs_times", timed)).collect()
    }

    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool {
        value.clear();
        let state = self.state();
        let (_, found) = state.files.get(key);
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
        let view = &self.loaded;
        for (key, version, value) in self.state().files.blocks() {
            if view.shard_of(key) == shard {
                each(key, Version(version), value);
            }
        }
    }
}
