//! A node of Pilaf: as a server its table, as a client its engines.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, NodeId, RKey, ShardId, Version};
use nicol_core::memory::Access;
use nicol_core::system::{
    Audit, Counter, NodeState, Opening, Origin, SystemNode, TooSmall, load_records,
};
use nicol_core::view::Halves;
use nicol_kit::{LostNodes, Open, counters};

use super::config::{PilafConfig, Reads};
use super::layout::Extent;
use super::table::Table;
use crate::kv::name::Name;

/// Counters of a node.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// READs that found an entry or an extent torn.
    pub(super) torn: AtomicU64,
    /// Items of other keys that searches met.
    pub(super) collisions: AtomicU64,
}

/// A node of Pilaf: a server, a client, or both.
pub struct Node {
    id: NodeId,
    config: PilafConfig,
    lost: LostNodes,
    table: Option<Mutex<Table>>,
    rkey: Mutex<Option<RKey>>,
    /// PUTs that the server has begun and not ended.
    open: Arc<AtomicU64>,
    pub(super) counts: Counts,
}

impl Node {
    pub(super) const fn config(&self) -> &PilafConfig {
        &self.config
    }

    pub(super) const fn lost(&self) -> &LostNodes {
        &self.lost
    }

    /// The server of `name`.
    pub(super) fn server_of(&self, name: Name<'_>) -> NodeId {
        let view = self.lost.loaded();
        view.primary(name.shard(view))
    }

    /// Whether it is a server, with its memory in place.
    pub(super) const fn is_server(&self) -> bool {
        self.table.is_some()
    }

    /// The table of a server. No engine waits while it holds it.
    pub(super) fn table(&self) -> MutexGuard<'_, Table> {
        match &self.table {
            Some(table) => table.lock().unwrap_or_else(PoisonError::into_inner),
            None => panic!("only a node with memory serves"),
        }
    }

    /// An operation of a client begins at the server.
    pub(super) fn begin(&self) -> Open {
        Open::begin(&self.open)
    }

    /// The key of a server's memory, which clients may read.
    pub(super) fn open<F: Fabric>(&self, fabric: &F) -> RKey {
        let rkey = &mut *self.rkey.lock().unwrap_or_else(PoisonError::into_inner);
        *rkey.get_or_insert_with(|| fabric.register(&self.table().region, Access::Read))
    }
}

impl SystemNode for Node {
    type Config = PilafConfig;

    type Shard = Table;

    const FOLLOWS_VIEWS: bool = true;

    fn halves(config: &PilafConfig) -> Halves {
        match config.reads {
            Reads::Verbs => Halves::HostAlone,
            // NIC engines execute the chains.
            Reads::Chains => Halves::Together,
        }
    }

    fn load(from: &Origin<'_, PilafConfig>, shard: ShardId) -> Result<Table, TooSmall> {
        let mut table = Table::new(from.config);
        load_records(from, shard, |key, value| {
            let key = key.0.to_be_bytes();
            let item = [&key, value].concat();
            let at = table.take(item.len());
            let at = at.ok_or(TooSmall { what: "extent", instead: "more extents" })?;
            let (crc, bytes) = (crc32c::crc32c(&item), key.len() as u32);
            let extent = Extent { at, key: bytes, value: value.len() as u32, crc };
            let written = table.region.write(at, &item).is_ok();
            let installed = written && table.install(&key, extent) == Ok(true);
            installed.then_some(()).ok_or(TooSmall { what: "slot", instead: "more entries" })
        })?;
        Ok(table)
    }

    fn open(from: &Origin<'_, PilafConfig>, id: NodeId, _: &[Table]) -> Opening<Self, Table> {
        let (config, lost, rkey) =
            (from.config.clone(), LostNodes::new(from.view), Mutex::default());
        let (open, counts) = (Arc::default(), Counts::default());
        Box::new(move |table| {
            let table = table.map(Mutex::new);
            Self { id, config, lost, table, rkey, open, counts }
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
        let named = [("torn", &self.counts.torn), ("collisions", &self.counts.collisions)];
        counters("pilaf", named).collect()
    }

    fn check(&self) {
        if self.table.is_some() {
            self.table().check();
        }
    }

    fn records(&self) -> u64 {
        let mut records = 0;
        self.for_each(&mut |_, _| records += 1);
        records
    }

    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool {
        value.clear();
        let found = self.table.is_some().then(|| self.table().get(&key.0.to_be_bytes())).flatten();
        value.extend_from_slice(found.as_deref().unwrap_or_default());
        found.is_some()
    }

    fn for_each(&self, each: &mut dyn FnMut(Key, &[u8])) {
        if self.table.is_none() {
            return;
        }
        self.table().for_each(&mut |key, value| {
            if let Some(key) = Name::of(key).key() {
                each(key, value);
            }
        });
    }

    fn for_each_of(&self, shard: ShardId, each: &mut dyn FnMut(Key, Version, &[u8])) {
        if self.lost.loaded().primary(shard) == self.id {
            self.for_each(&mut |key, value| each(key, Version(0), value));
        }
    }
}
