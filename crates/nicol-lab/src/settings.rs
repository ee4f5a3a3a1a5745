//! `--set key=value`: every mechanism of a system that can be varied.

use anyhow::{Context, Result, bail, ensure};
use nicol_core::names::did_you_mean;
use nicol_core::units::{Bytes, Nanos};
use nicol_protocols::commit::Sabotage;
use nicol_protocols::commit::rdma_occ::{
    Execution, LockKeys, Locking, Primitive, RdmaOccConfig, Transport, Validation,
};
use nicol_protocols::commit::xenic::{
    ExecuteAt, Faithful, LocalRead, TABLE_MEMORY_MAX, XenicConfig,
};
use nicol_store::host_table::Growth;
use nicol_store::nic_index::NicIndex;
use nicol_store::remote_table::{Design, INLINE_MAX};

use crate::workloads::BuiltWorkload;

/// A key of `--set`: its name, its values, what it means.
pub type Setting = (&'static str, &'static str, &'static str);

/// Something with keys that `--set` may change.
pub trait Settings {
    /// The keys.
    const KEYS: &'static [Setting];

    /// Changes `key`, which is one of [`Settings::KEYS`]. Errors say what is wrong with the value.
    fn set(&mut self, key: &str, value: &str) -> Result<()>;
}

/// How a system of the `commit` family runs.
pub trait SystemConfig: Settings + Clone + Send + Sync + 'static {
    /// The published choices of the system of this name, with memory for the records of `built`, on
    /// NICs with `nic_memory`, where that is known.
    fn published(system: &str, built: &BuiltWorkload, nic_memory: Option<Bytes>) -> Self;

    /// What a reader of results must know: settings under which the system is not correct.
    fn warnings(&self) -> Vec<&'static str> {
        Vec::new()
    }

    /// How its engines behave unless `--set` says otherwise.
    fn engines(&self) -> EngineSettings {
        EngineSettings::default()
    }

    /// Breaks the protocol on purpose, for negative tests.
    fn break_on_purpose(&mut self, sabotage: Sabotage);
}

/// What `--set` may change besides the system's own settings: how engines behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineSettings {
    /// One frame per destination and round? [Xenic21 5.7]
    pub aggregation: Option<bool>,
    /// DMA requests per vector; 1 switches vectors off. [Xenic21 5.7]
    pub dma_vector: Option<usize>,
    /// Does a core go on while its DMAs are under way? [Xenic21 5.7]
    pub dma_async: Option<bool>,
    /// One-sided operations per doorbell.
    pub doorbell_batch: Option<usize>,
}

/// Applies settings in order; a later one wins. Errors name the key, the value and the remedy.
pub fn apply<C: Settings>(
    settings: &[String],
    system: &mut C,
    engine: &mut EngineSettings,
) -> Result<()> {
    for setting in settings {
        let Some((key, value)) = setting.split_once('=') else {
            bail!("--set {setting}: write key=value; keys are {}", names::<C>());
        };
        one(key.trim(), value.trim(), system, engine)
            .with_context(|| format!("--set {setting}"))?;
    }
    Ok(())
}

/// Is one of these settings an engine's?
pub(crate) fn change_engines(settings: &[String]) -> bool {
    let among = |key: &str| EngineSettings::KEYS.iter().any(|(name, ..)| *name == key);
    let mut keys = settings.iter().filter_map(|setting| setting.split_once('='));
    keys.any(|(key, _)| among(key.trim()))
}

fn one<C: Settings>(
    key: &str,
    value: &str,
    system: &mut C,
    engine: &mut EngineSettings,
) -> Result<()> {
    let among = |keys: &[Setting]| keys.iter().any(|(name, ..)| *name == key);
    match key {
        _ if among(C::KEYS) => system.set(key, value),
        _ if among(EngineSettings::KEYS) => engine.set(key, value),
        _ => {
            let meant = did_you_mean(key, keys::<C>().map(|(key, ..)| *key));
            bail!("no such key{meant}; keys are {}", names::<C>())
        }
    }
}

/// The keys of a system and of the engines under it.
pub fn keys<C: Settings>() -> impl Iterator<Item = &'static Setting> {
    C::KEYS.iter().chain(EngineSettings::KEYS)
}

fn names<C: Settings>() -> String {
    keys::<C>().map(|(key, ..)| *key).collect::<Vec<_>>().join(", ")
}

pub(crate) fn number(value: &str, low: u64, high: u64) -> Result<u64> {
    let number: u64 = value.parse().with_context(|| format!("'{value}' is not a whole number"))?;
    ensure!((low..=high).contains(&number), "{number} is out of range: give {low} to {high}");
    Ok(number)
}

pub(crate) fn switch(value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => bail!("'{value}': choose on or off"),
    }
}

impl Settings for EngineSettings {
    const KEYS: &'static [Setting] = &[
        ("aggregation", "on|off", "gather messages into frames (simulated worlds)"),
        ("dma_vector", "1..15", "DMA requests per vector (simulated worlds)"),
        ("dma_async", "on|off", "let cores go on while DMAs are under way (simulated worlds)"),
        ("doorbell_batch", "1..64", "one-sided operations per doorbell (simulated worlds)"),
    ];

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "aggregation" => self.aggregation = Some(switch(value)?),
            "dma_vector" => self.dma_vector = Some(number(value, 1, 15)? as usize),
            "dma_async" => self.dma_async = Some(switch(value)?),
            "doorbell_batch" => self.doorbell_batch = Some(number(value, 1, 64)? as usize),
            _ => unreachable!("{key} is not among the keys of engines"),
        }
        Ok(())
    }
}

