//! What `--set` may change in the systems of the commit family.

use std::ops::RangeInclusive;

use anyhow::{Result, bail, ensure};
use nicol_commit::Sabotage;
use nicol_commit::rdma_occ::{
    Execution, LockKeys, Locking, LogContent, Primitive, RdmaOccConfig, Transport, ValidateKeys,
    Validation, Verbs,
};
use nicol_commit::xenic::{
    CombinedOps, ExecuteAt, Faithful, LocalRead, LocksUntil, LogAtPrimary, Recovery,
    TABLE_MEMORY_MAX, XenicConfig,
};
use nicol_core::memory::Copies;
use nicol_core::steering::Steering;
use nicol_core::txn::VALUE_MAX;
use nicol_core::units::{Bytes, Nanos};
use nicol_schedule::{FeatureMap, Kind, RpcPath, ScheduleConfig};
use nicol_store::host_table::Growth;
use nicol_store::nic_index::{FirstRead, HomesPerHint, NicIndex};
use nicol_store::remote_table::{Design, INLINE_MAX};

use crate::config::BenchConfig;
use crate::families::scheduling::{self, check_cores, of_scheduler, scheduler};
use crate::refused::{Unfit, refuse};
use crate::settings::{
    EngineSettings, ServingMemory, Setting, Settings, Sizes, SystemConfig, Values, broken, bytes,
    micros, numbers, numbers_as, sabotage, switch, words,
};

/// Time that a phase waits on threads. These share cores: with the timeout of modelled hardware,
/// transactions under load gave up and began anew for ever.
const LIVE_TIMEOUT: Nanos = Nanos::from_millis(500);
/// What each NIC engine's log of a store that serves takes of memory: the largest transaction of
/// values that are not large, twice over.
const SERVING_LOG: Bytes = Bytes(16 << 20);
/// Its address space: one that writes a large value, twice over (decision 0189).
const SERVING_LOG_SPACE: Bytes = Bytes(2 * (VALUE_MAX as u64 + (4 << 20)));
/// The least that a table must have: a region of heap for each size of value, and its first slots.
const SERVING_TABLE_MIN: u64 = 8 << 20;
/// The part of a node's memory that its NIC index may take: what it caches stands in the tables as
/// well, in memory of the same kind, and is found there at little more cost (decision 0024).
const SERVING_INDEX_PART: u64 = 128;
/// Bytes of a value that stand in its slot: none. A value in a slot makes every slot longer, and a
/// slot is kept when its record is gone: blocks cost less (decisions 0083, 0120).
const SERVING_INLINE: usize = 0;
/// Bytes that a cached object may take on average.
const SERVING_OBJECT: u64 = 256;
/// First slots of a table, in percent of the records that it is prepared for, and their most. A
/// table that is sparse has a record on every page: it takes the memory of all slots, and the first
/// write to each page waits for the system to clear it.
const SERVING_SLOTS_PERCENT: u64 = 5;
const SERVING_SLOTS_MAX: u64 = 1 << 18;

/// The memory of each table of a store that serves, and of a node's index.
///
/// # Errors
/// The least limit, if this one is below it.
fn divide(memory: &ServingMemory) -> Result<(Bytes, Bytes)> {
    let &ServingMemory { limit, nodes, replicas, .. } = memory;
    let node = limit.0 / nodes;
    let index = node / SERVING_INDEX_PART;
    let tables = (node - index).saturating_sub(SERVING_LOG.0);
    if tables / replicas < SERVING_TABLE_MIN {
        let least = replicas * SERVING_TABLE_MIN + SERVING_LOG.0;
        let least = nodes * (least * SERVING_INDEX_PART).div_ceil(SERVING_INDEX_PART - 1);
        let why = format!("{nodes} nodes with {replicas} replicas do not fit");
        let remedy = format!("give at least {} MB", least.div_ceil(1 << 20));
        bail!(refuse("max_memory", format!("{} MB", limit.0 >> 20), why, remedy));
    }
    Ok((Bytes(tables / replicas), Bytes(index)))
}

