//! Pilaf as systems, with READs by the card and in software: what may be set in it.

use anyhow::{Result, bail};
use nicol_core::units::Nanos;
use nicol_prism::pilaf::{Index, Node, PilafConfig, Reads, Sabotage};

use super::key_values::{KEY_BYTES, churn_on_two_servers};
use crate::config::BenchConfig;
use crate::families::key_value::{KeyValueConfig, system};
use crate::memory::refuse_places_beyond_machine;
use crate::settings::{
    SABOTAGE, Setting, Settings, Sizes, SystemConfig, broken, number, sabotage, switch,
};
use crate::system::System;

/// Pilaf, with plain verbs.
pub(super) const PILAF: System = pilaf("pilaf", "Pilaf, ATC '13");
/// Pilaf, whose READs software executes that executes chains.
pub(super) const PILAF_SOFTWARE: System =
    pilaf("pilaf-software", "Pilaf, ATC '13, with PRISM's software for READs");

const fn pilaf(name: &'static str, source: &'static str) -> System {
    System {
        survives: "message faults, partitions, stalls; after a crash the node's shard is refused",
        coverage_of_crashes: &["shard_unavailable"],
        sabotages: || SABOTAGES.iter().map(|(name, _)| *name).collect(),
        trials,
        ..system::<Node>("prism", name, source)
    }
}

/// Ways to break it on purpose, so that a sweep can show that its checkers see it.
const SABOTAGES: [(&str, Sabotage); 6] = [
    ("trusts_entries", Sabotage::TrustsEntries),
    ("probes_once", Sabotage::ProbesOnce),
    ("acknowledges_early", Sabotage::AcknowledgesEarly),
    ("loses_puts", Sabotage::LosesPuts),
    ("keeps_extents", Sabotage::KeepsExtents),
    ("empties_entries", Sabotage::EmptiesEntries),
];

impl Settings for PilafConfig {
    const HIDDEN: &'static [Setting] =
        &[SABOTAGE, ("crc", "on|off", "without it GETs take extents that a PUT is writing")];
    const KEYS: &'static [Setting] = &[
        ("index", "probing|cuckoo", "how the hash table resolves collisions"),
        (
            "hash",
            "probing|collision-free",
            "where the search for a key begins: at its hash, or at a slot of its own",
        ),
        ("entries", "1..2^32", "entries of a server's hash table"),
        ("extents", "1..2^32", "extents of a server, for items and for PUTs under way"),
        ("timeout_us", "1..10000000", "how long a client waits for the answer to an RPC"),
    ];

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match (key, value) {
            ("index", "probing") => self.index = Index::Probing,
            ("index", "cuckoo") => self.index = Index::Cuckoo,
            ("index", _) => bail!("'{value}': choose probing or cuckoo"),
            ("hash", "probing") => self.collision_free = false,
            ("hash", "collision-free") => self.collision_free = true,
            ("hash", _) => bail!("'{value}': choose probing or collision-free"),
            ("entries", _) => self.entries = number(value, 1, 1 << 32)?,
            ("extents", _) => self.extents = number(value, 1, 1 << 32)?,
            ("timeout_us", _) => self.timeout = Nanos::from_micros(number(value, 1, 10_000_000)?),
            ("crc", _) => self.crc = switch(value)?,
            ("sabotage", _) => self.sabotage = sabotage(&SABOTAGES, value)?,
            _ => unreachable!("{key} is not among the keys"),
        }
        Ok(())
    }
}

impl SystemConfig for PilafConfig {
    fn published(system: &str, sizes: &Sizes<'_>) -> Self {
        let source = sizes.source;
        let longest = source.value_lengths().iter().map(|(bytes, _)| u64::from(*bytes)).max();
        let value = longest.unwrap_or_default().max(sizes.value_bytes as u64);
        let items = source.records_per_shard() + source.growth_per_shard();
        let paper = Self::paper(items, KEY_BYTES + value);
        let reads = if system == PILAF_SOFTWARE.name { Reads::Chains } else { Reads::Verbs };
        Self { reads, ..paper }
    }

    fn check(&self, config: &BenchConfig) -> Result<()> {
        refuse_places_beyond_machine(
            self.table_bytes().saturating_mul(config.nodes as u64),
            "--set entries or extents",
        )
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = broken(&SABOTAGES, self.sabotage);
        let torn = "crc=off: GETs may return values that a PUT is writing";
        warnings.extend((!self.crc).then(|| torn.to_owned()));
        warnings
    }
}

impl KeyValueConfig for PilafConfig {}

/// Runs in which a broken protocol shows: a table so full that searches meet other keys, and
/// extents that are soon used again.
fn trials(system: &System, seed: u64) -> Vec<BenchConfig> {
    let full = churn_on_two_servers(system, seed, &["entries=20", "extents=30"]);
    let mut lossy = full.clone();
    lossy.faults.messages = true;
    vec![full, lossy]
}
