//! What may be set in an engine.

use anyhow::{Context, Result, bail, ensure};
use nicol_core::units::Nanos;
use nicol_protocols::engine::{EngineConfig, Sabotage, Waiting};
use nicol_protocols::schedule::{
    Completion, FeatureMap, Kind, Planes, Policy, Ranking, ScheduleConfig, WORKERS_MAX,
};

use crate::config::BenchConfig;
use crate::settings::{SABOTAGE, Setting, Settings, Sizes, SystemConfig, broken, number, sabotage};

/// Who may schedule.
const SCHEDULERS: [(&str, Kind); 6] = [
    ("alnico", Kind::Alnico),
    ("alnico-cpu-2", Kind::AlnicoCpu2),
    ("alnico-cpu-n", Kind::AlnicoCpuN),
    ("static-partition", Kind::StaticPartition),
    ("strife", Kind::Strife),
    ("round-robin", Kind::RoundRobin),
];

/// Changes a setting of a scheduler.
fn set_schedule(schedule: &mut ScheduleConfig, key: &str, value: &str) -> Result<()> {
    match (key, value) {
        ("ranking", "artifact") => schedule.ranking = Ranking::Artifact,
        ("ranking", "improved") => schedule.ranking = Ranking::Improved,
        ("ranking", _) => bail!("'{value}': choose artifact or improved"),
        ("planes", "1") => schedule.planes = Planes::One,
        ("planes", "2") => schedule.planes = Planes::Two,
        ("planes", _) => bail!("'{value}': choose 1 or 2"),
        ("completion", "reply") => schedule.completion = Completion::Reply,
        ("completion", "slot") => schedule.completion = Completion::Slot,
        ("completion", _) => bail!("'{value}': choose reply or slot"),
        ("publish", "always") => schedule.policy = Policy::Always,
        ("publish", "on-change") => schedule.policy = Policy::OnChange,
        ("publish", _) => bail!("'{value}': choose always or on-change"),
        ("feedback_us", _) => {
            schedule.feedback = Nanos::from_micros(number(value, 1, 10_000_000)?);
        }
        ("reserved", _) => schedule.reserved = number(value, 0, WORKERS_MAX as u64 - 1)? as usize,
        ("padding", _) => schedule.padding = number(value, 0, 1 << 16)? as u32,
        ("batch", _) => schedule.batch = number(value, 1, 1 << 20)? as usize,
        ("batch_us", _) => schedule.batch_time = Nanos::from_micros(number(value, 1, 1 << 30)?),
        _ => schedule.timeout = Nanos::from_micros(number(value, 1, 1 << 32)?),
    }
    Ok(())
}

/// Why a scheduler's setting means nothing without one.
fn without_scheduler(key: &str) -> String {
    let why = match key {
        "timeout_us" => "clients are on the cores, and wait for no answer that may not come",
        _ => "nobody schedules",
    };
    format!("{why}: set scheduler=NAME before {key}, or leave {key} out")
}

/// Ways to break an engine on purpose, so that a sweep can show that its checkers see it.
const SABOTAGES: [(&str, Sabotage); 8] = [
    ("skips_validation", Sabotage::SkipsValidation),
    ("ignores_locks", Sabotage::IgnoresLocks),
    ("forgets_leaves", Sabotage::ForgetsLeaves),
    ("wrong_epoch", Sabotage::WrongEpoch),
    ("frees_early", Sabotage::FreesEarly),
    ("always_waits", Sabotage::AlwaysWaits),
    ("forgets_readers", Sabotage::ForgetsReaders),
    ("keeps_locks", Sabotage::KeepsLocks),
];

/// The names of some ways to break an engine.
pub(super) fn names_of(sabotages: &[Sabotage]) -> Vec<&'static str> {
    let among = |(_, sabotage): &&(&str, Sabotage)| sabotages.contains(sabotage);
    SABOTAGES.iter().filter(among).map(|(name, _)| *name).collect()
}

impl Settings for EngineConfig {
    const KEYS: &'static [Setting] = &[
        ("epoch_us", "1..10000000", "how often the epoch moves on, and deleted records are freed"),
        ("spins", "1..1000000", "looks at a locked record before a transaction aborts"),
        ("stall_us", "0..1000000", "the longest of the stalls that some steps suffer, for tests"),
        (
            "scheduler",
            "none|alnico|alnico-cpu-2|alnico-cpu-n|static-partition|strife|round-robin",
            "who decides which core executes a request; none: clients are on the cores",
        ),
        ("ranking", "artifact|improved", "how alnico breaks ties, and when its counters count"),
        ("planes", "1|2", "does alnico tell reads from writes"),
        ("completion", "reply|slot", "when alnico learns that a request is done"),
        ("publish", "always|on-change", "which vectors alnico's software publishes"),
        ("feedback_us", "1..10000000", "how often alnico's software computes vectors"),
        (
            "reserved",
            "0..31",
            "workers that take what takes long (TPC-C: Delivery), and nothing else",
        ),
        ("padding", "0..65536", "bytes of a request beyond its own, as null RPCs have them"),
        ("batch", "1..2^20", "requests of a batch of strife at most"),
        ("batch_us", "1..2^30", "how long a batch of strife is open at most"),
        ("timeout_us", "1..2^32", "how long a client waits for the answer to a request"),
        (
            "waiting",
            "no-wait|wait-die",
            "2pl: what a transaction does that finds a lock: abort, or wait if it is older",
        ),
    ];
    const HIDDEN: &'static [Setting] = &[SABOTAGE];

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "epoch_us" => self.epoch = Nanos::from_micros(number(value, 1, 10_000_000)?),
            "spins" => self.spins = number(value, 1, 1_000_000)? as u32,
            "waiting" => {
                self.waiting = match value {
                    "no-wait" => Waiting::NoWait,
                    "wait-die" => Waiting::WaitDie,
                    _ => bail!("'{value}': choose no-wait or wait-die"),
                }
            }
            "stall_us" => self.stall = Nanos::from_micros(number(value, 0, 1_000_000)?),
            "sabotage" => self.sabotage = sabotage(&SABOTAGES, value)?,
            "scheduler" if value == "none" => self.schedule = None,
            "scheduler" => {
                let found = SCHEDULERS.iter().find(|(name, _)| *name == value);
                let names = SCHEDULERS.map(|(name, _)| name).join(", ");
                let (_, kind) =
                    found.with_context(|| format!("'{value}': choose none or one of {names}"))?;
                self.schedule = Some(ScheduleConfig::published(*kind));
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
        let busy = schedule.dispatchers() + schedule.reserved;
        if let Some(cores) = config.host_engines {
            ensure!(
                (busy + 1..=WORKERS_MAX).contains(&cores),
                "--host-engines {cores}: {busy} cores schedule or are reserved; give {} to \
                 {WORKERS_MAX}",
                busy + 1
            );
        } else {
            ensure!(
                busy == 0 || config.on != crate::config::THREADS,
                "--host-engines: give {} or more: {busy} cores schedule or are reserved",
                busy + 1
            );
        }
        Ok(())
    }

    fn warnings(&self) -> Vec<String> {
        broken(&SABOTAGES, self.sabotage)
    }
}
