//! What `--set` may change in the systems of the commit family.

use anyhow::{Context, Result, anyhow, bail, ensure};
use nicol_commit::Sabotage;
use nicol_commit::rdma_occ::{
    Execution, LockKeys, Locking, LogContent, Primitive, RdmaOccConfig, Transport, Validation,
    Verbs,
};
use nicol_commit::xenic::{
    CombinedOps, ExecuteAt, Faithful, LocalRead, LocksUntil, TABLE_MEMORY_MAX, XenicConfig,
};
use nicol_core::steering::Steering;
use nicol_core::units::{Bytes, Nanos};
use nicol_schedule::{FeatureMap, RpcPath, ScheduleConfig};
use nicol_store::host_table::Growth;
use nicol_store::nic_index::{HomesPerHint, NicIndex};
use nicol_store::remote_table::{Design, INLINE_MAX};

use crate::config::BenchConfig;
use crate::families::scheduling::{check_cores, scheduler, set_schedule, without_scheduler};
use crate::settings::{
    EngineSettings, SABOTAGE, ServingMemory, Setting, Settings, Sizes, SystemConfig, broken,
    number, sabotage, switch,
};

/// How long a phase waits on threads: they share cores, and where load made a phase take longer
/// than the timeout of modelled hardware, transactions gave up and began anew for ever.
const LIVE_TIMEOUT: Nanos = Nanos::from_millis(500);
/// What `--set help` says of it.
const TIMEOUT_US: Setting = (
    "timeout_us",
    "MICROSECONDS",
    "timeout of a phase whose node does not answer [default: 20000; on threads 500000]",
);
/// Each NIC engine's log of a store that serves: capacity for the largest transaction twice over.
const SERVING_LOG: Bytes = Bytes(16 << 20);
/// The least that a table must have: a region of heap for each size of value, and its first slots.
const SERVING_TABLE_MIN: u64 = 8 << 20;
/// The part of a node's memory that its NIC index may take.
const SERVING_INDEX_PART: u64 = 8;
/// Bytes that a cached object may take on average.
const SERVING_OBJECT: u64 = 256;
/// First slots of a table, in percent of the records that it is prepared for, and their most. A
/// table that is sparse has a record on every page: it takes the memory of all slots, and the first
/// write to each page waits for the system to clear it.
const SERVING_SLOTS_PERCENT: u64 = 6;
const SERVING_SLOTS_MAX: u64 = 1 << 18;

/// What a table of a store that serves may take, and the index of a node.
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
        bail!(
            "--max-memory: {nodes} nodes with {replicas} replicas in {} MB; give at least {} MB",
            limit.0 >> 20,
            least.div_ceil(1 << 20)
        );
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

const HIDDEN: &[Setting] = &[SABOTAGE];

fn local_read(value: &str) -> Result<LocalRead> {
    match value {
        "paper" => Ok(LocalRead::Paper),
        "strict" => Ok(LocalRead::Strict),
        _ => bail!("'{value}': choose paper or strict"),
    }
}

fn locks_until(value: &str) -> Result<LocksUntil> {
    match value {
        "backups" => Ok(LocksUntil::Backups),
        "primary" => Ok(LocksUntil::Primary),
        _ => bail!("'{value}': choose backups or primary"),
    }
}

/// Changes who schedules transactions before the coordinators, and how.
fn set_scheduling(schedule: &mut Option<ScheduleConfig>, key: &str, value: &str) -> Result<()> {
    if key == "scheduler" {
        // A NIC core on the packets' path decides, and no message is lost on the way to another core.
        let (timeout, path) = (Nanos::from_secs(10), RpcPath::OneMessage);
        let config = scheduler(value)?;
        *schedule = config.map(|config| ScheduleConfig { fpga: false, timeout, path, ..config });
        return Ok(());
    }
    set_schedule(schedule.as_mut().with_context(|| without_scheduler(key))?, key, value)
}

