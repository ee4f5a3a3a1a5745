//! A node of an engine: the records that its cores share.

use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use nicol_core::ids::{Key, NodeId, ShardId, Side, Version};
use nicol_core::medium::MediumWrite;
use nicol_core::records::RecordSource;
use nicol_core::system::{
    Audit, Counter, NodeMemory, NodeState, Opening, Origin, ReadBack, SystemNode, TooSmall,
    load_records,
};
use nicol_core::units::{Bytes, Nanos};
use nicol_core::view::{ShardMap, View};
use nicol_core::wire::Malformed;
use nicol_kit::Recovered;
use nicol_schedule::{ScheduleConfig, Shared};
use nicol_store::multicore::{Line, Multicore};

use super::config::EngineConfig;
use super::log::NodeLog;
use super::record_form::RecordForm;
use super::recovery::Logs;

/// Tables that a key's highest byte may name.
const TABLES: usize = 256;

/// A node.
pub struct Node<P: RecordForm> {
    config: EngineConfig,
    store: Multicore,
    /// The scheduler of requests, if there is one.
    schedule: Option<Arc<Shared>>,
    /// How far the logs of its cores are durable, if there are any.
    log: Option<NodeLog>,
    /// Transactions under way, by core.
    open: Box<[Line<AtomicU32>]>,
    /// When the epoch moves on next, in nanoseconds; in a cache line of its own.
    epoch_due: Line<AtomicU64>,
    /// Transactions that have waited for a lock for ever.
    endless_waits: AtomicU64,
    protocol: PhantomData<P>,
}

impl<P: RecordForm> Node<P> {
    pub const fn config(&self) -> &EngineConfig {
        &self.config
    }

    /// The scheduler of requests, if there is one.
    pub(super) const fn schedule(&self) -> Option<&Arc<Shared>> {
        self.schedule.as_ref()
    }

    /// How far the logs of its cores are durable, if there are any.
    pub(super) const fn log(&self) -> Option<&NodeLog> {
        self.log.as_ref()
    }

    pub(super) const fn store(&self) -> &Multicore {
        &self.store
    }

    /// Notes how many transactions are under way on `core`.
    pub(super) fn set_open(&self, core: usize, transactions: u32) {
        self.open[core].0.store(transactions, Ordering::Relaxed);
    }

    /// True if it is time to move the epoch on. True for one core that asks; then it is not for a
    /// while.
    pub(super) fn takes_epoch_due(&self, now: Nanos) -> bool {
        let Line(due) = &self.epoch_due;
        let seen = due.load(Ordering::Relaxed);
        let next = (now + self.config.epoch).0;
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        now.0 >= seen && due.compare_exchange(seen, next, order.0, order.1).is_ok()
    }

    /// Notes that a transaction has waited longer than any holder of a lock takes.
    pub(super) fn gave_up_waiting(&self) {
        self.endless_waits.fetch_add(1, Ordering::Relaxed);
    }
}

/// The loaded records, and over them the transactions of durable epochs.
fn read_back(
    view: &View,
    source: &dyn RecordSource,
    media: &[(NodeId, Vec<MediumWrite>)],
) -> Result<ReadBack, Malformed> {
    let mut recovered = Recovered::loaded(view, source);
    for (node, writes) in media {
        let mut logs = Logs::new(view.engines(*node, Side::Host));
        // The device's checksums tell what is torn.
        let whole = writes.iter().filter(|write| write.intact);
        for write in whole {
            logs.note(&write.bytes)?;
        }
        logs.apply(&mut recovered)?;
    }
    Ok(recovered.into_owned())
}

/// The longest value that `source` loads of each table.
fn longest(source: &dyn RecordSource, shards: &dyn ShardMap, shard: ShardId) -> [usize; TABLES] {
    let mut longest = [0; TABLES];
    source.load(shards, shard, &mut |key, value| {
        let of_table: &mut usize = &mut longest[usize::from(key.table().0)];
        *of_table = value.len().max(*of_table);
    });
    longest
}

/// The error of a store that holds as many records as it can.
const NO_MEMORY: TooSmall = TooSmall {
    what: "memory (an engine's store has 64 GiB)",
    instead: "fewer records or warehouses, or shorter values",
};

impl<P: RecordForm> SystemNode for Node<P> {
    type Config = EngineConfig;

