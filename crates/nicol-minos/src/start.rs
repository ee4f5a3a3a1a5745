//! How a node loads, starts and comes back.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use nicol_core::engine::{Loss, Revival};
use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, NodeId, ShardId, Side, Version};
use nicol_core::key_value::{KeyValueNode, Offered};
use nicol_core::system::{
    Audit, Counter, NodeMemory, NodeState, Opening, Origin, SystemNode, Taken, TooSmall,
};
use nicol_core::units::Bytes;
use nicol_core::view::{Halves, Role, ShardMap};
use nicol_kit::counters;

use super::broken;
use super::broken::front::Front;
use super::client::Client;
use super::config::{MinosConfig, WhenFull};
use super::deletions::Deletions;
use super::log::{LOG_SLOTS, Slots};
use super::member::Member;
use super::node::{
    BREAKDOWN, Breakdown, LOST, Loaded, LoadedShard, Node, READY, RECOVERED, Shipping,
};
use super::queue::{Queue, VolatileEntries};
use super::record::Record;
use super::recovery::{Recovery, apply_volatile_entries};
use super::relay::Relay;
use super::server::Server;
use super::store::{Store, digest_of};
use super::survivor::Survivor;
use super::tags::mark_restart;
use super::timestamp::Timestamp;
use super::value::{Recent, Value};

impl Node {
    /// The engines of these sides are gone, and their tasks.
    fn lives_end(&self, loss: &Loss) {
        self.is_whole.store(false, Ordering::Release);
        if loss.host {
            self.state.store(LOST, Ordering::Release);
        }
        if loss.nic {
            self.forget_users();
        }
        if loss.of(self.config.side()) {
            self.scopes().clear();
        }
    }

    fn forget_users(&self) {
        self.volatile_queue.forget_users();
        self.durable_queue.forget_users();
    }

    /// Without offloading a SmartNIC only passes on what is batched.
    fn start_relay<F: Fabric>(self: &Arc<Self>, fabric: &F) {
        if self.config.batching {
            Relay::start(fabric, self);
        }
    }
}

/// Starts an engine that runs the algorithms.
fn start_member<F: Fabric>(fabric: &F, node: &Arc<Node>) -> Rc<Member<F>> {
    let member = Member::new(fabric, node);
    let service = broken::server::service(Server::new(&member));
    assert!(fabric.serve(service), "an engine runs one system");
    Survivor::new(&member).watch_views();
    member
}

impl SystemNode for Node {
    type Config = MinosConfig;

    type Shard = Loaded;

    const RECOVERS: bool = true;

    const RECOVERS_FROM_LOGS: bool = true;

    const FOLLOWS_VIEWS: bool = true;

    /// A host reaches nobody without its NIC, and a NIC has nothing to serve without its host; but
    /// what either holds is there when both serve again.
    fn halves(config: &MinosConfig) -> Halves {
        broken::choices::halves(config)
    }

    fn load(from: &Origin<'_, MinosConfig>, shard: ShardId) -> Result<Loaded, TooSmall> {
        let mut records = Vec::new();
        from.source.load(from.view, shard, &mut |key, value| records.push((key, value.into())));
        Ok(Arc::new(LoadedShard { records, recent: Recent::default() }))
    }

