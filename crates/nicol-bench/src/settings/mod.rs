//! `--set key=value`: every mechanism of a system that can be varied.

mod table;

use anyhow::{Result, bail};
use nicol_core::engine::{DoorbellBatch, Tuning};
use nicol_core::names::did_you_mean;
use nicol_core::records::{Empty, RecordSource};
use nicol_core::units::{Bytes, Nanos};
use serde::Serialize;

pub use table::Setting;
pub(crate) use table::{Values, bytes, micros, numbers, numbers_as, switch, words};

use crate::config::BenchConfig;
use crate::refused::{Refused, Unfit};

/// Something with settings that `--set` may change.
pub trait Settings: Sized + 'static {
    fn table() -> Vec<Setting<Self>>;

    /// Whether clients may run on nodes of their own under these settings (`key=value`)
    fn allow_clients_apart(_: &[String]) -> bool {
        true
    }
}

/// A setting as `--set help` lists it.
#[derive(Clone, Debug, Serialize)]
pub struct Described {
    pub key: &'static str,
    /// The values: words and a range, apart by bars.
    pub values: String,
    /// The value that holds unless another is given; `None` where the setting has no meaning unless
    /// another one is changed as well.
    pub default: Option<String>,
    pub meaning: &'static str,
}

/// The settings of the system of this name and of the engines under it.
pub fn describe<C: SystemConfig>(system: &'static str) -> Vec<Described> {
    let source = &Empty { capacity_per_shard: 1_000 };
    let sizes = Sizes { source, value_bytes: 64, nic_memory: None, live: false };
    let mut config = C::published(system, &sizes);
    let mut engines = config.engines().as_worlds_have_them();
    let mut rows = described(&mut config);
    rows.extend(described(&mut engines));
    rows
}

fn described<C: Settings>(config: &mut C) -> Vec<Described> {
    let listed = C::table().into_iter().filter(|row| !row.is_hidden);
    let row = |row: Setting<C>| {
        let default = row.default.map(str::to_owned).or_else(|| row.value(config));
        Described { key: row.name, values: row.values(), default, meaning: row.help }
    };
    listed.map(row).collect()
}

/// The memory of a store that serves, and what it is for.
pub struct ServingMemory {
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

    /// Checks that it fits what it is run on.
    ///
    /// # Errors
    /// If not: the flag or setting, and the remedy.
    fn check(&self, _: &BenchConfig) -> Result<()> {
        Ok(())
    }

    /// Warnings that a reader of results needs: settings under which the system is not correct.
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

/// The sizes that a system's memory must hold.
pub struct Sizes<'a> {
    pub source: &'a dyn RecordSource,
    /// Bytes of a value that a table slot should hold.
    pub value_bytes: usize,
    /// The memory of NICs, where that is known.
    pub nic_memory: Option<Bytes>,
    /// Whether it runs on threads, and not in simulated time.
    pub live: bool,
}

/// The hidden setting that breaks a system on purpose, so that a sweep can show that its checkers
/// see it.
pub(crate) fn sabotage<C: 'static, T: Clone + PartialEq + 'static>(
    known: impl IntoIterator<Item = (&'static str, T)>,
    part: fn(&mut C) -> &mut T,
) -> Setting<C> {
    Setting::new("sabotage", words(known), part).help(BREAKS).hidden()
}

/// The default of a size that follows from how many records there are, and how long they may be.
pub(crate) const BY_RECORDS: &str = "by the records";

/// The help of what breaks a system on purpose.
pub(crate) const BREAKS: &str = "break the protocol on purpose";

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
    /// One frame per destination and round. [Xenic21 5.7]
    pub aggregation: Option<bool>,
    /// DMA requests per vector; 1 switches vectors off. [Xenic21 5.7]
    pub dma_vector: Option<usize>,
    /// A core goes on while its DMAs are under way. [Xenic21 5.7]
    pub dma_async: Option<bool>,
    /// One-sided operations per doorbell.
    pub doorbell_batch: Option<DoorbellBatch>,
}

impl EngineSettings {
    /// Sets in `tuning` what it says.
    pub(crate) fn apply(self, tuning: &mut Tuning) {
        tuning.aggregation = self.aggregation.unwrap_or(tuning.aggregation);
        tuning.dma_vector = self.dma_vector.unwrap_or(tuning.dma_vector);
        tuning.dma_async = self.dma_async.unwrap_or(tuning.dma_async);
        tuning.doorbell_batch = self.doorbell_batch.unwrap_or(tuning.doorbell_batch);
    }

