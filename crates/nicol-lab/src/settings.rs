//! `--set key=value`: every mechanism of a system that can be varied.

use anyhow::{Context, Result, anyhow, bail, ensure};
use nicol_core::engine::DoorbellBatch;
use nicol_core::names::did_you_mean;
use nicol_core::records::RecordSource;
use nicol_core::units::{Bytes, Nanos};

use crate::config::BenchConfig;

/// A key of `--set`: its name, its values, what it means.
pub type Setting = (&'static str, &'static str, &'static str);

/// Something with keys that `--set` may change.
pub trait Settings {
    /// The keys.
    const KEYS: &'static [Setting];
    /// Keys that no list shows, for tests and sweeps: under them the system is not correct.
    const HIDDEN: &'static [Setting] = &[];
    /// Keys that are applied before all others, since those change what these bring.
    const FIRST: &'static [&'static str] = &[];

    /// May clients run on nodes of their own under these settings (`key=value`)?
    fn allow_clients_apart(_: &[String]) -> bool {
        true
    }

    /// Changes `key`, which is one of [`Settings::KEYS`] or hidden. Errors say what is wrong with
    /// the value.
    fn set(&mut self, key: &str, value: &str) -> Result<()>;
}

/// The memory of a store that serves, and what it is for.
pub struct ServingMemory {
    /// All of it.
    pub limit: Bytes,
    /// Nodes, each of which has a NIC engine.
    pub nodes: u64,
    /// Copies of each shard.
    pub replicas: u64,
    /// Records that each shard is prepared for.
    pub records: u64,
}

/// How a system runs: what `--set` may change in it, and what else the harness asks of that.
pub trait SystemConfig: Settings + Clone + Send + Sync + 'static {
    /// The published choices of the system of this name, with memory of these sizes.
    fn published(system: &str, sizes: &Sizes<'_>) -> Self;

    /// The same for a store that takes what clients from elsewhere ask for, within this memory.
    ///
    /// # Errors
    /// If the memory does not suffice. Default: that the system serves no store.
    fn serving(self, _: &ServingMemory) -> Result<Self> {
        bail!("the system serves no store")
    }

    /// Does it fit what it is run on?
    ///
    /// # Errors
    /// If not: the flag or setting, and the remedy.
    fn check(&self, _: &BenchConfig) -> Result<()> {
        Ok(())
    }

    /// What a reader of results must know: settings under which the system is not correct.
    fn warnings(&self) -> Vec<String>;

    /// How long all clients may wait at the same time, for what its settings ask to wait for. A run
    /// without faults in which nothing ends for seconds longer is stuck.
    fn longest_wait(&self) -> Nanos {
        Nanos::ZERO
    }

    /// How its engines behave unless `--set` says otherwise.
    fn engines(&self) -> EngineSettings {
        EngineSettings::default()
    }
}

/// What a system's memory must hold.
pub struct Sizes<'a> {
    /// Its records.
    pub source: &'a dyn RecordSource,
    /// Bytes of a value that a table slot should hold.
    pub value_bytes: usize,
    /// What NICs have, where that is known.
    pub nic_memory: Option<Bytes>,
    /// Does it run on threads, and not in simulated time?
    pub live: bool,
}

/// The hidden key of systems that can be broken on purpose, so that a sweep can show that its
/// checkers see it.
pub(crate) const SABOTAGE: Setting = ("sabotage", "NAME", "break the protocol on purpose");

/// The sabotage of this name.
pub(crate) fn sabotage<T: Copy>(known: &[(&'static str, T)], name: &str) -> Result<T> {
    let names = || known.iter().map(|(name, _)| *name);
    let found = known.iter().find(|(known, _)| *known == name);
    found.map(|(_, sabotage)| *sabotage).ok_or_else(|| {
        let (meant, all) = (did_you_mean(name, names()), names().collect::<Vec<_>>().join(", "));
        anyhow!("no such sabotage{meant}: choose one of {all}")
    })
}

/// The warning of a protocol that is broken on purpose.
pub(crate) fn broken<T: PartialEq>(known: &[(&'static str, T)], sabotage: T) -> Vec<String> {
    let found = known.iter().find(|(_, known)| *known == sabotage);
    let warning =
        |name| format!("sabotage={name}: broken on purpose; only a checker should meet it");
    found.map(|(name, _)| warning(name)).into_iter().collect()
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
    pub doorbell_batch: Option<DoorbellBatch>,
}

/// Applies settings in order, but for [`Settings::FIRST`]; a later one wins. Errors name the key,
/// the value and the remedy.
pub fn apply<C: Settings>(
    settings: &[String],
    system: &mut C,
    engine: &mut EngineSettings,
) -> Result<()> {
    let is_first = |setting: &&String| {
        setting.split_once('=').is_some_and(|(key, _)| C::FIRST.contains(&key.trim()))
    };
    let others = settings.iter().filter(|setting| !is_first(setting));
    for setting in settings.iter().filter(is_first).chain(others) {
        let Some((key, value)) = setting.split_once('=') else {
            bail!("--set {setting}: write key=value; keys are {}", names::<C>());
        };
        one(key.trim(), value.trim(), system, engine)
            .with_context(|| format!("--set {setting}"))?;
    }
    Ok(())
}

/// The value that these settings (`key=value`) give `key`; a later one wins.
pub(crate) fn value_of<'s>(settings: &'s [String], key: &str) -> Option<&'s str> {
    let mut pairs = settings.iter().filter_map(|setting| setting.split_once('='));
    pairs.rfind(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
}

/// Refuses each of `keys` that is set, for it would change nothing.
///
/// # Errors
/// The setting, why it is not taken, and the remedy.
pub(crate) fn refuse_idle(settings: &[String], keys: &[&str], why: &str) -> Result<()> {
    match keys.iter().find_map(|key| Some((key, value_of(settings, key)?))) {
        Some((key, value)) => bail!("--set {key}={value}: {why}; leave it out"),
        None => Ok(()),
    }
}

/// Is one of these settings an engine's?
pub(crate) fn change_engines(settings: &[String]) -> bool {
    EngineSettings::KEYS.iter().any(|(key, ..)| value_of(settings, key).is_some())
}

fn one<C: Settings>(
    key: &str,
    value: &str,
    system: &mut C,
    engine: &mut EngineSettings,
) -> Result<()> {
    let among = |keys: &[Setting]| keys.iter().any(|(name, ..)| *name == key);
    match key {
        _ if among(C::KEYS) || among(C::HIDDEN) => system.set(key, value),
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
        (
            "doorbell_batch",
            "1..64|adaptive",
            "one-sided operations per doorbell; adaptive: all of a round, but not from a host to its own \
             SoC (simulated worlds)",
        ),
    ];

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "aggregation" => self.aggregation = Some(switch(value)?),
            "dma_vector" => self.dma_vector = Some(number(value, 1, 15)? as usize),
            "dma_async" => self.dma_async = Some(switch(value)?),
            "doorbell_batch" => {
                let most = DoorbellBatch::MOST as u64;
                self.doorbell_batch = Some(match value {
                    "adaptive" => DoorbellBatch::Adaptive,
                    _ => DoorbellBatch::UpTo(number(value, 1, most)? as usize),
                });
            }
            _ => unreachable!("{key} is not among the keys of engines"),
        }
        Ok(())
    }
}