    fn open(
        from: &Origin<'_, MinosConfig>,
        id: NodeId,
        shards: &[Loaded],
    ) -> Opening<Self, Loaded> {
        let Origin { view, config, source } = *from;
        let (store, mut loaded) = (Store::new(), BTreeMap::new());
        let holds = |shard: &ShardId| !config.sharded || view.replicas_of(*shard).contains(&id);
        if view.role(id) == Some(Role::Server) {
            let held = view.shard_ids().filter(holds).count() as u64;
            store.reserve(held * source.records_per_shard());
            for shard in view.shard_ids().filter(holds) {
                let copied = &shards[usize::from(shard.0)];
                loaded.insert(shard, copied.clone());
                let insert =
                    |(key, value): &(Key, Value)| store.insert(*key, Record::loaded(value.clone()));
                copied.records.iter().for_each(insert);
            }
        }
        let node = Self {
            id,
            view: view.clone(),
            store,
            loaded,
            state: AtomicU8::new(READY),
            epochs: [Side::Host, Side::Nic]
                .into_iter()
                .flat_map(|side| 0..view.engines(id, side))
                .map(|_| AtomicU64::new(0))
                .collect(),
            volatile_queue: Queue::new(config.queue_entries, config.when_full),
            volatile_entries: VolatileEntries::default(),
            is_whole: AtomicBool::new(true),
            memory_kept: AtomicBool::new(false),
            // Its requests have been let in already.
            durable_queue: Queue::new(config.queue_entries, WhenFull::Wait),
            config: config.clone(),
            scopes: Mutex::default(),
            scope_numbers: AtomicU64::new(0),
            open: Arc::default(),
            updating: Arc::default(),
            rejected: AtomicU64::new(0),
            breakdown: Breakdown::default(),
            shipping: Shipping::default(),
            deletions: Deletions::default(),
        };
        Box::new(|_| node)
    }

    fn restart_from<F: Fabric>(self: &Arc<Self>, fabric: &F, revival: &Revival<'_>) {
        let here = fabric.here();
        if self.view.role(self.id) != Some(Role::Server) {
            return;
        }
        if here.side == Side::Nic && !self.config.offload {
            return self.start_relay(fabric);
        }
        let member = start_member(fabric, self);
        if (here.side, here.core) == (Side::Host, 0) {
            self.is_whole.store(true, Ordering::Release);
            self.reload();
            broken::medium::apply(self, revival);
            apply_volatile_entries(self);
            mark_restart(fabric, self);
            fabric.spawn(Recovery::new(&member).run(!revival.memory_is_durable));
        }
    }
}

impl NodeState for Node {
    /// The records are the host's memory, and the vFIFO is the NIC's. What both keep coherent is
    /// worth nothing without either: whoever recovers begins with the values.
    fn crashed(&self, loss: &Loss) {
        if loss.host {
            self.store.lose();
        }
        if loss.nic {
            self.volatile_entries.lose(self.config.hooks().keeps_volatile_queue());
        }
        self.lives_end(loss);
        self.memory_kept.fetch_and(!loss.host, Ordering::AcqRel);
    }

    /// The values stay, and the vFIFO; the tasks that have held locks, or promised anything, are
    /// gone.
    fn ended(&self, loss: &Loss) {
        self.store.keep_values();
        self.memory_kept.fetch_or(loss.host, Ordering::AcqRel);
        self.lives_end(loss);
        // A host uses the dFIFO, too, and without its NIC in vain.
        self.forget_users();
    }