    /// Unset values as simulated worlds have them; vectors are as long as the hardware takes.
    pub fn as_worlds_have_them(self) -> Self {
        Self {
            aggregation: self.aggregation.or(Some(true)),
            dma_async: self.dma_async.or(Some(true)),
            doorbell_batch: self.doorbell_batch.or(Some(DoorbellBatch::UpTo(DoorbellBatch::MOST))),
            dma_vector: self.dma_vector,
        }
    }
}

/// Applies settings in order, but for those that come first; a later one wins.
///
/// # Errors
/// [`Refused`], with the setting, its value and the remedy.
pub fn apply<C: Settings>(
    settings: &[String],
    system: &mut C,
    engine: &mut EngineSettings,
) -> Result<(), Refused> {
    let (of_system, of_engines) = (C::table(), EngineSettings::table());
    let is_first = |setting: &&String| {
        let mut first = of_system.iter().filter(|row| row.is_first);
        setting.split_once('=').is_some_and(|(key, _)| first.any(|row| row.name == key.trim()))
    };
    let others = settings.iter().filter(|setting| !is_first(setting));
    for setting in settings.iter().filter(is_first).chain(others) {
        let shown = of_system.iter().filter(|row| !row.is_hidden).map(|row| row.name);
        let names = || shown.clone().chain(of_engines.iter().map(|row| row.name));
        let keys = || format!("keys are {}", names().collect::<Vec<_>>().join(", "));
        let Some((key, value)) = setting.split_once('=') else {
            return Err(Unfit::new("write key=value", keys()).of("settings", setting));
        };
        let (key, value) = (key.trim(), value.trim());
        let refused = if let Some(row) = of_system.iter().find(|row| row.name == key) {
            row.set(system, value).map_err(|unfit| unfit.of_setting(row.name, value))
        } else if let Some(row) = of_engines.iter().find(|row| row.name == key) {
            row.set(engine, value).map_err(|unfit| unfit.of_setting(row.name, value))
        } else {
            let meant = did_you_mean(key, names());
            Err(Unfit::new(format!("no such key{meant}"), keys()).of("settings", setting))
        };
        refused?;
    }
    Ok(())
}

/// The value that these settings (`key=value`) give `key`; a later one wins.
pub fn value_of<'s>(settings: &'s [String], key: &str) -> Option<&'s str> {
    let mut pairs = settings.iter().filter_map(|setting| setting.split_once('='));
    pairs.rfind(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
}

/// Refuses each of `keys` that is set, for it would change nothing.
///
/// # Errors
/// The setting, why it is not taken, and the remedy.
pub(crate) fn refuse_idle(settings: &[String], keys: &[&'static str], why: &str) -> Result<()> {
    match keys.iter().find_map(|key| Some((key, value_of(settings, key)?))) {
        Some((key, value)) => Err(Unfit::new(why, "leave it out").of_setting(key, value).into()),
        None => Ok(()),
    }
}

/// Whether one of these settings is an engine's.
pub(crate) fn change_engines(settings: &[String]) -> bool {
    EngineSettings::table().iter().any(|row| value_of(settings, row.name).is_some())
}

/// On or off.
fn given_switch() -> Values<Option<bool>> {
    words([("on", Some(true)), ("off", Some(false))])
}

impl Settings for EngineSettings {
    fn table() -> Vec<Setting<Self>> {
        let most = DoorbellBatch::MOST as u64;
        let batches = numbers_as(
            1..=most,
            |most| Some(Some(DoorbellBatch::UpTo(most as usize))),
            |batch| match batch {
                Some(DoorbellBatch::UpTo(most)) => Some(*most as u64),
                Some(DoorbellBatch::Adaptive | DoorbellBatch::OfNic(_)) | None => None,
            },
        );
        let of_vector = |requests| Some(Some(requests as usize));
        let vectors = numbers_as(1..=15, of_vector, |most| most.map(|most| most as u64));
        vec![
            Setting::new("aggregation", given_switch(), |to: &mut Self| &mut to.aggregation)
                .help("gather messages into frames (simulated worlds)"),
            Setting::new("dma_vector", vectors, |to: &mut Self| &mut to.dma_vector)
                .help("DMA requests per vector (simulated worlds)")
                .default("the profile's"),
            Setting::new("dma_async", given_switch(), |to: &mut Self| &mut to.dma_async)
                .help("let cores go on while DMAs are under way (simulated worlds)")
                .default("the profile's"),
            Setting::new(
                "doorbell_batch",
                words([("adaptive", Some(DoorbellBatch::Adaptive))]).or(batches),
                |to: &mut Self| &mut to.doorbell_batch,
            )
            .help(
                "one-sided operations per doorbell; adaptive: all of a round, but not from a host \
                 to its own SoC (simulated worlds)",
            ),
        ]
    }
}
