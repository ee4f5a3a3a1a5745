//! One node: its records, and what its engines share besides.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::ids::{EngineId, Incarnation, Key, NodeId, ShardId, Side};
use nicol_core::units::Nanos;
use nicol_core::view::{Role, ShardMap, View};
use nicol_kit::Open;

use super::config::{Faithful, MinosConfig};
use super::deletions::Deletions;
use super::messages::{Inv, NO_SCOPE};
use super::queue::{Queue, VolatileEntries};
use super::record::{Metadata, Record};
use super::store::Store;
use super::timestamp::Timestamp;
use super::value::{Recent, Value};

/// The group of counters by which figure 4 tells communication from computation. [MINOS24 IV]
pub const BREAKDOWN: &str = "breakdown";
/// Bits of a scope's name that number it; those above name the node and its life.
const SCOPE_BITS: u32 = 36;

/// A shard as it is loaded.
pub type Loaded = Arc<LoadedShard>;

/// The records of a shard as they are loaded. All replicas of the process share them.
#[derive(Debug, Default)]
pub struct LoadedShard {
    pub(super) records: Vec<(Key, Value)>,
    pub(super) recent: Recent,
}

/// It has every record, and serves.
pub(super) const READY: u8 = 0;
/// Its host's life is over: whatever is left in memory, others have gone on.
pub(super) const LOST: u8 = 1;
/// It has come back.
pub(super) const RECOVERED: u8 = 2;
/// It has copied every record, and waits for locks: it does not serve yet, but replays what it has.
pub(super) const COPIED: u8 = 3;

/// A node of MINOS.
#[derive(Debug)]
pub struct Node {
    pub(super) id: NodeId,
    pub(super) view: View,
    pub(super) config: MinosConfig,
    pub(super) store: Store,
    /// The loaded records, which the log device has as well.
    pub(super) loaded: BTreeMap<ShardId, Loaded>,
    /// How far it has come between a crash and serving again.
    pub(super) state: AtomicU8,
    /// By engine, those of the host first: the epoch of the view that it knows.
    pub(super) epochs: Vec<AtomicU64>,
    pub(super) volatile_queue: Queue,
    pub(super) volatile_entries: VolatileEntries,
    pub(super) durable_queue: Queue,
    /// Whether both of its sides live.
    pub(super) is_whole: AtomicBool,
    /// Whether the previous life left the host's memory whole.
    pub(super) memory_kept: AtomicBool,
    /// By scope that has not ended: its writes here.
    pub(super) scopes: Mutex<BTreeMap<u64, Vec<(Key, Timestamp)>>>,
    pub(super) scope_numbers: AtomicU64,
    /// Tasks under way.
    pub(super) open: Arc<AtomicU64>,
    /// Updates of other nodes' writes that are on their way to the vFIFO or the host's memory.
    pub(super) updating: Arc<AtomicU64>,
    pub(super) rejected: AtomicU64,
    pub(super) breakdown: Breakdown,
    pub(super) shipping: Shipping,
    pub(super) deletions: Deletions,
}

/// Records that this node has shipped to others that came back.
#[derive(Debug, Default)]
pub(super) struct Shipping {
    /// Records whose timestamps it has compared with its own.
    pub(super) compared: AtomicU64,
    /// Records that it has shipped.
    pub(super) shipped: AtomicU64,
}

/// The time of writes by part: sums over those that sent INVs, and over INVs handled.
#[derive(Debug, Default)]
pub(super) struct Breakdown {
    pub(super) exchanges: AtomicU64,
    pub(super) exchange_ns: AtomicU64,
    pub(super) handled: AtomicU64,
    pub(super) handling_ns: AtomicU64,
}

impl Node {
    /// A task begins: until it ends, the node is not at rest.
    pub(super) fn begin(&self) -> Open {
        Open::begin(&self.open)
    }

    /// An update of another node's write is on its way into this one's memory, until the result is
    /// dropped.
    pub(super) fn begin_update(&self) -> Open {
        Open::begin(&self.updating)
    }

    /// Whether no update of another node's write is on its way into this node's memory.
    pub(super) fn has_settled(&self) -> bool {
        self.updating.load(Ordering::Acquire) == 0 && self.volatile_entries.is_empty()
    }

    pub fn config(&self) -> &MinosConfig {
        &self.config
    }

    /// The metadata of the record of `key`, for checks.
    pub fn metadata(&self, key: Key) -> Metadata {
        self.store.look(key, Record::metadata)
    }

    /// Deletions whose records wait to be forgotten.
    pub(super) fn deletions(&self) -> &Deletions {
        &self.deletions
    }

    /// A write of `key` begins to be coordinated or followed here.
    pub(super) fn enters(&self, key: Key) {
        if self.config.forgets {
            self.store.enter(key);
        }
    }