impl Settings for XenicConfig {
    const HIDDEN: &'static [Setting] = HIDDEN;
    const FIRST: &'static [&'static str] = &["scheduler", "growth"];
    const KEYS: &'static [Setting] = &[
        (
            "execute_at",
            "host|annotation|nic|planned",
            "where execution logic runs; planned: where it gave more lately",
        ),
        ("faithful", "paper|fixed", "paper keeps the paper's errata, and is not serializable"),
        (
            "combined_ops",
            "on|keys|off",
            "on: one request locks and reads all keys of a shard; keys: separate requests to read, \
             lock and validate, each for all keys; off: the same for each object. keys and off also \
             switch multi_hop off",
        ),
        ("multi_hop", "on|off", "a remote primary's NIC may execute a whole transaction"),
        ("local_paths", "on|off", "the host may execute a transaction whose keys are all local"),
        (
            "local_read",
            "paper|strict",
            "how local read-only transactions validate: paper at the host alone, strict also at the NIC",
        ),
        (
            "locks_until",
            "backups|primary",
            "whose logs must be durable before a commit releases its locks (decision 0058)",
        ),
        (
            "index_objects",
            "N",
            "capacity of each node's NIC index in objects [default: what its memory holds; on \
             threads a quarter of the records]",
        ),
        ("warm_index", "on|off", "start with a NIC index filled up to its capacity"),
        ("displacement_max", "1..64", "displacement limit D_m of the host table"),
        ("slack", "0..64", "slots read beyond the known displacement, k"),
        (
            "homes_per_hint",
            "1|2|4|8|16",
            "homes of a segment that share a known displacement, d_i [default: 1]",
        ),
        ("slots_percent", "1..1000", "initial table slots per record, in percent"),
        ("growth", "on|off", "double host tables when they are full"),
        ("table_bytes", "BYTES", "limit of one table's host memory"),
        ("log_bytes", "128..2^32", "each NIC core's log in host memory"),
        TIMEOUT_US,
        (
            "scheduler",
            "none|alnico|alnico-cpu-2|alnico-cpu-n|static-partition|strife|round-robin",
            "who decides which host engine of a node coordinates a client's transaction; none: its own",
        ),
        ("at_a_time", "1..64", "scheduled transactions that a host engine coordinates at a time"),
        (
            "rpc",
            "two-writes|one-message",
            "how a request reaches alnico: data to the host and vector to the card, or both through it",
        ),
        ("ranking", "artifact|improved", "how alnico breaks ties, and when its counters count"),
        ("planes", "1|2", "does alnico tell reads from writes"),
        ("completion", "reply|slot", "when alnico learns that a transaction is done"),
        (
            "publish",
            "always|on-change|never",
            "which vectors alnico's software publishes; never: nothing weighs, the shortest queue wins",
        ),
        ("feedback_us", "1..10000000", "how often alnico's software computes vectors"),
        ("window", "1..2^20", "aborts that a worker remembers, on which alnico's vectors rest"),
        ("reserved", "0..31", "host engines that take what takes long, and nothing else"),
        ("batch", "1..2^20", "transactions of a batch of strife at most"),
        ("batch_us", "1..2^30", "how long a batch of strife is open at most"),
    ];

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "scheduler" | "at_a_time" | "rpc" | "ranking" | "planes" | "completion" | "publish"
            | "feedback_us" | "window" | "reserved" | "batch" | "batch_us" => {
                set_scheduling(&mut self.schedule, key, value)?;
            }
            "execute_at" => {
                self.execute_at = match value {
                    "host" => ExecuteAt::Host,
                    "annotation" => ExecuteAt::Annotation,
                    "nic" => ExecuteAt::Nic,
                    "planned" => ExecuteAt::Planned(Steering::DEFAULT),
                    _ => bail!("'{value}': choose host, annotation, nic or planned"),
                }
            }
            "faithful" => {
                (self.faithful, self.local_read) = match value {
                    "paper" => (Faithful::Paper, LocalRead::Paper),
                    "fixed" => (Faithful::Fixed, LocalRead::Strict),
                    _ => bail!("'{value}': choose paper or fixed"),
                }
            }
            "combined_ops" => {
                self.combined_ops = match value {
                    "on" => CombinedOps::All,
                    "keys" => CombinedOps::Keys,
                    "off" => CombinedOps::None,
                    _ => bail!("'{value}': choose on, keys or off"),
                };
                self.multi_hop &= self.combined_ops == CombinedOps::All;
            }
            "multi_hop" => {
                self.multi_hop = switch(value)?;
                ensure!(
                    self.combined_ops == CombinedOps::All || !self.multi_hop,
                    "another node's NIC locks, reads and executes at once: set combined_ops=on"
                );
            }
            "local_paths" => self.local_paths = switch(value)?,
            "local_read" => self.local_read = local_read(value)?,
            "locks_until" => self.locks_until = locks_until(value)?,
            "index_objects" => self.index_objects = number(value, 1, 1 << 32)? as usize,
            "warm_index" => self.warm_index = switch(value)?,
            "displacement_max" => self.displacement_max = number(value, 1, 64)? as u16,
            "slack" => self.slack = number(value, 0, 64)? as u16,
            "homes_per_hint" => {
                let homes = number(value, 1, 16)? as u8;
                let known = HomesPerHint::new(homes);
                self.homes_per_hint =
                    known.ok_or_else(|| anyhow!("'{value}': choose 1, 2, 4, 8 or 16"))?;
            }
            "slots_percent" => self.slots_percent = number(value, 1, 1_000)?,
            "growth" => {
                self.growth = match switch(value)? {
                    true => Growth::Doubling { memory_max: TABLE_MEMORY_MAX },
                    false => Growth::Off,
                }
            }
            "table_bytes" => {
                let limit = Bytes(number(value, 1, 1 << 44)?);
                let Growth::Doubling { memory_max } = &mut self.growth else {
                    bail!("growth=off: no table grows up to a limit; leave one of them out");
                };
                *memory_max = limit;
            }
            "log_bytes" => self.log = Bytes(number(value, 128, 1 << 32)?),
            "timeout_us" => self.timeout = Nanos::from_micros(number(value, 1, 60_000_000)?),
            "sabotage" => self.sabotage = sabotage(&SABOTAGES, value)?,
            _ => unreachable!("{key} is not among Xenic's keys"),
        }
        Ok(())
    }
}

