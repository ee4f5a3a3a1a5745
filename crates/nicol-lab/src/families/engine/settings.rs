//! What may be set in an engine.

use anyhow::{Result, bail};
use nicol_core::units::Nanos;
use nicol_protocols::engine::{EngineConfig, Sabotage, Waiting};

use crate::settings::{SABOTAGE, Setting, Settings, Sizes, SystemConfig, broken, number, sabotage};

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
            _ => unreachable!("{key} is not among the keys"),
        }
        Ok(())
    }
}

impl SystemConfig for EngineConfig {
    fn published(_system: &str, sizes: &Sizes<'_>) -> Self {
        Self::published(sizes.value_bytes)
    }

    fn warnings(&self) -> Vec<String> {
        broken(&SABOTAGES, self.sabotage)
    }
}