    type Shard = Multicore;

    const REPLICAS_CONVERGE: bool = false;

    fn read_back(
        config: &EngineConfig,
        view: &View,
        source: &dyn RecordSource,
        media: &[(NodeId, Vec<MediumWrite>)],
    ) -> Option<Result<ReadBack, String>> {
        config.log.then(|| read_back(view, source, media).map_err(|error| error.to_string()))
    }

    fn load(from: &Origin<'_, EngineConfig>, shard: ShardId) -> Result<Multicore, TooSmall> {
        let Origin { view, config, source } = *from;
        let cores = view.engines(view.primary(shard), Side::Host);
        let longest = longest(source, view, shard);
        let store = Multicore::new(source, config.value_bytes, &longest, cores);
        let store = store.with_words_beside(P::BESIDE);
        load_records(from, shard, |key, value| {
            let located = store.locate(key, P::word).map_err(|_full| NO_MEMORY)?;
            P::load(&store, located.place, value);
            Ok(())
        })?;
        store.reserve(config.reserve.0);
        Ok(store)
    }

    fn open(
        from: &Origin<'_, EngineConfig>,
        id: NodeId,
        _: &[Multicore],
    ) -> Opening<Self, Multicore> {
        let (view, config) = (from.view, from.config.clone());
        let cores = view.engines(id, Side::Host);
        let server = view.engines(NodeId(0), Side::Host);
        let waiting = |schedule: &ScheduleConfig| schedule.waiting_longer(config.longest_wait());
        let schedule = config.schedule.as_ref().map(waiting);
        let schedule = Shared::of(schedule.as_ref(), &config.features, server, &config.transcripts);
        Box::new(move |store| Self {
            store: store.unwrap_or_else(|| {
                let nothing = nicol_core::records::Empty { capacity_per_shard: 0 };
                let store = Multicore::new(&nothing, config.value_bytes, &[0; TABLES], 1);
                store.with_words_beside(P::BESIDE)
            }),
            schedule,
            log: config.log.then(|| NodeLog::new(cores)),
            config,
            open: (0..cores).map(|_| Line::default()).collect(),
            epoch_due: Line::default(),
            endless_waits: AtomicU64::new(0),
            protocol: PhantomData,
        })
    }
}

impl<P: RecordForm> NodeState for Node<P> {
    fn is_settled(&self) -> bool {
        let answered = self.schedule.as_ref().is_none_or(|shared| shared.is_settled());
        self.open.iter().all(|core| core.0.load(Ordering::Relaxed) == 0) && answered
    }

    fn audit(&self) -> Audit {
        let mut locks = 0;
        let mut count = |held| locks += u64::from(held);
        self.store.for_each(&mut |record| count(P::is_held(&self.store, record)));
        let endless = self.endless_waits.load(Ordering::Relaxed);
        Audit { leaks: vec![("locks", locks), ("endless_waits", endless)], ..Audit::default() }
    }

    fn counters(&self) -> Vec<Counter> {
        let counter = |name, value| Counter { group: "records", name, value };
        let mut counters = vec![
            counter("present_or_watched", self.store.records()),
            counter("places_used", self.store.places()),
        ];
        counters.extend(self.schedule.iter().flat_map(|shared| shared.counters()));
        counters
    }

    fn memory(&self) -> Option<NodeMemory> {
        let (records, indexes) = self.store.bytes();
        Some(NodeMemory { tables: Bytes(records + indexes), ..NodeMemory::default() })
    }

    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool {
        value.clear();
        let found = self.store.find(key).map(|record| P::value(&self.store, record, value));
        found.is_some_and(|state| state.present)
    }

    fn for_each(&self, each: &mut dyn FnMut(Key, &[u8])) {
        let mut value = Vec::new();
        self.store.for_each(&mut |record| {
            value.clear();
            if P::value(&self.store, record, &mut value).present {
                each(record.key(), &value);
            }
        });
    }

    fn for_each_of(&self, _: ShardId, each: &mut dyn FnMut(Key, Version, &[u8])) {
        let mut value = Vec::new();
        self.store.for_each(&mut |record| {
            value.clear();
            let state = P::value(&self.store, record, &mut value);
            if state.present {
                each(record.key(), state.version, &value);
            }
        });
    }
}