impl SystemConfig for XenicConfig {
    fn published(_: &str, sizes: &Sizes<'_>) -> Self {
        let &Sizes { source, value_bytes, nic_memory, live } = sizes;
        let records = source.records_per_shard() + source.growth_per_shard();
        let mut paper = Self::paper(records, value_bytes);
        paper.features = FeatureMap::of(source);
        if live {
            paper.timeout = LIVE_TIMEOUT;
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
            "--records {}: the first slots of a table take {} MB, and a table may have {} MB",
            memory.records,
            first >> 20,
            table.0 >> 20
        );
        let objects = self.index_objects.min((index.0 / SERVING_OBJECT) as usize);
        Ok(Self {
            log: SERVING_LOG,
            growth: Growth::Doubling { memory_max: table },
            slots_percent: percent,
            index_objects: objects,
            index_value_bytes: (objects * SERVING_OBJECT as usize).min(index.0 as usize),
            ..self
        })
    }

    fn longest_wait(&self) -> Nanos {
        self.schedule.as_ref().map_or(Nanos::ZERO, ScheduleConfig::longest_batch)
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = broken(&SABOTAGES, self.sabotage);
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
    const HIDDEN: &'static [Setting] = HIDDEN;
    const KEYS: &'static [Setting] = &[
        ("execution", "read|rpc", "how keys are read; rpc also locks the write set"),
        ("lock_by", "one-sided|rpc", "how keys that were READ are locked"),
        ("lock_keys", "written|every", "which keys that were READ are locked"),
        (
            "validation",
            "read|rpc|0..1024",
            "how reads are validated; N: by READ up to N keys per node",
        ),
        ("log_by", "one-sided|rpc", "how log records reach backups"),
        (
            "log_content",
            "shard|whole",
            "what a log record carries: a shard's writes, or all of the transaction, once for each \
             node that backs up any of them",
        ),
        (
            "log_acks",
            "on|off",
            "a second round tells the backups that all have logged; only then is log space freed",
        ),
        ("commit_by", "one-sided|rpc", "how writes reach primaries"),
        ("await_commit", "on|off", "does the client wait until its writes are installed"),
        ("verbs", "card|software", "who executes verbs: the card, where there is one, or software"),
        ("rpc_by", "write|send", "how RPCs are sent: as WRITEs into polled logs, or as SENDs"),
        ("bucket_slots", "1..64", "slots of a bucket (chained), half of H (hopscotch)"),
        ("slots_percent", "50..1000", "table slots per record, in percent"),
        ("inline_bytes", "8..1024", "largest value stored in its slot"),
        ("cached_addresses", "N", "record addresses that each node caches per remote shard"),
        ("warm_addresses", "on|off", "start with all addresses cached"),
        ("log_bytes", "128..2^32", "each log in host memory: one per host engine of the cluster"),
        (
            "message_log_bytes",
            "128..2^32",
            "each message log, if RPCs are WRITEs: one per host engine",
        ),
        TIMEOUT_US,
    ];

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "execution" => match value {
                "read" if self.execution != Execution::Rpc => {}
                "read" => {
                    let (by, keys) = (Primitive::Rpc, LockKeys::Written);
                    self.execution = Execution::Read(Locking { by, keys });
                }
                "rpc" => self.execution = Execution::Rpc,
                _ => bail!("'{value}': choose read or rpc"),
            },
            "lock_by" => locking(self)?.by = primitive(value)?,
            "lock_keys" => {
                locking(self)?.keys = match value {
                    "written" => LockKeys::Written,
                    "every" => LockKeys::Every,
                    _ => bail!("'{value}': choose written or every"),
                }
            }
            "validation" => {
                self.validation = match value {
                    "read" => Validation::Read,
                    "rpc" => Validation::Rpc,
                    most => Validation::ReadUpTo(number(most, 0, 1_024)? as usize),
                }
            }
            "log_by" => self.log_by = primitive(value)?,
            "log_content" => {
                self.log_content = match value {
                    "shard" => LogContent::Shard,
                    "whole" => LogContent::Whole,
                    _ => bail!("'{value}': choose shard or whole"),
                }
            }
            "log_acks" => self.log_acks = switch(value)?,
            "commit_by" => self.commit_by = primitive(value)?,
            "await_commit" => self.await_commit = switch(value)?,
            "verbs" => {
                self.verbs = match value {
                    "card" => Verbs::Card,
                    "software" => Verbs::Software,
                    _ => bail!("'{value}': choose card or software"),
                }
            }
            "rpc_by" => {
                self.rpc_by = match value {
                    "write" => Transport::Write,
                    "send" => Transport::Send,
                    _ => bail!("'{value}': choose write or send"),
                }
            }
            _ => set_memory(self, key, value)?,
        }
        Ok(())
    }
}