/// Ways to break a protocol on purpose, so that a sweep can show that its checkers see it.
pub(super) const SABOTAGES: [(&str, Sabotage); 9] = [
    ("no_validate", Sabotage::NoValidate),
    ("validate_ignores_locks", Sabotage::ValidateIgnoresLocks),
    ("no_locks", Sabotage::NoLocks),
    ("unlock_first", Sabotage::UnlockFirst),
    ("early_unlock", Sabotage::EarlyUnlock),
    ("abort_installs", Sabotage::AbortInstalls),
    ("ignores_range_versions", Sabotage::IgnoresRangeVersions),
    ("steals_locks", Sabotage::StealsLocks),
    ("forgets_backups", Sabotage::ForgetsBackups),
];

/// One more for Xenic, which alone has records without locks.
pub(super) const SABOTAGES_OF_XENIC: [(&str, Sabotage); 1] =
    [("uncovers_inserts", Sabotage::UncoversInserts)];

/// And those of recovery, which Xenic alone has.
pub(super) const SABOTAGES_OF_RECOVERY: [(&str, Sabotage); 15] = [
    ("applies_undecided", Sabotage::AppliesUndecided),
    ("rebuilds_no_locks", Sabotage::RebuildsNoLocks),
    ("serves_at_once", Sabotage::ServesAtOnce),
    ("restarts_versions", Sabotage::RestartsVersions),
    ("takes_overruled", Sabotage::TakesOverruled),
    ("reports_unread", Sabotage::ReportsUnread),
    ("decides_unreplicated", Sabotage::DecidesUnreplicated),
    ("acks_before_logging", Sabotage::AcksBeforeLogging),
    ("primary_logs_nothing", Sabotage::PrimaryLogsNothing),
    ("lists_own_shard", Sabotage::ListsOwnShard),
    ("decides_at_logs", Sabotage::DecidesAtLogs),
    ("reports_no_locks", Sabotage::ReportsNoLocks),
    ("reports_nothing", Sabotage::ReportsNothing),
    ("skips_install", Sabotage::SkipsInstall),
    ("tells_no_aborts", Sabotage::TellsNoAborts),
];

/// The timeout of a phase, of a configuration that has it in `part`.
fn timeout<C: 'static>(part: fn(&mut C) -> &mut Nanos) -> Setting<C> {
    Setting::new("timeout_us", micros(1..=60_000_000), part)
        .help("timeout of a phase whose node does not answer")
        .default("20000; on threads 500000")
}

/// The bounds of a log in host memory.
const LOG_BYTES: RangeInclusive<u64> = 128..=1 << 32;

impl Settings for XenicConfig {
    fn table() -> Vec<Setting<Self>> {
        let known = SABOTAGES.into_iter().chain(SABOTAGES_OF_XENIC).chain(SABOTAGES_OF_RECOVERY);
        let mut table = vec![sabotage(known, |to: &mut Self| &mut to.sabotage)];
        table.extend(mechanisms());
        table.extend(readings_of_xenic());
        table.extend(memory_of_xenic());
        table.push(timeout(|to: &mut Self| &mut to.timeout));
        table.push(
            scheduler(|config: &Self| Some(config.schedule.as_ref().map(|schedule| schedule.kind)), schedule_by)
                .help("which host engine (worker) of a node coordinates a client's transaction; none: its own"),
        );
        let settings = scheduling::settings().into_iter();
        table.extend(settings.map(|row| of_scheduler(row, |to: &mut Self| &mut to.schedule)));
        table
    }
}

/// Schedules transactions before the coordinators.
fn schedule_by(config: &mut XenicConfig, kind: Option<Kind>) {
    // A NIC core on the packets' path decides, and no message is lost on the way to another core.
    let (timeout, path) = (Nanos::from_secs(10), RpcPath::OneMessage);
    let published = kind.map(ScheduleConfig::published);
    let fpga = false;
    config.schedule = published.map(|config| ScheduleConfig { fpga, timeout, path, ..config });
}

