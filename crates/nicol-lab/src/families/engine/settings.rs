//! What may be set in an engine.

use anyhow::{Context, Result, bail, ensure};
use nicol_core::units::{Bytes, Nanos};
use nicol_engines::{EngineConfig, Sabotage, Waiting};
use nicol_rt::LogDevice;
use nicol_schedule::FeatureMap;

use crate::config::BenchConfig;
use crate::families::scheduling::{self, check_cores, scheduler, set_schedule, without_scheduler};
use crate::memory;
use crate::settings::{
    SABOTAGE, Setting, Settings, Sizes, SystemConfig, broken, number, sabotage, switch, value_of,
};

/// Ways to break an engine on purpose, so that a sweep can show that its checkers see it.
const SABOTAGES: [(&str, Sabotage); 12] = [
    ("skips_validation", Sabotage::SkipsValidation),
    ("tears_reads", Sabotage::TearsReads),
    ("ignores_locks", Sabotage::IgnoresLocks),
    ("forgets_leaves", Sabotage::ForgetsLeaves),
    ("wrong_epoch", Sabotage::WrongEpoch),
    ("frees_early", Sabotage::FreesEarly),
    ("always_waits", Sabotage::AlwaysWaits),
    ("forgets_readers", Sabotage::ForgetsReaders),
    ("forgets_seen", Sabotage::ForgetsSeen),
    ("keeps_locks", Sabotage::KeepsLocks),
    ("acknowledges_early", Sabotage::AcknowledgesEarly),
    ("claims_early", Sabotage::ClaimsEarly),
];

/// The names of some ways to break an engine, and of those to break a scheduler in front of it.
pub(super) fn names_of(sabotages: &[Sabotage]) -> Vec<&'static str> {
    let among = |(_, sabotage): &&(&str, Sabotage)| sabotages.contains(sabotage);
    let engines = SABOTAGES.iter().filter(among).map(|(name, _)| *name);
    engines.chain(scheduling::SABOTAGES.iter().map(|(name, _)| *name)).collect()
}

/// What is broken.
#[derive(Clone, Copy)]
enum Broken {
    Engine(Sabotage),
    Scheduler(nicol_schedule::Sabotage),
}

/// Breaks the engine, or the scheduler in front of it.
fn set_sabotage(config: &mut EngineConfig, name: &str) -> Result<()> {
    let engines = SABOTAGES.map(|(name, one)| (name, Broken::Engine(one)));
    let schedulers = scheduling::SABOTAGES.map(|(name, one)| (name, Broken::Scheduler(one)));
    match sabotage(&[&engines[..], &schedulers].concat(), name)? {
        Broken::Engine(sabotage) => config.sabotage = sabotage,
        Broken::Scheduler(sabotage) => config.schedule_sabotage = sabotage,
    }
    break_scheduler(config);
    Ok(())
}

/// Whichever of the two settings comes first.
fn break_scheduler(config: &mut EngineConfig) {
    if let Some(schedule) = &mut config.schedule {
        schedule.sabotage = config.schedule_sabotage;
    }
}

