//! One node's memory: host tables, NIC index, logs. Shared by its engines.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use nicol_core::cluster::Layout;
use nicol_core::commit::{Audit, Member, Procedures};
use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, NodeId, ShardId, Side, TxnId, Version};
use nicol_core::workload::{ShardMap, Workload};
use nicol_store::host_table::{Advance, Geometry, HostTable, SlotHash};
use nicol_store::nic_index::{IndexConfig, IndexLookup, NicIndex};

use super::{Coordinator, Sabotage, XenicConfig, start};
use crate::commit::log::{LogMemory, RecordKind};

/// A node: primary of one shard, backup of others. [Xenic21 4]
#[derive(Debug)]
pub struct Node {
    id: NodeId,
    layout: Layout,
    config: XenicConfig,
    shard: ShardId,
    primary: HostTable,
    backups: BTreeMap<ShardId, HostTable>,
    index: NicIndex,
    logs: Vec<Arc<LogMemory>>,
    /// Per log: up to where it must be applied before the next deletions are forgotten.
    grace: Mutex<Vec<u64>>,
}

impl Node {
    /// Its id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// How it runs.
    pub fn config(&self) -> &XenicConfig {
        &self.config
    }

    /// The host table of its primary shard.
    pub fn primary(&self) -> &HostTable {
        &self.primary
    }

    pub(super) fn index(&self) -> &NicIndex {
        &self.index
    }

    pub(super) fn log(&self, core: u8) -> &Arc<LogMemory> {
        &self.logs[usize::from(core)]
    }

    /// The node that holds the primary of `key`.
    pub(super) fn primary_of(&self, key: Key) -> NodeId {
        self.layout.primary(self.layout.shard_of(key))
    }

    pub(super) fn is_primary_of(&self, key: Key) -> bool {
        self.layout.shard_of(key) == self.shard
    }

    pub(super) fn is_backup_of(&self, shard: ShardId) -> bool {
        self.backups.contains_key(&shard)
    }

    /// The index entry of `key`.
    pub(super) fn segment(&self, key: Key) -> u64 {
        SlotHash::of(key).base_segment(self.primary.geometry().segments())
    }

    /// Splits up to `segments` segments of each table that is doubling.
    pub(super) fn grow(&self, segments: u64) -> Advance {
        let mut done = Advance::default();
        for table in std::iter::once(&self.primary).chain(self.backups.values()) {
            let advance = table.advance(segments);
            done.segments += advance.segments;
            done.records += advance.records;
        }
        done
    }

    /// Is there room for one more record in the primary table?
    pub(super) fn has_room(&self) -> bool {
        self.primary.has_room()
    }

    /// The table that a record of the log belongs to.
    pub(super) fn table(&self, shard: ShardId, kind: RecordKind) -> &HostTable {
        match kind {
            RecordKind::Commit => &self.primary,
            RecordKind::Log => match self.backups.get(&shard) {
                Some(table) => table,
                None => panic!("{shard:?} was checked to be backed up here before it was logged"),
            },
        }
    }

    /// Lets the tables forget deletions that no older record can undo any more: those applied
    /// before everything that was in any log at that time has been applied.
    ///
    /// Cost: a look at two counters per log; nothing if another worker is at it.
    pub(super) fn forget_deletions(&self) {
        let Ok(mut grace) = self.grace.try_lock() else { return };
        let over = self.logs.iter().zip(&*grace).all(|(log, &until)| log.applied() >= until);
        if over {
            for table in std::iter::once(&self.primary).chain(self.backups.values()) {
                table.forget_old_deletions();
            }
            for (until, log) in grace.iter_mut().zip(&self.logs) {
                *until = log.reserved();
            }
        }
    }

    pub(super) fn lock(&self, key: Key, txn: TxnId) -> bool {
        self.index.lock(self.segment(key), key, txn).is_ok()
    }

    pub(super) fn unlock(&self, key: Key, txn: TxnId) -> bool {
        self.index.unlock(self.segment(key), key, txn)
    }

    pub(super) fn holder(&self, key: Key) -> Option<TxnId> {
        self.index.holder(self.segment(key), key)
    }

    pub(super) fn install(&self, key: Key, version: Version, value: Option<&[u8]>) {
        let mut version = version;
        if self.config.sabotage != Sabotage::None {
            // A broken protocol is for the checkers to find, not for the index's assertion.
            let found = self.index.lookup(self.segment(key), key, &mut Vec::new());
            if let IndexLookup::Hit { version: known, .. } = found {
                version = version.max(known.next());
            }
        }
        self.index.install(self.segment(key), key, version, value);
    }

    pub(super) fn unpin(&self, key: Key) {
        self.index.unpin(self.segment(key), key);
    }
}

impl Member for Node {
    type Config = XenicConfig;
    type Coordinator<F: Fabric> = Coordinator<F>;

    fn load(id: NodeId, layout: &Layout, config: &XenicConfig, workload: &dyn Workload) -> Self {
        let records = workload.records_per_shard() + workload.growth_per_shard();
        let geometry = Geometry::new(
            (records * config.slots_percent / 100).max(1_024),
            config.displacement_max,
            config.inline_value,
        );
        let load = |shard: ShardId| {
            let table = HostTable::new(geometry, records, config.growth);
            workload.load(layout, shard, &mut |key, value| table.load(key, value));
            table
        };
        let shard = ShardId(u16::from(id.0));
        let primary = load(shard);
        let backups = layout.backed_up_by(id).map(|shard| (shard, load(shard))).collect();
        let index = NicIndex::new(IndexConfig {
            segments: geometry.segments(),
            cached_objects_max: config.index_objects,
        });
        let nics = layout.engines(Side::Nic);
        Self {
            id,
            layout: layout.clone(),
            config: config.clone(),
            shard,
            primary,
            backups,
            index,
            logs: (0..nics).map(|_| Arc::new(LogMemory::new(config.log))).collect(),
            grace: Mutex::new(vec![0; nics]),
        }
    }

    fn start<F: Fabric>(
        self: &Arc<Self>,
        fabric: &F,
        procedures: &Procedures,
    ) -> Option<Coordinator<F>> {
        start(fabric, self, procedures)
    }

    fn is_settled(&self) -> bool {
        self.index.pinned_count() == 0
            && self.logs.iter().all(|log| log.is_settled())
            && self.index.locked_count() == 0
    }

    fn audit(&self) -> Audit {
        let mut digests = vec![(self.shard, self.primary.digest())];
        digests.extend(self.backups.iter().map(|(&shard, table)| (shard, table.digest())));
        Audit {
            leaked_locks: self.index.locked_count() as u64,
            pinned: self.index.pinned_count() as u64,
            records: self.primary.len(),
            digests,
        }
    }

    fn read(&self, key: Key, value: &mut Vec<u8>) -> bool {
        self.primary.get(key, value).present
    }
}
