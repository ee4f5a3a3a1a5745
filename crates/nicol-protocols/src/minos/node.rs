//! One node: its records, and what its engines share besides.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::engine::Revival;
use nicol_core::fabric::Fabric;
use nicol_core::ids::{Incarnation, Key, NodeId, ShardId, Side, Version};
use nicol_core::key_value::{KeyValueNode, Offered};
use nicol_core::records::RecordSource;
use nicol_core::system::{Audit, Counter, SystemNode};
use nicol_core::units::Nanos;
use nicol_core::view::{Role, ShardMap, View};

use super::client::Client;
use super::config::{Faithful, MinosConfig};
use super::member::Member;
use super::messages::{Inv, NO_SCOPE};
use super::queue::Queue;
use super::record::Record;
use super::recovery::apply_medium;
use super::relay::Relay;
use super::store::{Store, digest_of};
use super::timestamp::Timestamp;
use crate::kit::{Open, counters};

/// The group of counters by which figure 4 tells communication from computation. [MINOS24 IV]
pub const BREAKDOWN: &str = "breakdown";
/// Bits of a scope's name that number it; those above name the node and its life.
const SCOPE_BITS: u32 = 36;

/// The records of a shard as they are loaded, which all replicas share.
pub type Loaded = Arc<Vec<(Key, Box<[u8]>)>>;

/// It serves.
const READY: u8 = 0;
/// It has crashed, and what it had in memory is lost.
const LOST: u8 = 1;
/// It has come back.
const RECOVERED: u8 = 2;

/// A node of MINOS.
#[derive(Debug)]
pub struct Node {
    id: NodeId,
    view: View,
    config: MinosConfig,
    store: Store,
    /// What was loaded, which its log device has as well.
    loaded: Vec<Loaded>,
    /// Where it is between a crash and serving again.
    state: AtomicU8,
    volatile_queue: Queue,
    durable_queue: Queue,
    /// By scope that has not ended: its writes here.
    scopes: Mutex<BTreeMap<u64, Vec<(Key, Timestamp)>>>,
    scope_numbers: AtomicU64,
    /// Tasks under way.
    open: Arc<AtomicU64>,
    rejected: AtomicU64,
    breakdown: Breakdown,
}

/// Where the time of writes goes: sums over those that sent INVs, and over INVs handled.
#[derive(Debug, Default)]
struct Breakdown {
    exchanges: AtomicU64,
    exchange_ns: AtomicU64,
    handled: AtomicU64,
    handling_ns: AtomicU64,
}

impl Node {
    /// A task begins: until it ends, the node is not at rest.
    pub(super) fn begin(&self) -> Open {
        Open::begin(&self.open)
    }

    /// How it runs.
    pub fn config(&self) -> &MinosConfig {
        &self.config
    }

    pub(super) fn store(&self) -> &Store {
        &self.store
    }

    pub(super) fn volatile_queue(&self) -> &Queue {
        &self.volatile_queue
    }

    pub(super) fn durable_queue(&self) -> &Queue {
        &self.durable_queue
    }

    /// Has it every record, so that it may answer?
    pub(super) fn is_ready(&self) -> bool {
        self.state.load(Ordering::Acquire) != LOST
    }

    /// It has every record again.
    pub(super) fn serve_again(&self) {
        self.state.store(RECOVERED, Ordering::Release);
    }