impl Settings for EngineConfig {
    const KEYS: &'static [Setting] = &[
        ("epoch_us", "1..10000000", "how often the epoch moves on, and deleted records are freed"),
        (
            "reserve_mb",
            "0..16384",
            "MiB for further records, and half as much for ordered tables, taken before the run",
        ),
        (
            "log",
            "on|off",
            "log transactions, and answer them when their epoch is durable (group commit)",
        ),
        ("spins", "1..1000000", "looks at a locked record before a transaction aborts"),
        ("stall_us", "0..1000000", "the longest of the stalls that some steps suffer, for tests"),
        (
            "scheduler",
            "none|alnico|alnico-cpu-2|alnico-cpu-n|static-partition|strife|round-robin",
            "what decides which core executes a request; none: clients are on the cores",
        ),
        (
            "rpc",
            "two-writes|one-message",
            "how a request reaches alnico: data to the host and vector to the card, or both through it",
        ),
        (
            "ranking",
            "artifact|improved",
            "how alnico breaks ties, and when its counters take effect",
        ),
        ("planes", "1|2", "does alnico tell reads from writes"),
        ("completion", "reply|slot", "when alnico learns that a request is done"),
        (
            "publish",
            "always|on-change|never",
            "which vectors alnico's software publishes; never: nothing weighs, the shortest queue wins",
        ),
        ("feedback_us", "1..10000000", "how often alnico's software computes vectors"),
        ("window", "1..2^20", "aborts that a worker remembers, on which alnico's vectors rest"),
        ("reserved", "0..31", "workers that execute long transactions only (TPC-C: Delivery)"),
        ("at_a_time", "1..64", "requests that a worker executes at a time"),
        ("padding", "0..65536", "bytes of a request beyond its own, as null RPCs have them"),
        ("batch", "1..2^20", "most requests of a batch of strife"),
        ("batch_us", "1..2^30", "the time after which a batch of strife is closed"),
        (
            "timeout_us",
            "1..2^32",
            "how long a client waits for the answer to a request, batch and epoch apart",
        ),
        (
            "waiting",
            "no-wait|wait-die",
            "2pl: what a transaction does at a held lock: abort, or wait if it is older",
        ),
    ];
    const HIDDEN: &'static [Setting] = &[SABOTAGE];
    const FIRST: &'static [&'static str] = &["scheduler"];

    /// Without a scheduler clients are on the server's cores.
    fn allow_clients_apart(settings: &[String]) -> bool {
        value_of(settings, "scheduler").is_some_and(|name| name != "none")
    }

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "epoch_us" => self.epoch = Nanos::from_micros(number(value, 1, 10_000_000)?),
            "reserve_mb" => self.reserve = Bytes(number(value, 0, 16_384)? << 20),
            "log" => self.log = switch(value)?,
            "spins" => self.spins = number(value, 1, 1_000_000)? as u32,
            "waiting" => {
                self.waiting = match value {
                    "no-wait" => Waiting::NoWait,
                    "wait-die" => Waiting::WaitDie,
                    _ => bail!("'{value}': choose no-wait or wait-die"),
                }
            }
            "stall_us" => self.stall = Nanos::from_micros(number(value, 0, 1_000_000)?),
            "sabotage" => set_sabotage(self, value)?,
            "scheduler" => {
                self.schedule = scheduler(value)?;
                break_scheduler(self);
            }
            _ => {
                let schedule = self.schedule.as_mut();
                let schedule = schedule.with_context(|| without_scheduler(key))?;
                set_schedule(schedule, key, value)?;
            }
        }
        Ok(())
    }
}

impl SystemConfig for EngineConfig {
    fn published(_system: &str, sizes: &Sizes<'_>) -> Self {
        Self::published(sizes.value_bytes, FeatureMap::of(sizes.source))
    }

    fn check(&self, config: &BenchConfig) -> Result<()> {
        let clients = config.client_nodes;
        let reserved = self.reserve.0 + self.reserve.0 / 2;
        memory::refuse_places_beyond_machine(reserved, "--set reserve_mb")?;
        ensure!(
            self.log || config.log_device == LogDevice::Memory,
            "--log-device: nothing is logged; --set log=on, or leave it out"
        );
        ensure!(
            value_of(&config.settings, "waiting").is_none() || config.system == "2pl",
            "--set waiting: {} holds no locks while it executes; leave it out, or --system 2pl",
            config.system
        );
        let Some(schedule) = &self.schedule else {
            ensure!(
                clients == 0,
                "--client-nodes {clients}: without a scheduler clients are on the cores; leave it out, \
                 or --set scheduler=NAME"
            );
            return Ok(());
        };
        ensure!(
            clients > 0,
            "--set scheduler: requests come from nodes for clients; give --client-nodes 1 or more"
        );
        check_cores(schedule, config)
    }

    fn longest_wait(&self) -> Nanos {
        Self::longest_wait(self)
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = broken(&SABOTAGES, self.sabotage);
        warnings.extend(broken(&scheduling::SABOTAGES, self.schedule_sabotage));
        if self.schedule.is_none() && self.schedule_sabotage != nicol_schedule::Sabotage::None {
            warnings.push("no scheduler is there to be broken: --set scheduler=NAME".to_owned());
        }
        warnings
    }
}
