//! One node's memory: host tables, NIC index, logs. Shared by its engines.

mod begun;
mod counted;
mod grace;
pub(super) mod inherited;
mod inserts;
mod lives;
mod losses;
mod path;
mod recovering;
mod size;
mod state;
mod syncing;
pub(super) mod undecided;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::commit::CommitNode;
use nicol_core::engine::LostSides;
use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, NodeId, ShardId, Side, TxnId, Version};
use nicol_core::medium::MediumWrite;
use nicol_core::memory::Copies;
use nicol_core::records::RecordSource;
use nicol_core::system::{Opening, Origin, ReadBack, SystemNode, TooSmall};
use nicol_core::txn::{Abort, Entry, RangeVersion, Txn};
use nicol_core::view::{ShardMap, Succession, View};
use nicol_core::wire::Malformed;
use nicol_kit::KeyShards;
use nicol_kit::steering::Choice;
use nicol_schedule::Shared;
use nicol_store::high_water::HighWater;
use nicol_store::host_table::{Advance, ExhaustedSpace, HostTable, SlotHash};
use nicol_store::nic_index::{IndexLookup, NicIndex};
use nicol_store::ordered::WriteCounters;

use super::broken::choices::in_force;
use super::config::{ExecuteAt, Faithful, Recovery, XenicConfig};
use super::read_back::read_back;
use super::replica::Replica;
use super::server::lookup::stats::LookupCounters;
use crate::backups::Backups;
use crate::load_shard;
use crate::log::{LogMemory, RecordKind};
use crate::survivor::{Survival, Survivor, WithoutData};
use crate::tables::{ByTable, tables_of};
use begun::Begun;
use grace::Grace;
use inherited::Inherited;
pub(super) use inserts::OwnInserts;
use lives::Lives;
use losses::deny;
pub(super) use path::Path;
use recovering::Recovering;
use size::{empty, empty_log, indices_of, without_rows};
use syncing::Syncing;
use undecided::Undecided;

/// Segments that are split per record, while a table that has outgrown its slots is loaded.
const LOADING_SPLITS: u64 = 2;

/// A node: primary of one shard, or of none if it is for clients only, and backup of others, of
/// which it may come to lead some. [Xenic21 4]
#[derive(Debug)]
pub struct Node {
    id: NodeId,
    view: View,
    survival: Survival,
    begun: Begun,
    recovery: Recovering,
    inherited: Inherited,
    config: XenicConfig,
    lives: Lives,
    lost_sides: LostSides,
    schedule: Option<Arc<Shared>>,
    shard: Option<ShardId>,
    primary: Replica,
    /// Of a later life also what the node led at first.
    backups: Backups<Replica>,
    /// One for each table.
    indices: ByTable<NicIndex>,
    /// The NIC's side of the ordered tables.
    write_counters: WriteCounters,
    logs: Vec<Arc<LogMemory>>,
    /// Per NIC core.
    lookups: Vec<LookupCounters>,
    /// Per log, where nothing undecided is applied.
    undecided: Box<[Undecided]>,
    grace: Grace,
    paths: [AtomicU64; Path::COUNT],
    syncing: Syncing,
    /// Where execution logic has been faster, if that is planned at run time.
    choice: Option<Choice>,
}

impl Node {
    /// One with these replicas, whose NIC has an empty index.
    fn of(
        (id, view, config): (NodeId, View, XenicConfig),
        shard: Option<ShardId>,
        primary: Replica,
        (backups, inherited): (Backups<Replica>, Inherited),
        lives: Lives,
    ) -> Self {
        let (hosts, nics) = (view.engines(id, Side::Host), view.engines(id, Side::Nic));
        let schedule = config.schedule.as_ref();
        let choice = match config.execute_at {
            ExecuteAt::Planned(steering) => Some(Choice::new(steering)),
            ExecuteAt::Host | ExecuteAt::Annotation | ExecuteAt::Nic => None,
        };
        let waits = config.recovery == Recovery::Prepared;
        let undecided = (0..nics).filter(move |_| waits).map(|_| Undecided::default());
        Self {
            schedule: Shared::of(schedule, &config.features, hosts, &config.transcripts),
            choice,
            id,
            lives,
            lost_sides: LostSides::default(),
            survival: Survival::new(&view, config.hooks()),
            begun: Begun::new(&view, &config),
            recovery: Recovering::new(),
            inherited,
            shard,
            indices: indices_of(&primary, &config).map(|config| NicIndex::new(*config)),
            primary,
            backups,
            write_counters: WriteCounters::default(),
            logs: (0..nics).map(|_| Arc::new(empty_log(&config))).collect(),
            lookups: (0..nics).map(|_| LookupCounters::default()).collect(),
            undecided: undecided.collect(),
            grace: Grace::new(nics),
            paths: Default::default(),
            syncing: Syncing::new(&view, config.locks_until),
            config: in_force(config),
            view,
        }
    }