    fn has_recovered(&self) -> bool {
        self.state.load(Ordering::Acquire) == RECOVERED && self.is_whole.load(Ordering::Acquire)
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
            // A key that nobody has written has a record where somebody has read it; where records
            // are forgotten, nodes do so at different times.
            let written = record.value_ts != Timestamp::NONE
                && !(self.config.forgets && record.value.is_none());
            if let Some(sum) = digests.get_mut(&self.view.shard_of(key)).filter(|_| written) {
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
        let Shipping { compared, shipped } = &self.shipping;
        let shipping =
            counters("reinsertion", [("records_compared", compared), ("records_shipped", shipped)]);
        rejected.chain(counters(BREAKDOWN, broken_down)).chain(shipping).collect()
    }

    fn taken(&self) -> Vec<Taken> {
        let queues =
            [("vfifo_entries", &self.volatile_queue), ("dfifo_entries", &self.durable_queue)];
        let used = queues.into_iter().filter(|_| self.config.offload);
        used.filter_map(|(name, queue)| queue.taken(name)).collect()
    }

    fn memory(&self) -> Option<NodeMemory> {
        let offload = self.config.offload;
        // A host engine has a log; offloaded, so has a NIC engine, beside the dFIFO.
        let engines = |side| self.view.engines(self.id, side) as u64;
        let logs = engines(Side::Host) + if offload { 2 * engines(Side::Nic) } else { 0 };
        let logs = Bytes(logs * Slots::bytes(LOG_SLOTS, self.config.value_bytes).0);
        Some(NodeMemory { tables: self.store.bytes(), index: Bytes(0), logs })
    }

    fn is_full(&self) -> bool {
        self.config.memory.is_some_and(|limit| self.store.bytes() >= limit)
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
    type Client<F: Fabric> = Front<F>;

    const OFFERED: Offered = Offered { inserts: true, deletes: true, scans: false, sparse: true };

    fn start<F: Fabric>(self: &Arc<Self>, fabric: &F) -> Option<Front<F>> {
        let side = fabric.here().side;
        if side == Side::Nic && !self.config.offload {
            self.start_relay(fabric);
            return None;
        }
        let member = start_member(fabric, self);
        (side == Side::Host).then(|| Front::new(Client::new(member)))
    }
}

#[cfg(test)]
mod tests {
    use nicol_core::history::Persistency;
    use nicol_core::records::Empty;
    use nicol_core::view::View;

    use super::super::broken::Sabotage;
    use super::*;

    const KEY: Key = Key(0);

    /// A node with one record, which has been written, and one update more in its vFIFO.
    fn node() -> Node {
        let view = View::new(2, 2, 1, 1).unwrap();
        let config = MinosConfig::paper(Persistency::Event, true, 8);
        let source = Empty { capacity_per_shard: 0 };
        let from = Origin { view: &view, config: &config, source: &source };
        let node = Node::open(&from, NodeId(1), &[Loaded::default(), Loaded::default()])(None);
        let ts = |version| Timestamp::new(version, NodeId(0), nicol_core::ids::Incarnation::FIRST);
        node.store.insert(KEY, Record::loaded(b"loaded"[..].into()));
        node.store.change(KEY, |record| record.update(ts(1), Some(b"landed"[..].into())));
        node.store.change(KEY, |record| record.snatch_rd_lock(ts(2)));
        node.volatile_entries.fill(KEY, ts(2), Some(b"queued"[..].into()));
        node
    }

    fn value(node: &Node) -> Option<Vec<u8>> {
        node.store.look(KEY, |record| record.value.as_deref().map(<[u8]>::to_vec))
    }

    #[test]
    fn each_half_that_lives_keeps_what_it_holds() {
        let (host, nic) = (true, true);
        for (loss, landed, recovered) in [
            ((!host, nic), Some(&b"landed"[..]), Some(&b"landed"[..])),
            ((host, !nic), None, Some(b"queued")),
            ((host, nic), None, None),
        ] {
            let node = node();
            let loss = Loss { node: NodeId(1), host: loss.0, nic: loss.1 };
            node.crashed(&loss);
            assert_eq!(value(&node).as_deref(), landed, "{loss:?}");
            // The half that lives begins anew with the other.
            node.ended(&Loss { host: !loss.host, nic: !loss.nic, ..loss });
            assert!(!node.has_recovered() && node.store.rd_locks() == 0);
            apply_volatile_entries(&node);
            assert_eq!(value(&node).as_deref(), recovered, "{loss:?}");
        }
        let given_up = node();
        given_up.ended(&Loss { node: NodeId(1), host, nic });
        apply_volatile_entries(&given_up);
        assert_eq!(value(&given_up).as_deref(), Some(&b"queued"[..]));
    }

    #[test]
    #[should_panic(expected = "a vFIFO is lost with its NIC")]
    fn a_volatile_queue_that_outlives_its_nic_is_noticed() {
        let mut node = node();
        node.config.sabotage = Sabotage::KeepsVolatileQueue;
        node.crashed(&Loss { node: NodeId(1), host: false, nic: true });
        apply_volatile_entries(&node);
    }
}