/// Settings that switch Xenic's mechanisms off, or choose among their forms.
fn mechanisms() -> Vec<Setting<XenicConfig>> {
    type It = XenicConfig;
    let sites = [
        ("host", ExecuteAt::Host),
        ("annotation", ExecuteAt::Annotation),
        ("nic", ExecuteAt::Nic),
        ("planned", ExecuteAt::Planned(Steering::DEFAULT)),
    ];
    let combined =
        [("on", CombinedOps::All), ("keys", CombinedOps::Keys), ("off", CombinedOps::None)];
    vec![
        Setting::new("execute_at", words(sites), |to: &mut It| &mut to.execute_at)
            .help("where execution logic runs; planned: chosen by measured throughput"),
        Setting::new(
            "faithful",
            words([("paper", Faithful::Paper), ("fixed", Faithful::Fixed)]),
            |to: &mut It| &mut to.faithful,
        )
        .help("paper keeps the paper's errata, and is not serializable")
        .then(|to| {
            to.local_read = match to.faithful {
                Faithful::Paper => LocalRead::Paper,
                Faithful::Fixed => LocalRead::Strict,
            };
            Ok(())
        }),
        Setting::new("combined_ops", words(combined), |to: &mut It| &mut to.combined_ops)
            .help(
                "on: one request locks and reads all keys of a shard; keys: separate requests to \
                 read, lock and validate, each for all keys; off: the same for each object. keys \
                 and off also switch multi_hop off",
            )
            .then(|to| {
                to.multi_hop &= to.combined_ops == CombinedOps::All;
                Ok(())
            }),
        Setting::new("multi_hop", switch(), |to: &mut It| &mut to.multi_hop)
            .help("a remote primary's NIC may execute a whole transaction")
            .then(|to| match to.combined_ops {
                CombinedOps::Keys | CombinedOps::None if to.multi_hop => Err(Unfit::new(
                    "another node's NIC locks, reads and executes at once",
                    "give `combined_ops=on` as well",
                )),
                _ => Ok(()),
            }),
        Setting::new("local_paths", switch(), |to: &mut It| &mut to.local_paths)
            .help("the host may execute a transaction whose keys are all local"),
    ]
}

/// Settings that choose among readings of what the paper leaves open.
fn readings_of_xenic() -> Vec<Setting<XenicConfig>> {
    type It = XenicConfig;
    vec![
        Setting::new(
            "local_read",
            words([("paper", LocalRead::Paper), ("strict", LocalRead::Strict)]),
            |to: &mut It| &mut to.local_read,
        )
        .help(
            "how local read-only transactions validate: paper at the host alone, strict also at \
             the NIC",
        ),
        Setting::new(
            "locks_until",
            words([("backups", LocksUntil::Backups), ("primary", LocksUntil::Primary)]),
            |to: &mut It| &mut to.locks_until,
        )
        .help("whose logs must be durable before a commit releases its locks (decision 0058)"),
        Setting::new(
            "recovery",
            words([("printed", Recovery::Printed), ("prepared", Recovery::Prepared)]),
            |to: &mut It| &mut to.recovery,
        )
        .help(
            "prepared: backups apply what is decided only, survivors decide what a lost \
             coordinator began, and a backup leads a lost shard (decisions 0100 to 0103)",
        )
        .then(|to| {
            to.log_at_primary = match to.recovery {
                Recovery::Printed => LogAtPrimary::Paper,
                Recovery::Prepared => LogAtPrimary::Needed,
            };
            Ok(())
        })
        .first(),
        Setting::new(
            "log_at_primary",
            words([("paper", LogAtPrimary::Paper), ("needed", LogAtPrimary::Needed)]),
            |to: &mut It| &mut to.log_at_primary,
        )
        .help(
            "needed, with recovery=prepared: where a coordinator is a backup, the primary has the \
             writes, too, before the client is told; paper: it may not (AMB-50, decision 0115)",
        )
        .then(|to| match to.recovery {
            Recovery::Printed if to.log_at_primary == LogAtPrimary::Needed => Err(Unfit::new(
                "a primary would apply what nobody has decided",
                "give `recovery=prepared` as well",
            )),
            _ => Ok(()),
        }),
    ]
}