    /// Its next life: without data, as a replica of what it held at first.
    fn later_life(&self) -> Self {
        let (id, view, config) = (self.id, self.view.clone(), self.config.clone());
        let tables = self.lives.tables();
        let held = || view.led_by(id).chain(view.backed_up_by(id));
        let backups = Backups::of(held(), |_| empty(tables, &config));
        let (none, inherited) = (empty(&without_rows(tables), &config), Inherited::of(held()));
        let lives = Lives::later(tables.clone());
        Self::of((id, view.clone(), config), None, none, (backups, inherited), lives)
    }

    /// Its present life, as those see it who know the node.
    pub(super) fn newest(&self) -> &Self {
        let mut life = self;
        while let Some(next) = life.lives.next() {
            life = next;
        }
        life
    }

    /// Its present life, or the next one if that is over.
    fn life_after_loss(self: &Arc<Self>) -> Arc<Self> {
        let mut life = self.clone();
        while life.lost_sides.are_any() {
            let next = life.lives.next_or(|| Arc::new(life.later_life()));
            life = next;
        }
        life
    }

    /// How far it is in its life.
    pub(super) const fn lives(&self) -> &Lives {
        &self.lives
    }

    /// The records that it holds of `shard`.
    pub(super) fn held(&self, shard: ShardId) -> Option<&Replica> {
        let own = self.is_primary(shard).then_some(&self.primary);
        own.or_else(|| self.backups.get(shard))
    }

    /// How its coordinators choose where execution logic runs, if that is planned at run time.
    pub(super) const fn choice(&self) -> Option<&Choice> {
        self.choice.as_ref()
    }

    /// Which transactions a later view has overruled.
    pub(super) const fn begun(&self) -> &Begun {
        &self.begun
    }

    /// How far its recovery is.
    pub(super) const fn recovery(&self) -> &Recovering {
        &self.recovery
    }

    /// Its id.
    pub fn id(&self) -> NodeId {
        self.id
    }

    /// How it runs.
    pub fn config(&self) -> &XenicConfig {
        &self.config
    }

    /// The records of the shard of `key`, which this node leads.
    #[inline]
    pub(super) fn led(&self, key: Key) -> &Replica {
        match self.is_inherited(key) {
            true => self.backup_of(self.shard_of(key)),
            false => &self.primary,
        }
    }

    /// The records of a shard that it backs up from the start.
    fn backup_of(&self, shard: ShardId) -> &Replica {
        match self.backups.get(shard) {
            Some(replica) => replica,
            None => panic!("{shard:?} was checked to be backed up here"),
        }
    }

    /// The records of its primary shard.
    pub(super) fn own(&self) -> &Replica {
        self.lost_sides.expect_kept(Side::Host);
        &self.primary
    }

    /// The host table of its primary shard and the NIC's index of it, if there is only one.
    pub fn only_table(&self) -> Option<(&HostTable, &NicIndex)> {
        self.lost_sides.expect_kept(Side::Nic);
        self.primary.tables.only().zip(self.indices.only())
    }

    /// The NIC's index of the table of `key`, of a shard that this node leads.
    #[inline]
    pub(super) fn index_of(&self, key: Key) -> &NicIndex {
        self.lost_sides.expect_kept(Side::Nic);
        if self.inherited.are_any() {
            let inherited = self.inherited.get(self.shard_of(key));
            return inherited.map_or(&self.indices, |inherited| inherited.indices()).of(key);
        }
        self.indices.of(key)
    }

    /// The host table of `key`, of a shard that this node leads.
    #[inline]
    pub(super) fn table_of(&self, key: Key) -> &HostTable {
        self.led(key).tables.of(key)
    }