    /// Takes what was loaded, where there is nothing newer.
    fn reload(&self) {
        for (key, value) in self.loaded.iter().flat_map(|shard| shard.iter()) {
            self.store.change(*key, |record| {
                if record.value_ts == Timestamp::NONE {
                    let ts = record.volatile_ts.max(Timestamp::LOADED);
                    record.update(Timestamp::LOADED, Some(value));
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

    /// Does `node` hold `key`?
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

    fn scopes(&self) -> MutexGuard<'_, BTreeMap<u64, Vec<(Key, Timestamp)>>> {
        self.scopes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A SmartNIC had no resources for a write.
    pub(super) fn count_rejected(&self) {
        self.rejected.fetch_add(1, Ordering::Relaxed);
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

    /// Without offloading a SmartNIC only passes on what is batched.
    fn start_relay<F: Fabric>(self: &Arc<Self>, fabric: &F) {
        if self.config.batching {
            Relay::start(fabric, self);
        }
    }

    /// Does this node hold `shard`?
    fn holds_shard(&self, shard: ShardId) -> bool {
        let is_server = self.view.role(self.id) == Some(Role::Server);
        is_server && (!self.config.sharded || self.view.replicas_of(shard).contains(&self.id))
    }
}

impl SystemNode for Node {
    type Config = MinosConfig;
    type Shard = Loaded;
    type Copies = (Store, Vec<Loaded>);

    const RECOVERS: bool = true;
    const RECOVERS_FROM_LOGS: bool = true;
    const FOLLOWS_VIEWS: bool = true;

    fn load(shard: ShardId, view: &View, _: &MinosConfig, source: &dyn RecordSource) -> Loaded {
        let mut records = Vec::new();
        source.load(view, shard, &mut |key, value| records.push((key, value.into())));
        Arc::new(records)
    }

    fn empty(_: &MinosConfig, _: &dyn RecordSource) -> Loaded {
        Loaded::default()
    }

    fn copy(
        id: NodeId,
        view: &View,
        config: &MinosConfig,
        _: &dyn RecordSource,
        shards: &[Loaded],
    ) -> (Store, Vec<Loaded>) {
        let (store, mut loaded) = (Store::new(), Vec::new());
        let holds = |shard: &ShardId| !config.sharded || view.replicas_of(*shard).contains(&id);
        if view.role(id) == Some(Role::Server) {
            for shard in view.shard_ids().filter(holds) {
                let records = &shards[usize::from(shard.0)];
                loaded.push(records.clone());
                let insert =
                    |(key, value): &(Key, Box<[u8]>)| store.insert(*key, Record::loaded(value));
                records.iter().for_each(insert);
            }
        }
        (store, loaded)
    }

    fn build(
        id: NodeId,
        view: &View,
        config: &MinosConfig,
        _: Loaded,
        (store, loaded): (Store, Vec<Loaded>),
    ) -> Self {
        Self {
            id,
            view: view.clone(),
            store,
            loaded,
            state: AtomicU8::new(READY),
            volatile_queue: Queue::new(config.queue_entries),
            durable_queue: Queue::new(config.queue_entries),
            config: config.clone(),
            scopes: Mutex::default(),
            scope_numbers: AtomicU64::new(0),
            open: Arc::default(),
            rejected: AtomicU64::new(0),
            breakdown: Breakdown::default(),
        }
    }

    fn crashed(&self) {
        self.state.store(LOST, Ordering::Release);
        self.store.lose();
        self.volatile_queue.lose();
        self.durable_queue.lose();
        self.scopes().clear();
    }

    fn restart_from<F: Fabric>(self: &Arc<Self>, fabric: &F, revival: &Revival<'_>) {
        let here = fabric.here();
        if self.view.role(self.id) != Some(Role::Server) {
            return;
        }
        if here.side == Side::Nic && !self.config.offload {
            return self.start_relay(fabric);
        }
        let member = Member::start(fabric, self);
        if (here.side, here.core) == (Side::Host, 0) {
            self.reload();
            apply_medium(self, revival);
            fabric.spawn(member.recover(!revival.memory_is_durable));
        }
    }

    fn has_recovered(&self) -> bool {
        self.state.load(Ordering::Acquire) == RECOVERED
    }

    fn is_settled(&self) -> bool {
        self.open.load(Ordering::Relaxed) == 0 && self.store.rd_locks() == 0
    }

    fn audit(&self) -> Audit {
        let mut digests: BTreeMap<ShardId, u64> = self
            .view
            .shard_ids()
            .filter(|shard| self.holds_shard(*shard))
            .map(|s| (s, 0))
            .collect();
        self.store.for_each(|key, record| {
            if let Some(sum) = digests.get_mut(&self.view.shard_of(key)) {
                *sum = sum.wrapping_add(digest_of(key, record));
            }
        });
        Audit {
            leaks: vec![
                ("read_locks", self.store.rd_locks()),
                ("write_locks", self.store.wr_locks()),
            ],
            digests: digests.into_iter().collect(),
            ..Audit::default()
        }
    }

    fn counters(&self) -> Vec<Counter> {
        let Breakdown { exchanges, exchange_ns, handled, handling_ns } = &self.breakdown;
        let broken_down = [
            ("exchanges", exchanges),
            ("exchange_ns", exchange_ns),
            ("invs_handled", handled),
            ("handling_ns", handling_ns),
        ];
        let rejected = counters("smartnic", [("rejected", &self.rejected)]);
        rejected.chain(counters(BREAKDOWN, broken_down)).collect()
    }

    fn records(&self) -> u64 {
        let mut records = 0;
        self.for_each(&mut |_, _| records += 1);
        records
    }

    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool {
        value.clear();
        self.store.look(key, |record| {
            value.extend_from_slice(record.value.as_deref().unwrap_or_default());
            record.value.is_some()
        })
    }

    fn for_each(&self, each: &mut dyn FnMut(Key, &[u8])) {
        for shard in self.view.led_by(self.id) {
            self.for_each_of(shard, &mut |key, _, value| each(key, value));
        }
    }

    fn for_each_of(&self, shard: ShardId, each: &mut dyn FnMut(Key, Version, &[u8])) {
        if !self.holds_shard(shard) {
            return;
        }
        self.store.for_each(|key, record| {
            if let Some(value) =
                record.value.as_deref().filter(|_| self.view.shard_of(key) == shard)
            {
                each(key, record.value_ts.told(), value);
            }
        });
    }
}

impl KeyValueNode for Node {
    type Client<F: Fabric> = Client<F>;

    const OFFERED: Offered = Offered { inserts: true, deletes: true, scans: false };

    fn start<F: Fabric>(self: &Arc<Self>, fabric: &F) -> Option<Client<F>> {
        let side = fabric.here().side;
        if side == Side::Nic && !self.config.offload {
            self.start_relay(fabric);
            return None;
        }
        let member = Member::start(fabric, self);
        (side == Side::Host).then(|| Client::new(member))
    }
}