/// The memory of Xenic's nodes.
fn memory_of_xenic() -> Vec<Setting<XenicConfig>> {
    type It = XenicConfig;
    let homes = [("1", 1), ("2", 2), ("4", 4), ("8", 8), ("16", 16)];
    let known = |(word, homes)| HomesPerHint::new(homes).map(|homes| (word, homes));
    let homes = words(homes.into_iter().filter_map(known));
    vec![
        Setting::new("index_objects", numbers(1..=1 << 32), |to: &mut It| &mut to.index_objects)
            .help("capacity of each node's NIC index in objects")
            .default("what its memory holds; on threads a quarter of the records"),
        Setting::new("warm_index", switch(), |to: &mut It| &mut to.warm_index)
            .help("start with a NIC index filled up to its capacity"),
        Setting::new("displacement_max", numbers(1..=64), |to: &mut It| &mut to.displacement_max)
            .help("displacement limit D_m of the host table"),
        Setting::new("slack", numbers(0..=64), |to: &mut It| &mut to.slack)
            .help("k: a lookup reads d_i + k slots first, d_i the known displacement"),
        Setting::new(
            "first_read",
            words([("within", FirstRead::Within), ("beyond", FirstRead::Beyond)]),
            |to: &mut It| &mut to.first_read,
        )
        .help("d_i + k slots within all, from the home on, or one more: beyond d_i (AMB-04)"),
        Setting::new("homes_per_hint", homes, |to: &mut It| &mut to.homes_per_hint)
            .help("homes of a segment that share a known displacement, d_i"),
        Setting::new("slots_percent", numbers(1..=1_000), |to: &mut It| &mut to.slots_percent)
            .help("initial table slots per record, in percent"),
        Setting::derived(
            "growth",
            switch(),
            |config: &It| Some(config.growth != Growth::Off),
            |to, grows| {
                let doubling = Growth::Doubling { memory_max: TABLE_MEMORY_MAX };
                to.growth = if grows { doubling } else { Growth::Off };
            },
        )
        .help("double host tables when they are full")
        .first(),
        Setting::new("table_bytes", bytes(1..=1 << 44), |limit: &mut Bytes| limit)
            .help("limit of one table's host memory")
            .within(|to: &mut It| match &mut to.growth {
                Growth::Doubling { memory_max } => Ok(memory_max),
                Growth::Off => Err(Unfit::new(
                    "with `growth=off` no table grows up to a limit",
                    "leave one of them out",
                )),
            }),
        Setting::new("log_bytes", bytes(LOG_BYTES), |to: &mut It| &mut to.log)
            .help("each NIC core's log in host memory"),
    ]
}

impl SystemConfig for XenicConfig {
    fn published(_: &str, sizes: &Sizes<'_>) -> Self {
        let &Sizes { source, value_bytes, nic_memory, live } = sizes;
        let records = source.records_per_shard() + source.growth_per_shard();
        let mut paper = Self::paper(records, value_bytes);
        paper.features = FeatureMap::of(source);
        if live {
            paper.timeout = LIVE_TIMEOUT;
        } else {
            paper.copies = Copies::Shared;
        }
        if let Some(memory) = nic_memory {
            // [Xenic21 4.3.3] Caching adapts to the capacity that there is.
            paper.index_objects = NicIndex::objects_in(memory, value_bytes);
        }
        paper
    }

    fn check(&self, config: &BenchConfig) -> Result<()> {
        self.schedule.as_ref().map_or(Ok(()), |schedule| check_cores(schedule, config))
    }

    fn serving(self, memory: &ServingMemory) -> Result<Self> {
        let (table, index) = divide(memory)?;
        // A quarter of a table's memory for its first slots at most.
        let slots = SERVING_SLOTS_MAX.min(table.0 / 4 / SERVING_OBJECT);
        let percent = (slots * 100 / memory.records.max(1)).clamp(1, SERVING_SLOTS_PERCENT);
        let first = memory.records.saturating_mul(percent) / 100 * SERVING_OBJECT;
        ensure!(
            first <= table.0,
            refuse(
                "records",
                memory.records,
                format!("the first slots of a table take {} MB", first >> 20),
                format!("give fewer: a table may have {} MB", table.0 >> 20)
            )
        );
        let objects = self.index_objects.min((index.0 / SERVING_OBJECT) as usize);
        Ok(Self {
            log: SERVING_LOG_SPACE,
            log_lap: Some(SERVING_LOG),
            growth: Growth::Doubling { memory_max: table },
            slots_percent: percent,
            inline_value: SERVING_INLINE,
            index_objects: objects,
            index_value_bytes: (objects * SERVING_OBJECT as usize).min(index.0 as usize),
            ..self
        })
    }