    pub(super) fn log(&self, core: u8) -> &Arc<LogMemory> {
        &self.logs[usize::from(core)]
    }

    /// The shard of which this node holds the primary, if there is one.
    pub(super) fn shard(&self) -> Option<ShardId> {
        self.shard
    }

    /// Where keys live, and who holds which shard.
    pub(super) fn view(&self) -> &View {
        &self.view
    }

    /// The shard of `key`.
    #[inline]
    pub(super) fn shard_of(&self, key: Key) -> ShardId {
        self.view.shard_of(key)
    }

    /// The node that holds the primary of `shard`.
    pub(super) fn primary_node(&self, shard: ShardId) -> NodeId {
        self.view.primary(shard)
    }

    pub(super) fn write_counters(&self) -> &WriteCounters {
        self.lost_sides.expect_kept(Side::Nic);
        &self.write_counters
    }

    #[inline]
    pub(super) fn is_primary(&self, shard: ShardId) -> bool {
        Some(shard) == self.shard
    }

    #[inline]
    pub(super) fn is_primary_of(&self, key: Key) -> bool {
        self.is_primary(self.shard_of(key))
    }

    /// Does this node serve the keys of a request? Errors of the inner one: it leads their shard
    /// since a view that it may not know yet, and does not serve it yet.
    ///
    /// Errors: a request names a key whose primary is another node.
    #[inline]
    pub(super) fn expect_served(
        &self,
        keys: impl Iterator<Item = Key> + Clone,
    ) -> Result<Result<(), Abort>, Malformed> {
        if self.is_local(keys.clone()) { Ok(Ok(())) } else { self.expect_inherited(keys) }
    }

    /// The LOGs that a transaction may lead to which another node executes for `coordinator`: every
    /// shard of `shards` that it may write, as `of` says of each of its keys, with each backup.
    /// Both nodes go through them in this order. `coordinator` logs to itself. [Xenic21 4.2.3]
    pub(super) fn delegated_logs(
        &self,
        txn: &Txn,
        of: &KeyShards,
        shards: [Option<ShardId>; 2],
        coordinator: NodeId,
    ) -> impl Iterator<Item = (ShardId, NodeId)> {
        let written =
            |shard: &ShardId| of.of(txn, |entry| entry.write).any(|of| of == Some(*shard));
        let written = shards.into_iter().flatten().filter(written);
        let logs = written.flat_map(|shard| self.view.backups(shard).map(move |to| (shard, to)));
        logs.filter(move |&(_, backup)| backup != coordinator)
    }

    pub(super) fn is_backup_of(&self, shard: ShardId) -> bool {
        self.backups.get(shard).is_some()
    }

    /// Splits up to `segments` segments of each table that is doubling.
    pub(super) fn grow(&self, segments: u64) -> Advance {
        let tables = self.replicas().map(|replica| replica.advance(segments));
        tables.fold(Advance::default(), Advance::and)
    }

    /// Which values the tables that it leads have no space for any more.
    pub(super) fn exhausted_space(&self) -> ExhaustedSpace {
        let inherited = self.inherited.iter().map(|one| self.backup_of(one.shard()));
        let tables = std::iter::once(&self.primary).chain(inherited);
        let tables = tables.flat_map(|replica| replica.tables.iter());
        tables.map(HostTable::exhausted_space).fold(ExhaustedSpace::default(), ExhaustedSpace::or)
    }

    fn replicas(&self) -> impl Iterator<Item = &Replica> {
        std::iter::once(&self.primary).chain(self.backups.values())
    }

    /// The COMMITs whose locks are gone and which are not durable here yet.
    pub(super) fn syncing(&self) -> &Syncing {
        &self.syncing
    }

    /// What a record of the log belongs to.
    pub(super) fn replica(&self, shard: ShardId, kind: RecordKind) -> &Replica {
        self.lost_sides.expect_kept(Side::Host);
        match kind {
            RecordKind::Commit if self.is_primary(shard) => &self.primary,
            RecordKind::Commit | RecordKind::Log => self.backup_of(shard),
            RecordKind::Message | RecordKind::Part | RecordKind::Decisions => {
                panic!("a record of {kind:?} writes nothing")
            }
        }
    }