    /// It ends.
    pub(super) fn leaves(&self, key: Key) {
        if self.config.forgets {
            self.store.leave(key);
        }
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    pub(super) fn volatile_queue(&self) -> &Queue {
        &self.volatile_queue
    }

    pub(super) fn volatile_entries(&self) -> &VolatileEntries {
        &self.volatile_entries
    }

    pub(super) fn durable_queue(&self) -> &Queue {
        &self.durable_queue
    }

    /// Whether it has every record, so that it may answer.
    pub(super) fn is_ready(&self) -> bool {
        matches!(self.state.load(Ordering::Acquire), READY | RECOVERED)
    }

    /// Whether it has every record, so that it may replay the writes of dead coordinators.
    pub(super) fn may_replay(&self) -> bool {
        self.state.load(Ordering::Acquire) != LOST
    }

    /// It has every record, of which some are locked.
    pub(super) fn has_copied(&self) {
        self.state.store(COPIED, Ordering::Release);
    }

    /// An engine knows the view of `epoch`.
    pub(super) fn note_epoch(&self, engine: EngineId, epoch: u64) {
        self.epochs[self.place_of(engine)].fetch_max(epoch, Ordering::AcqRel);
    }

    /// Whether every engine of the algorithms knows the view of `epoch`, or a later one.
    pub(super) fn knows_epoch(&self, epoch: u64) -> bool {
        let hosts = self.view.engines(self.id, Side::Host);
        let running = if self.config.offload { self.epochs.len() } else { hosts };
        self.epochs[..running].iter().all(|known| known.load(Ordering::Acquire) >= epoch)
    }

    fn place_of(&self, engine: EngineId) -> usize {
        let core = usize::from(engine.core);
        match engine.side {
            Side::Host => core,
            Side::Nic => self.view.engines(self.id, Side::Host) + core,
        }
    }

    /// Whether the previous life left the host's memory whole.
    pub(super) fn keeps_memory(&self) -> bool {
        self.memory_kept.load(Ordering::Acquire)
    }

    /// It has every record again.
    pub(super) fn serve_again(&self) {
        self.state.store(RECOVERED, Ordering::Release);
    }

    /// The values that the replicas of this record's shard were sent last.
    pub(super) fn recent(&self, key: Key) -> Option<&Recent> {
        self.loaded.get(&self.view.shard_of(key)).map(|shard| &shard.recent)
    }

    /// Takes what was loaded, where there is nothing newer.
    pub(super) fn reload(&self) {
        for (key, value) in self.loaded.values().flat_map(|shard| &shard.records) {
            self.store.change(*key, |record| {
                if record.value_ts == Timestamp::NONE {
                    let ts = record.volatile_ts.max(Timestamp::LOADED);
                    record.update(Timestamp::LOADED, Some(value.clone()));
                    record.volatile_ts = ts;
                    for known in [
                        &mut record.durable_ts,
                        &mut record.glb_volatile_ts,
                        &mut record.glb_durable_ts,
                    ] {
                        *known = (*known).max(Timestamp::LOADED);
                    }
                }
            });
        }
    }

    /// Whether `node` holds `key`.
    pub(super) fn holds(&self, view: &View, node: NodeId, key: Key) -> bool {
        !self.config.sharded || view.replicas_of(view.shard_of(key)).contains(&node)
    }

    /// A scope that nobody has had.
    pub(super) fn next_scope(&self, life: Incarnation) -> u64 {
        let number = 1 + self.scope_numbers.fetch_add(1, Ordering::Relaxed);
        assert!(number >> SCOPE_BITS == 0, "a node has 2^36 scopes in a life");
        (u64::from(self.id.0) << 12 | u64::from(life.0)) << SCOPE_BITS | number
    }

    /// The update of `inv` is here: if it belongs to a scope, its end waits for it.
    pub(super) fn note_scope(&self, inv: &Inv<'_>) {
        if inv.scope != NO_SCOPE {
            self.scopes().entry(inv.scope).or_default().push((inv.key, inv.ts));
        }
    }

    /// The write of `inv` is obsolete here: the end of its scope waits for what made it so. AMB-18
    pub(super) fn note_obsolete(&self, inv: &Inv<'_>) {
        if self.config.errata.scopes == Faithful::Fixed {
            self.note_scope(inv);
        }
    }

    /// The writes of a scope that are here.
    pub(super) fn writes_of(&self, scope: u64) -> Vec<(Key, Timestamp)> {
        self.scopes().get(&scope).cloned().unwrap_or_default()
    }

    /// A scope has ended.
    pub(super) fn end_scope(&self, scope: u64) {
        self.scopes().remove(&scope);
    }

    pub(super) fn scopes(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<(Key, Timestamp)>>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A SmartNIC had no resources for a write.
    pub(super) fn count_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
    }

    /// This node has compared so many timestamps of another one, and shipped so many records.
    pub(super) fn note_shipped(&self, compared: usize, shipped: usize) {
        self.shipping.compared.fetch_add(compared as u64, Ordering::Relaxed);
        self.shipping.shipped.fetch_add(shipped as u64, Ordering::Relaxed);
    }

    /// A write has returned so long after its first INV as its last ACK that it waits for.
    pub(super) fn note_exchange(&self, took: Nanos) {
        self.breakdown.exchanges.fetch_add(1, Ordering::Relaxed);
        self.breakdown.exchange_ns.fetch_add(took.0, Ordering::Relaxed);
    }

    /// An INV was acknowledged so long after it came.
    pub(super) fn note_handling(&self, took: Nanos) {
        self.breakdown.handled.fetch_add(1, Ordering::Relaxed);
        self.breakdown.handling_ns.fetch_add(took.0, Ordering::Relaxed);
    }

    /// Whether this node holds `shard`.
    pub(super) fn holds_shard(&self, shard: ShardId) -> bool {
        let is_server = self.view.role(self.id) == Some(Role::Server);
        is_server && (!self.config.sharded || self.view.replicas_of(shard).contains(&self.id))
    }
}