    fn longest_wait(&self) -> Nanos {
        self.schedule.as_ref().map_or(Nanos::ZERO, ScheduleConfig::longest_batch)
    }

    fn warnings(&self) -> Vec<String> {
        let known = [&SABOTAGES[..], &SABOTAGES_OF_XENIC, &SABOTAGES_OF_RECOVERY].concat();
        let mut warnings = broken(&known, self.sabotage);
        if self.faithful == Faithful::Paper {
            warnings.push("faithful=paper: as printed, and so not serializable".to_owned());
        }
        if self.local_read == LocalRead::Paper {
            let warning = "local_read=paper: local reads may miss what is committed";
            warnings.push(warning.to_owned());
        }
        warnings
    }
}

impl Settings for RdmaOccConfig {
    fn table() -> Vec<Setting<Self>> {
        let mut table = vec![sabotage(SABOTAGES, |to: &mut Self| &mut to.sabotage)];
        table.extend(phases());
        table.extend(messages());
        table.extend(memory_of_baselines());
        table.push(timeout(|to: &mut Self| &mut to.timeout));
        table
    }
}

/// One-sided, or by RPC.
fn primitive() -> Values<Primitive> {
    words([("one-sided", Primitive::OneSided), ("rpc", Primitive::Rpc)])
}

/// The locking of a baseline that READs.
fn locking(config: &mut RdmaOccConfig) -> Result<&mut Locking, Unfit> {
    match &mut config.execution {
        Execution::Read(locking) => Ok(locking),
        Execution::Rpc => {
            Err(Unfit::new("the RPC that reads locks, too", "give `execution=read` before it"))
        }
    }
}

/// Settings of a baseline's phases.
fn phases() -> Vec<Setting<RdmaOccConfig>> {
    type It = RdmaOccConfig;
    let up_to = numbers_as(
        0..=1_024,
        |most| Some(Validation::ReadUpTo(most as usize)),
        |validation| match validation {
            Validation::ReadUpTo(most) => Some(*most as u64),
            Validation::Read | Validation::Rpc => None,
        },
    );
    let validations = words([("read", Validation::Read), ("rpc", Validation::Rpc)]).or(up_to);
    vec![
        Setting::derived(
            "execution",
            words([("read", false), ("rpc", true)]),
            |config: &It| Some(config.execution == Execution::Rpc),
            |to, by_rpc| match (by_rpc, to.execution) {
                (true, _) => to.execution = Execution::Rpc,
                (false, Execution::Read(_)) => {}
                (false, Execution::Rpc) => {
                    let (by, keys) = (Primitive::Rpc, LockKeys::Written);
                    to.execution = Execution::Read(Locking { by, keys });
                }
            },
        )
        .help("how keys are read; rpc also locks the write set"),
        Setting::new("lock_by", primitive(), |to: &mut Locking| &mut to.by)
            .help("how keys that were READ are locked")
            .within(locking),
        Setting::new(
            "lock_keys",
            words([("written", LockKeys::Written), ("every", LockKeys::Every)]),
            |to: &mut Locking| &mut to.keys,
        )
        .help("which keys that were READ are locked")
        .within(locking),
        Setting::new("validation", validations, |to: &mut It| &mut to.validation)
            .help("how reads are validated; N: by READ up to N keys per node"),
        Setting::new(
            "validate_keys",
            words([("unlocked", ValidateKeys::Unlocked), ("all", ValidateKeys::All)]),
            |to: &mut It| &mut to.validate_keys,
        )
        .help("which reads are validated: those that are not locked, or all (AMB-54)"),
        Setting::new("log_by", primitive(), |to: &mut It| &mut to.log_by)
            .help("how log records reach backups"),
        Setting::new(
            "log_content",
            words([("shard", LogContent::Shard), ("whole", LogContent::Whole)]),
            |to: &mut It| &mut to.log_content,
        )
        .help(
            "what a log record carries: a shard's writes, or all of the transaction, once for \
             each node that backs up any of them",
        ),
        Setting::new("log_acks", switch(), |to: &mut It| &mut to.log_acks).help(
            "a second round tells the backups that all have logged; only then is log space freed",
        ),
        Setting::new("commit_by", primitive(), |to: &mut It| &mut to.commit_by)
            .help("how writes reach primaries"),
        Setting::new("await_commit", switch(), |to: &mut It| &mut to.await_commit)
            .help("the client waits until its writes are installed"),
    ]
}