    /// What is undecided of the log of NIC core `core`; `None` where LOGs are applied at once.
    pub(super) fn undecided(&self, core: u8) -> Option<&Undecided> {
        self.undecided.get(usize::from(core))
    }

    /// Lets the tables forget deletions that no older record can undo any more: those applied
    /// before everything that was in any log at that time has been applied.
    ///
    /// Cost: a look at two counters per log; nothing if another worker is at it.
    pub(super) fn forget_deletions(&self) {
        let forget = || self.replicas().for_each(Replica::forget_old_deletions);
        // A copied range may bring what is older.
        if self.lives.is_complete() {
            self.grace.forget_if_over(&self.logs, &self.undecided, forget);
        }
    }

    pub(super) fn lock(&self, key: Key, txn: TxnId) -> Result<(), Abort> {
        OwnInserts::of(self).refuse_beside_others(key, Some(txn))?;
        self.index_of(key)
            .lock(SlotHash::of(key), key, txn)
            .map_err(|refused| self.refusal(refused, key))?;
        if key.is_ordered() {
            self.write_counters().lock(key, txn);
        }
        Ok(())
    }

    pub(super) fn unlock(&self, key: Key, txn: TxnId) -> bool {
        if key.is_ordered() {
            self.write_counters().unlock(key, txn);
        }
        self.index_of(key).unlock(SlotHash::of(key), key, txn)
    }

    pub(super) fn holder(&self, key: Key) -> Option<TxnId> {
        let holder = self.index_of(key).holder(SlotHash::of(key), key);
        holder.or_else(|| OwnInserts::of(self).inserter(key))
    }

    /// Locks `key` for reading, if no transaction holds it.
    pub(super) fn lock_shared(&self, key: Key) -> Result<(), Abort> {
        OwnInserts::of(self).refuse_beside_others(key, None)?;
        self.index_of(key)
            .lock_shared(SlotHash::of(key), key)
            .map_err(|refused| self.refusal(refused, key))
    }

    pub(super) fn unlock_shared(&self, key: Key) {
        self.index_of(key).unlock_shared(SlotHash::of(key), key);
    }

    /// See [`NicIndex::is_current`].
    pub(super) fn is_current(&self, txn: TxnId, entry: &Entry) -> Option<bool> {
        let read = (entry.version, entry.present);
        self.index_of(entry.key).is_current(SlotHash::of(entry.key), entry.key, txn, read)
    }

    /// Raises the key's version, so that a later insert exceeds the version at which `txn` saw it
    /// absent; where a range version has shown that there is none; false if one may.
    pub(super) fn confirm_absent_at(&self, txn: TxnId, entry: &Entry) -> bool {
        let (index, hash) = (self.index_of(entry.key), SlotHash::of(entry.key));
        index.confirm_absent_at(hash, entry.key, txn, entry.version)
    }

    /// Returns true if `key`, of an ordered table, certainly never had a record. Of inherited
    /// shards, with which a group may be shared, only the host knows.
    pub(super) fn confirm_absent(&self, key: Key) -> bool {
        !self.is_inherited(key) && self.write_counters().confirm_absent(key)
    }

    /// The host has answered with the high-water mark of `key`'s group.
    pub(super) fn learn_high_water(&self, key: Key, high_water: HighWater) {
        if !self.is_inherited(key) {
            self.write_counters().learn_high_water(key, high_water);
        }
    }

    /// May the host, which has counted so many writes, lack a new record of the range of `key` that
    /// no index knows? There are none in inherited shards: no coordinator has its own there.
    pub(super) fn may_lack_inserts(&self, key: Key, version: RangeVersion) -> bool {
        !self.is_inherited(key) && self.write_counters().may_lack_inserts(version)
    }

    /// Is `key`, which this node leads, of an inherited shard?
    #[inline]
    fn is_inherited(&self, key: Key) -> bool {
        self.inherited.are_any() && !self.is_primary_of(key)
    }

    /// Is what `txn` has read of an ordered table still current?
    pub(super) fn is_range_current(&self, txn: TxnId, version: RangeVersion) -> bool {
        self.write_counters().is_current(version, txn)
    }

    /// Are all of these keys of its own shard?
    pub(super) fn is_local(&self, mut keys: impl Iterator<Item = Key>) -> bool {
        keys.all(|key| self.is_primary_of(key))
    }

