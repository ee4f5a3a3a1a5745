//! A node of PRISM-TX: as a server its memory and its daemon, as a client its coordinators.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, NodeId, ShardId, Version};
use nicol_core::memory::BufferUse;
use nicol_core::system::{
    Audit, Counter, NodeState, Opening, Origin, SystemNode, TooSmall, load_records,
};
use nicol_core::units::Nanos;
use nicol_core::view::{Role, ShardMap};
use nicol_kit::{LostNodes, counters};

use super::config::{Staging, TxConfig};
use super::messages::StagedWrite;
use super::store::Store;
use crate::pool::BufferPool;
use crate::recycling::{Recycled, Recycles, Recycling};
use crate::tag::Tag;

/// Counters of a node.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// READs of slots beyond a search's first.
    pub(super) collisions: AtomicU64,
    /// Read validations that were not needed, because PR was later.
    pub(super) not_needed: AtomicU64,
    /// Keys whose C an abort has raised.
    pub(super) bumps: AtomicU64,
    /// Reads of C by which aborts have waited for earlier writes.
    pub(super) bump_waits: AtomicU64,
    /// Write checks that went unanswered, and that servers have told of.
    pub(super) resolved: AtomicU64,
    /// Chains of checks beyond the first that one round trip has sent to a server.
    pub(super) more_chains: AtomicU64,
    /// Round trips of checks beyond a transaction's first.
    pub(super) more_rounds: AtomicU64,
    /// Committed writes that a later one had overtaken.
    pub(super) overtaken: AtomicU64,
    /// Writes of dead clients that servers have installed, or given up.
    pub(super) recovered: AtomicU64,
}

/// A server's knowledge of transactions whose clients have died.
#[derive(Debug, Default)]
pub(super) struct Ended {
    /// Nodes of which no chain can stage anything here any more.
    pub(super) drained: BTreeSet<NodeId>,
    /// Transactions that it has ended, and whether they committed.
    pub(super) decided: BTreeMap<Tag, bool>,
}

/// The leftovers of transactions at a server.
#[derive(Default)]
struct Left {
    /// Keys that no transaction can read, and the PW of each.
    unreadable: Vec<(Key, Tag)>,
    /// Writes of transactions that were not reported complete.
    staged: Vec<StagedWrite>,
    /// Keys with a write whose client has died, and perhaps a server that knew of the transaction.
    undecided: BTreeSet<Key>,
}

impl Left {
    /// The keys of those that a server is to end.
    fn pending(&self) -> impl Iterator<Item = Key> {
        let unreadable = self.unreadable.iter().map(|(key, _)| *key);
        let all = unreadable.chain(self.staged.iter().map(|write| write.key));
        all.filter(|key| !self.undecided.contains(key))
    }

    /// Whether this buffer is of a write that nobody can decide.
    fn keeps(&self, buffer: &BufferUse) -> bool {
        let mut kept = self.staged.iter().filter(|write| self.undecided.contains(&write.key));
        kept.any(|write| write.offset == buffer.offset)
    }
}

/// A node of PRISM-TX: a server, a client, or both.
pub struct Node {
    id: NodeId,
    config: TxConfig,
    lost: LostNodes,
    /// The memory of a server.
    store: Option<Store>,
    ended: Mutex<Ended>,
    /// Aborts, reports and recoveries that its engines have not finished.
    pub(super) open: Arc<AtomicU64>,
    /// The value of the pool's `turned` when nothing was found left to do.
    clean_at: AtomicU64,
    pub(super) recycled: Recycled,
    pub(super) counts: Counts,
}

impl Node {
    pub(super) const fn id(&self) -> NodeId {
        self.id
    }

    pub(super) const fn config(&self) -> &TxConfig {
        &self.config
    }

    pub(super) const fn lost(&self) -> &LostNodes {
        &self.lost
    }

    /// Whether it is a server, with its memory in place.
    pub(super) const fn is_server(&self) -> bool {
        self.store.is_some()
    }

    /// The memory of a server.
    ///
    /// # Panics
    /// If it is none.
    pub(super) fn store(&self) -> &Store {
        match &self.store {
            Some(store) => store,
            None => panic!("only a node with memory serves"),
        }
    }

    pub(super) fn ended(&self) -> MutexGuard<'_, Ended> {
        self.ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shard of `key`, and its server.
    pub(super) fn server_of(&self, key: Key) -> (ShardId, NodeId) {
        let view = self.lost.loaded();
        let shard = view.shard_of(key);
        (shard, view.primary(shard))
    }

    /// The servers under which everything was loaded.
    pub(super) fn servers(&self) -> impl Iterator<Item = NodeId> {
        self.lost.loaded().nodes_of(Role::Server)
    }

    /// Whether a server has lost its data. Transactions that had writes there may stay undecided.
    pub(super) fn has_lost_server(&self) -> bool {
        self.lost.are_any() && self.servers().any(|server| self.lost.contain(server))
    }

    /// Whether a client of node `of` has chosen `ts`.
    pub(super) fn is_of(&self, ts: Tag, of: NodeId) -> bool {
        ts.writer().engine(self.lost.loaded()).is_some_and(|engine| engine.node == of)
    }

    /// Whether the transaction of `ts` may stay undecided for ever, because its client and a server
    /// are lost.
    pub(super) fn may_stay_undecided(&self, ts: Tag) -> bool {
        let client = || ts.writer().engine(self.lost.loaded());
        self.has_lost_server() && client().is_some_and(|engine| self.lost.contain(engine.node))
    }