/// Settings of a baseline's messages.
fn messages() -> [Setting<RdmaOccConfig>; 2] {
    type It = RdmaOccConfig;
    [
        Setting::new(
            "verbs",
            words([("card", Verbs::Card), ("software", Verbs::Software)]),
            |to: &mut It| &mut to.verbs,
        )
        .help("who executes verbs: the card, where there is one, or software"),
        Setting::new(
            "rpc_by",
            words([("write", Transport::Write), ("send", Transport::Send)]),
            |to: &mut It| &mut to.rpc_by,
        )
        .help("how RPCs are sent: as WRITEs into polled logs, or as SENDs"),
    ]
}

/// The memory of a baseline's nodes.
fn memory_of_baselines() -> Vec<Setting<RdmaOccConfig>> {
    type It = RdmaOccConfig;
    vec![
        Setting::derived(
            "bucket_slots",
            numbers::<u16>(1..=64),
            |config: &It| match config.table.design {
                Design::Hopscotch { neighbourhood } => Some(neighbourhood / 2),
                Design::Chained { bucket } => Some(bucket),
            },
            |to, slots| {
                to.table.design = match to.table.design {
                    Design::Hopscotch { .. } => Design::Hopscotch { neighbourhood: 2 * slots },
                    Design::Chained { .. } => Design::Chained { bucket: slots },
                }
            },
        )
        .help("slots of a bucket (chained), half of H (hopscotch)"),
        Setting::derived(
            "slots_percent",
            numbers::<u64>(50..=1_000),
            |config: &It| (config.table.slots * 100).checked_div(config.records),
            |to, percent| {
                to.table.slots = to.records * percent / 100;
                // All of them, at worst.
                to.table.overflow_slots = to.table.overflow_slots.max(to.records);
            },
        )
        .help("table slots per record, in percent"),
        Setting::new("inline_bytes", numbers(8..=INLINE_MAX as u64), |to: &mut It| {
            &mut to.table.inline
        })
        .help("largest value stored in its slot")
        .default("the workload's longest short value"),
        Setting::new("cached_addresses", numbers(0..=1 << 32), |to: &mut It| {
            &mut to.cached_addresses
        })
        .help("record addresses that each node caches per remote shard")
        .default("those of all records, or 0 where the system caches none"),
        Setting::new("warm_addresses", switch(), |to: &mut It| &mut to.warm_addresses)
            .help("start with all addresses cached"),
        Setting::new("log_bytes", bytes(LOG_BYTES), |to: &mut It| &mut to.log)
            .help("each log in host memory: one per host engine of the cluster"),
        Setting::new("message_log_bytes", bytes(LOG_BYTES), |to: &mut It| &mut to.message_log)
            .help("each message log, if RPCs are WRITEs: one per host engine"),
    ]
}

impl SystemConfig for RdmaOccConfig {
    fn published(system: &str, sizes: &Sizes<'_>) -> Self {
        let &Sizes { source, value_bytes, live, .. } = sizes;
        // Those of ordered tables need no slots.
        let hashed = source.records_per_shard() - source.ordered_per_shard();
        match Self::named(system, hashed + source.growth_per_shard(), value_bytes) {
            Some(config) if live => Self { timeout: LIVE_TIMEOUT, ..config },
            Some(config) => Self { copies: Copies::Shared, ..config },
            None => unreachable!("{system} is listed among the systems"),
        }
    }

    fn warnings(&self) -> Vec<String> {
        broken(&SABOTAGES, self.sabotage)
    }

    fn engines(&self) -> EngineSettings {
        // One SEND per message, as in FaSST and DrTM+H: their messages gather the keys of one
        // transaction only. Frames for several transactions are Xenic's. [Xenic21 4.3.2, 5.7]
        EngineSettings { aggregation: Some(false), ..EngineSettings::default() }
    }
}