    /// Counts a commit.
    pub(super) fn took(&self, path: Path) {
        self.paths[path as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn install(&self, key: Key, version: Version, value: Option<&[u8]>) {
        let (mut version, hash) = (version, SlotHash::of(key));
        if self.config.hooks().installs_older() || self.config.faithful == Faithful::Paper {
            // What is not serializable is for the checkers to find, not for the index's assertion.
            let found = self.index_of(key).lookup(hash, key, &mut Vec::new());
            if let IndexLookup::Hit { version: known, .. } = found {
                version = version.max(known.next());
            }
        }
        if key.is_ordered() {
            self.write_counters().install(key);
        }
        self.index_of(key).install(hash, key, version, value);
    }

    pub(super) fn unpin(&self, key: Key) {
        self.index_of(key).unpin(SlotHash::of(key), key);
    }

    pub(super) fn lookup_counters(&self, core: u8) -> &LookupCounters {
        &self.lookups[usize::from(core)]
    }
}

impl Survivor for Node {
    fn survival(&self) -> &Survival {
        &self.survival
    }
}

impl SystemNode for Node {
    type Config = XenicConfig;

    type Shard = Replica;

    const SHARES_COPIES: bool = true;

    const FOLLOWS_VIEWS: bool = true;

    fn succession(config: &XenicConfig) -> Succession {
        match config.recovery {
            Recovery::Printed => Succession::Nobody,
            Recovery::Prepared => Succession::Backups,
        }
    }

    fn read_back(
        _: &XenicConfig,
        view: &View,
        source: &dyn RecordSource,
        media: &[(NodeId, Vec<MediumWrite>)],
    ) -> Option<Result<ReadBack, String>> {
        Some(read_back(view, source, media))
    }

    fn load(from: &Origin<'_, XenicConfig>, shard: ShardId) -> Result<Replica, TooSmall> {
        let Origin { view, config, source } = *from;
        let replica = empty(&tables_of(source), config);
        let touch = |key| replica.touch(key);
        let load = |key, value: &[u8]| {
            replica.load(key, value);
            // A store that is read back may begin with more records than its tables have slots.
            let table = replica.tables.of(key);
            if table.len() > table.slots() {
                replica.advance(LOADING_SPLITS);
            }
        };
        load_shard(source, view, shard, touch, load);
        Ok(replica)
    }

    fn share(shard: &Replica) -> Option<Replica> {
        Some(shard.copy_in(Copies::Shared))
    }

    fn open(
        from: &Origin<'_, XenicConfig>,
        id: NodeId,
        shards: &[Replica],
    ) -> Opening<Self, Replica> {
        let (view, config) = (from.view.clone(), from.config.clone());
        let shard = view.led_by(id).next();
        let tables = tables_of(from.source);
        let none = empty(&without_rows(&tables), &config);
        let primary = shard.map_or(&none, |shard| &shards[usize::from(shard.0)]);
        let indices = indices_of(primary, &config).map(|config| NicIndex::new(*config));
        let write_counters = WriteCounters::default();
        if config.warm_index {
            primary.for_each_located(&mut |record| {
                indices.of(record.key).preload(SlotHash::of(record.key), &record);
            });
            write_counters.preload(&primary.ordered);
        }
        let backups = Backups::copy(&view, id, shards, |shard| shard.copy_in(config.copies));
        let inherited = Inherited::of(view.backed_up_by(id));
        Box::new(move |led| {
            let primary = led.unwrap_or(none);
            let lives = Lives::first(tables);
            let node = Self::of((id, view, config), shard, primary, (backups, inherited), lives);
            Self { indices, write_counters, ..node }
        })
    }

    fn start_without_data<F: Fabric>(fabric: &F) {
        if fabric.here().side == Side::Nic {
            WithoutData::start(fabric, deny);
        }
    }

    /// With `recovery=prepared` it begins with an empty memory, and is given the records.
    fn restart<F: Fabric>(self: &Arc<Self>, fabric: &F) {
        if self.config.recovery == Recovery::Printed {
            return Self::start_without_data(fabric);
        }
        let life = self.life_after_loss();
        if fabric.here().side == Side::Nic {
            life.lives.begin(fabric.incarnation());
        }
        if let Some(procedures) = self.lives.procedures() {
            // Clients do not come back with it.
            drop(life.start(fabric, procedures));
        }
    }
}