    /// The leftovers of transactions here.
    fn left(&self) -> Left {
        let Some(store) = &self.store else { return Left::default() };
        let staged = match self.config.staging {
            Staging::AtPrepare => store.staged(|_| true),
            Staging::AtCommit => Vec::new(),
        };
        let unreadable = store.unreadable();
        // A write that is given up waits for the one before it, which may be one of these.
        let stuck = |ts: Tag| self.may_stay_undecided(ts);
        let of_staged = staged.iter().filter(|write| stuck(write.ts)).map(|write| write.key);
        let of_records = unreadable.iter().filter(|(_, pw)| stuck(*pw)).map(|(key, _)| *key);
        let undecided = of_staged.chain(of_records).collect();
        Left { unreadable, staged, undecided }
    }

    /// Whether no transaction of a dead client is here that a server will end. Once true it is
    /// remembered.
    fn is_clean(&self) -> bool {
        let turned = self.store.as_ref().map_or(0, |store| store.pool.turned());
        let known = self.clean_at.load(Ordering::Relaxed) == turned;
        let left = if known { Left::default() } else { self.left() };
        let clean = left.pending().next().is_none();
        if clean {
            self.clean_at.store(turned, Ordering::Relaxed);
        }
        clean
    }

    /// Whether buffers to which no pointer refers are kept for ever, since nobody can decide about
    /// them.
    fn keeps_undecided_alone(&self) -> bool {
        // The simulator asks at each event, and the rest goes over every slot and buffer.
        if !self.has_lost_server() {
            return false;
        }
        let left = self.left();
        let unreferenced = || self.store.iter().flat_map(|store| store.pool.unreferenced());
        !left.undecided.is_empty() && unreferenced().all(|buffer| left.keeps(&buffer))
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
        match &self.store {
            Some(store) => store.scan(fabric, after).await,
            None => 0,
        }
    }
}

impl SystemNode for Node {
    type Config = TxConfig;

    type Shard = Store;

    /// Servers go on; the shard of a lost server is refused.
    const FOLLOWS_VIEWS: bool = true;

    fn load(from: &Origin<'_, TxConfig>, shard: ShardId) -> Result<Store, TooSmall> {
        let mut store = Store::new(from.config);
        load_records(from, shard, |key, value| store.load(key, value))?;
        Ok(store)
    }

    fn open(from: &Origin<'_, TxConfig>, id: NodeId, _: &[Store]) -> Opening<Self, Store> {
        let (config, lost) = (from.config.clone(), LostNodes::new(from.view));
        Box::new(move |store| Self {
            id,
            config,
            lost,
            store,
            ended: Mutex::default(),
            open: Arc::default(),
            clean_at: AtomicU64::new(u64::MAX),
            recycled: Recycled::default(),
            counts: Counts::default(),
        })
    }
}

impl NodeState for Node {
    fn is_settled(&self) -> bool {
        // That a client has died, only a view tells: until then what it has left waits. It is asked
        // last, since it goes over every slot and buffer.
        let is_recycled = |store: &Store| store.pool.is_clean() || self.keeps_undecided_alone();
        self.open.load(Ordering::Relaxed) == 0
            && (self.config.recycling.has_reports() || self.store.as_ref().is_none_or(is_recycled))
            && self.is_clean()
    }

    fn audit(&self) -> Audit {
        let Some(store) = &self.store else { return Audit::default() };
        // What a client and a server that have both died leave, nobody can decide.
        let left = self.left();
        let Left { unreadable, staged, undecided } = &left;
        let awaits = [
            unreadable.iter().map(|(key, _)| undecided.contains(key)).collect(),
            staged.iter().map(|write| undecided.contains(&write.key)).collect(),
            store.pool.unreferenced().iter().map(|found| left.keeps(found)).collect::<Vec<bool>>(),
        ];
        let names = ["unreadable_records", "unfinished_writes", "buffers"];
        let count = |wanted: bool| {
            let of =
                |all: &Vec<bool>| all.iter().filter(|awaits| **awaits == wanted).count() as u64;
            names.into_iter().zip(awaits.iter().map(of)).collect::<Vec<_>>()
        };
        let mut leaks = count(false);
        leaks.push(("freed_items", store.pool.dangling() as u64));
        Audit {
            leaks,
            awaiting_recovery: count(true),
            keys_awaiting_recovery: undecided.iter().copied().collect(),
            ..Audit::default()
        }
    }

    fn counters(&self) -> Vec<Counter> {
        let Counts { collisions, not_needed, bumps, bump_waits, .. } = &self.counts;
        let Counts { resolved, overtaken, recovered, more_chains, more_rounds, .. } = &self.counts;
        let named = [
            ("collisions", collisions),
            ("not_needed", not_needed),
            ("bumps", bumps),
            ("bump_waits", bump_waits),
            ("more_chains", more_chains),
            ("more_rounds", more_rounds),
            ("resolved", resolved),
            ("overtaken", overtaken),
            ("recovered", recovered),
        ];
        counters("prism_tx", named).chain(self.recycled.counters("prism_tx")).collect()
    }

    fn check(&self) {
        self.store.iter().for_each(Store::check);
    }

    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool {
        self.store.as_ref().is_some_and(|store| store.read(key, value).is_some())
    }

    fn for_each(&self, each: &mut dyn FnMut(Key, &[u8])) {
        let Some(store) = &self.store else { return };
        store.for_each(&mut |stored| {
            if let Some(value) = stored.item.value {
                each(stored.item.key, value);
            }
        });
    }

    fn for_each_of(&self, shard: ShardId, each: &mut dyn FnMut(Key, Version, &[u8])) {
        let own = self.lost.loaded().primary(shard) == self.id;
        let Some(store) = self.store.as_ref().filter(|_| own) else { return };
        store.for_each(&mut |stored| {
            if let Some(value) = stored.item.value {
                each(stored.item.key, stored.item.ts.version(), value);
            }
        });
    }
}