/// How a baseline that READs locks.
fn locking(config: &mut RdmaOccConfig) -> Result<&mut Locking> {
    match &mut config.execution {
        Execution::Read(locking) => Ok(locking),
        Execution::Rpc => bail!("the RPC that reads locks, too: set execution=read before"),
    }
}

fn primitive(value: &str) -> Result<Primitive> {
    match value {
        "one-sided" => Ok(Primitive::OneSided),
        "rpc" => Ok(Primitive::Rpc),
        _ => bail!("'{value}': choose one-sided or rpc"),
    }
}

/// The settings of a baseline's memory.
fn set_memory(config: &mut RdmaOccConfig, key: &str, value: &str) -> Result<()> {
    match key {
        "bucket_slots" => {
            let slots = number(value, 1, 64)? as u16;
            config.table.design = match config.table.design {
                Design::Hopscotch { .. } => Design::Hopscotch { neighbourhood: 2 * slots },
                Design::Chained { .. } => Design::Chained { bucket: slots },
            }
        }
        "slots_percent" => {
            config.table.slots = config.records * number(value, 50, 1_000)? / 100;
            // All of them, at worst.
            config.table.overflow_slots = config.table.overflow_slots.max(config.records);
        }
        "inline_bytes" => config.table.inline = number(value, 8, INLINE_MAX as u64)? as usize,
        "cached_addresses" => config.cached_addresses = number(value, 0, 1 << 32)?,
        "warm_addresses" => config.warm_addresses = switch(value)?,
        "log_bytes" => config.log = Bytes(number(value, 128, 1 << 32)?),
        "message_log_bytes" => config.message_log = Bytes(number(value, 128, 1 << 32)?),
        "timeout_us" => config.timeout = Nanos::from_micros(number(value, 1, 60_000_000)?),
        "sabotage" => config.sabotage = sabotage(&SABOTAGES, value)?,
        _ => unreachable!("{key} is not among the baselines' keys"),
    }
    Ok(())
}

