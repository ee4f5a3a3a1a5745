//! Pilaf as systems, with READs by the card and in software: what may be set in it.

use anyhow::Result;
use nicol_prism::pilaf::{Index, Node, PilafConfig, Reads, Sabotage};

use super::key_values::{HASH, KEY_BYTES, churn_on_two_servers};
use crate::config::BenchConfig;
use crate::key_value::{KeyValueConfig, system};
use crate::memory::refuse_places_beyond_machine;
use crate::settings::{
    BY_RECORDS, Setting, Settings, Sizes, SystemConfig, broken, micros, numbers, sabotage, switch,
    words,
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
    fn table() -> Vec<Setting<Self>> {
        let indexes = [("probing", Index::Probing), ("cuckoo", Index::Cuckoo)];
        let hashes = [("probing", false), ("collision-free", true)];
        vec![
            sabotage(SABOTAGES, |to: &mut Self| &mut to.sabotage),
            Setting::new("crc", switch(), |to: &mut Self| &mut to.crc)
                .help("without it GETs take extents that a PUT is writing")
                .hidden(),
            Setting::new("index", words(indexes), |to: &mut Self| &mut to.index)
                .help("how the hash table resolves collisions"),
            Setting::new("hash", words(hashes), |to: &mut Self| &mut to.collision_free).help(HASH),
            Setting::new("entries", numbers(1..=1 << 32), |to: &mut Self| &mut to.entries)
                .help("entries of a server's hash table")
                .default(BY_RECORDS),
            Setting::new("extents", numbers(1..=1 << 32), |to: &mut Self| &mut to.extents)
                .help("extents of a server, for items and for PUTs under way")
                .default(BY_RECORDS),
            Setting::new("timeout_us", micros(1..=10_000_000), |to: &mut Self| &mut to.timeout)
                .help("how long a client waits for the answer to an RPC"),
        ]
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
        let bytes = self.table_bytes().saturating_mul(config.nodes as u64);
        Ok(refuse_places_beyond_machine(bytes, &["entries", "extents"])?)
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
fn trials(system: &System, _: &str, seed: u64) -> Vec<BenchConfig> {
    let full = churn_on_two_servers(system, seed, &["entries=20", "extents=30"]);
    let mut lossy = full.clone();
    lossy.faults.messages = true;
    vec![full, lossy]
}