impl Settings for XenicConfig {
    const KEYS: &'static [Setting] = &[
        ("execute_at", "host|annotation|nic", "where execution logic runs"),
        ("faithful", "paper|fixed", "paper keeps the paper's errata, and is not serializable"),
        ("combined_ops", "on|off", "lock and read in one request; off turns multi_hop off too"),
        ("multi_hop", "on|off", "a remote primary's NIC may execute a whole transaction"),
        ("local_paths", "on|off", "the host may execute a transaction whose keys are all local"),
        ("local_read", "paper|strict", "how local read-only transactions validate"),
        (
            "index_objects",
            "N",
            "capacity of each node's NIC index in objects [default: what its memory holds; on \
             threads a quarter of the records]",
        ),
        ("warm_index", "on|off", "start with a NIC index filled up to its capacity"),
        ("displacement_max", "1..64", "displacement limit D_m of the host table"),
        ("slack", "0..64", "slots read beyond the known displacement, k"),
        ("slots_percent", "1..1000", "initial table slots per record, in percent"),
        ("growth", "on|off", "double host tables when they are full"),
        ("table_bytes", "BYTES", "limit of one table's host memory"),
        ("log_bytes", "128..2^32", "each NIC core's log in host memory"),
        ("timeout_us", "MICROSECONDS", "timeout of a phase whose node does not answer"),
    ];

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "execute_at" => {
                self.execute_at = match value {
                    "host" => ExecuteAt::Host,
                    "annotation" => ExecuteAt::Annotation,
                    "nic" => ExecuteAt::Nic,
                    _ => bail!("'{value}': choose host, annotation or nic"),
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
                self.combined_ops = switch(value)?;
                self.multi_hop &= self.combined_ops;
            }
            "multi_hop" => {
                self.multi_hop = switch(value)?;
                ensure!(
                    self.combined_ops || !self.multi_hop,
                    "another node's NIC locks, reads and executes at once: set combined_ops=on"
                );
            }
            "local_paths" => self.local_paths = switch(value)?,
            "local_read" => {
                self.local_read = match value {
                    "paper" => LocalRead::Paper,
                    "strict" => LocalRead::Strict,
                    _ => bail!("'{value}': choose paper or strict"),
                }
            }
            "index_objects" => self.index_objects = number(value, 1, 1 << 32)? as usize,
            "warm_index" => self.warm_index = switch(value)?,
            "displacement_max" => self.displacement_max = number(value, 1, 64)? as u16,
            "slack" => self.slack = number(value, 0, 64)? as u16,
            "slots_percent" => self.slots_percent = number(value, 1, 1_000)?,
            "growth" => {
                self.growth = match switch(value)? {
                    true => Growth::Doubling { memory_max: TABLE_MEMORY_MAX },
                    false => Growth::Off,
                }
            }
            "table_bytes" => {
                let memory_max = Bytes(number(value, 1, 1 << 44)?);
                self.growth = Growth::Doubling { memory_max };
            }
            "log_bytes" => self.log = Bytes(number(value, 128, 1 << 32)?),
            "timeout_us" => self.timeout = Nanos::from_micros(number(value, 1, 60_000_000)?),
            _ => unreachable!("{key} is not among Xenic's keys"),
        }
        Ok(())
    }
}

impl SystemConfig for XenicConfig {
    fn published(_: &str, built: &BuiltWorkload, nic_memory: Option<Bytes>) -> Self {
        let BuiltWorkload { workload, value_bytes } = built;
        let records = workload.records_per_shard() + workload.growth_per_shard();
        let mut paper = Self::paper(records, *value_bytes);
        if let Some(memory) = nic_memory {
            // [Xenic21 4.3.3] Caching adapts to the capacity that there is.
            paper.index_objects = NicIndex::objects_in(memory, *value_bytes);
        }
        paper
    }

    fn warnings(&self) -> Vec<&'static str> {
        let mut warnings = Vec::new();
        if self.faithful == Faithful::Paper {
            warnings.push("faithful=paper: as printed, and so not serializable");
        }
        if self.local_read == LocalRead::Paper {
            warnings.push("local_read=paper: local reads may miss what is committed");
        }
        warnings
    }

    fn break_on_purpose(&mut self, sabotage: Sabotage) {
        self.sabotage = sabotage;
    }
}

impl Settings for RdmaOccConfig {
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
        ("commit_by", "one-sided|rpc", "how writes reach primaries"),
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
        ("timeout_us", "MICROSECONDS", "timeout of a phase whose node does not answer"),
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
            "commit_by" => self.commit_by = primitive(value)?,
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
        _ => unreachable!("{key} is not among the baselines' keys"),
    }
    Ok(())
}

impl SystemConfig for RdmaOccConfig {
    fn published(system: &str, built: &BuiltWorkload, _: Option<Bytes>) -> Self {
        let BuiltWorkload { workload, value_bytes } = built;
        // Those of ordered tables need no slots.
        let hashed = workload.records_per_shard() - workload.ordered_per_shard();
        match Self::named(system, hashed + workload.growth_per_shard(), *value_bytes) {
            Some(config) => config,
            None => unreachable!("{system} is listed among the systems"),
        }
    }

    fn engines(&self) -> EngineSettings {
        // One SEND per message, as in FaSST and DrTM+H: their messages gather the keys of one
        // transaction only. Frames for several transactions are Xenic's. [Xenic21 4.3.2, 5.7]
        EngineSettings { aggregation: Some(false), ..EngineSettings::default() }
    }

    fn break_on_purpose(&mut self, sabotage: Sabotage) {
        self.sabotage = sabotage;
    }
}