impl SystemConfig for RdmaOccConfig {
    fn published(system: &str, sizes: &Sizes<'_>) -> Self {
        let &Sizes { source, value_bytes, live, .. } = sizes;
        // Those of ordered tables need no slots.
        let hashed = source.records_per_shard() - source.ordered_per_shard();
        match Self::named(system, hashed + source.growth_per_shard(), value_bytes) {
            Some(config) if live => Self { timeout: LIVE_TIMEOUT, ..config },
            Some(config) => config,
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

#[cfg(test)]
mod tests {
    use super::super::workloads::{self, BuiltWorkload};
    use super::*;
    use crate::settings::apply;
    use crate::workloads::WorkloadSpec;

    #[test]
    fn on_threads_a_phase_waits_for_half_a_second() {
        let spec = WorkloadSpec::named("smallbank");
        let BuiltWorkload { workload, value_bytes } = workloads::build(&spec, 3).unwrap();
        for (live, millis) in [(true, 500), (false, 20)] {
            let sizes = Sizes { source: &*workload, value_bytes, nic_memory: None, live };
            let timeout = Nanos::from_millis(millis);
            assert_eq!(XenicConfig::published("xenic", &sizes).timeout, timeout);
            for system in ["farm", "fasst", "drtm-r", "drtm-h"] {
                assert_eq!(RdmaOccConfig::published(system, &sizes).timeout, timeout, "{system}");
            }
            assert!(TIMEOUT_US.2.contains(&format!("{millis}000")), "help tells both");
        }
    }

    #[test]
    fn the_limit_of_a_table_holds_whatever_is_said_of_growth() {
        let spec = WorkloadSpec::named("smallbank");
        let BuiltWorkload { workload, value_bytes } = workloads::build(&spec, 3).unwrap();
        let sizes = Sizes { source: &*workload, value_bytes, nic_memory: None, live: false };
        let set = |pairs: [&str; 2]| {
            let mut config = XenicConfig::published("xenic", &sizes);
            apply(&pairs.map(str::to_owned), &mut config, &mut EngineSettings::default())?;
            Ok::<_, anyhow::Error>(config.growth)
        };
        let limited = Growth::Doubling { memory_max: Bytes(5_000) };
        for [one, other] in [["growth=on", "table_bytes=5000"], ["growth=off", "table_bytes=5000"]]
        {
            for pairs in [[one, other], [other, one]] {
                match one {
                    "growth=on" => assert_eq!(set(pairs).unwrap(), limited, "{pairs:?}"),
                    _ => assert!(
                        set(pairs).is_err(),
                        "{pairs:?}: growth is off, and the limit ignored"
                    ),
                }
            }
        }
    }
}
