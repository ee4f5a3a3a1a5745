//! DrTM-KV's alternatives as systems: what may be set in them.

use anyhow::{Result, bail};
use nicol_core::steering::Steering;
use nicol_core::units::Nanos;
use nicol_offpath::drtm_kv::{Alternative, COPIES_MAX, DrtmKvConfig, KeptBy, Node, Sabotage};

use crate::config::{BenchConfig, Length};
use crate::families::key_value::{KeyValueConfig, system};
use crate::memory::refuse_places_beyond_machine;
use crate::settings::{
    EngineSettings, SABOTAGE, Setting, Settings, Sizes, SystemConfig, broken, number, sabotage,
};
use crate::system::System;
use crate::workloads::WorkloadSpec;

/// The alternatives by their names.
const ALTERNATIVES: [(&str, Alternative); 7] = [
    ("drtm-kv:rnic", Alternative::Rnic),
    ("drtm-kv:a1", Alternative::A1),
    ("drtm-kv:a2", Alternative::A2),
    ("drtm-kv:a3", Alternative::A3),
    ("drtm-kv:a4", Alternative::A4),
    ("drtm-kv:a5", Alternative::A5),
    ("drtm-kv:a4+a5", Alternative::A4AndA5),
];

/// The systems, in that order.
pub(super) const SYSTEMS: [System; 7] = [
    alternative(0),
    alternative(1),
    alternative(2),
    alternative(3),
    alternative(4),
    alternative(5),
    alternative(6),
];

const fn alternative(at: usize) -> System {
    let (name, alternative) = ALTERNATIVES[at];
    System {
        survives: "message faults, partitions, stalls; after a crash the node's shard is refused",
        coverage_of_crashes: &["shard_unavailable"],
        sabotages: || SABOTAGES.iter().map(|(name, _)| *name).collect(),
        harmless: harmless(alternative),
        least_faults: least_faults(alternative),
        trials,
        ..system::<Node>("offpath", name, "DrTM-KV on off-path SmartNICs, OSDI '23")
    }
}

/// A fault that shows where clients READ one of several copies of the index.
const OLD_COPIES: &str = "leaves_old_copies";

/// What an alternative does not notice, and why.
const fn harmless(alternative: Alternative) -> &'static [(&'static str, &'static str)] {
    const CACHED: (&str, &str) = ("keeps_cached", "it keeps no values");
    const CHAINS: (&str, &str) = ("ignores_chains", "no chain is followed to look a key up");
    const TORN: (&str, &str) = ("tears_buckets", "nobody READs a bucket: the SoC looks keys up");
    const COPIES: (&str, &str) = (OLD_COPIES, "nobody READs a copy of the index");
    match alternative {
        Alternative::A3 => &[CACHED, CHAINS, TORN, COPIES],
        Alternative::A5 => &[CHAINS, TORN, COPIES],
        Alternative::A4AndA5 => &[],
        Alternative::A4 => &[CACHED],
        Alternative::Rnic | Alternative::A1 | Alternative::A2 => &[CACHED, COPIES],
    }
}

/// How many faults must show at least: where the SoC looks keys up, nobody READs buckets or copies
/// of them.
const fn least_faults(alternative: Alternative) -> usize {
    match alternative {
        Alternative::A3 => 4,
        Alternative::A5 => 5,
        _ => System::LEAST_FAULTS,
    }
}

/// Ways to break it on purpose, so that a sweep can show that its checkers see it.
const SABOTAGES: [(&str, Sabotage); 8] = [
    ("trusts_extents", Sabotage::TrustsExtents),
    ("ignores_chains", Sabotage::IgnoresChains),
    ("acknowledges_early", Sabotage::AcknowledgesEarly),
    ("loses_puts", Sabotage::LosesPuts),
    ("keeps_extents", Sabotage::KeepsExtents),
    ("keeps_cached", Sabotage::KeepsCached),
    ("tears_buckets", Sabotage::TearsBuckets),
    (OLD_COPIES, Sabotage::LeavesOldCopies),
];

impl Settings for DrtmKvConfig {
    const HIDDEN: &'static [Setting] = &[SABOTAGE];
    const KEYS: &'static [Setting] = &[
        ("buckets", "1..2^32", "buckets of 64 B that keys hash to"),
        ("spare_buckets", "0..2^32", "further buckets, for chains"),
        ("extents", "1..2^32-1", "extents of a server, for values and for puts under way"),
        ("cached", "0..2^32", "most values that the SoC keeps (a5, a4+a5)"),
        (
            "kept_by",
            "send|read",
            "do clients ask the SoC for a value that it keeps, or READ it? (a5)",
        ),
        (
            "copies",
            "1..16",
            "copies of the SoC's memory that clients READ, each in rows of its own (a4, a5, a4+a5)",
        ),
        ("asks_permille", "0..1000", "of 1,000 gets, those that ask the SoC (a4+a5)"),
        (
            "reads",
            "fixed|planned",
            "planned: every client chooses between READs and asking by what gave more lately (a4+a5)",
        ),
        ("timeout_us", "1..10000000", "how long a client waits for the answer to a request"),
    ];

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "buckets" => self.buckets = number(value, 1, 1 << 32)?,
            "spare_buckets" => self.spare_buckets = number(value, 0, 1 << 32)?,
            "extents" => self.extents = number(value, 1, u32::MAX.into())?,
            "cached" => self.cached = number(value, 0, 1 << 32)?,
            "kept_by" => {
                self.kept_by = match value {
                    "send" => KeptBy::Send,
                    "read" if self.alternative == Alternative::A5 => KeptBy::Read,
                    "read" => bail!("'{value}': only drtm-kv:a5 keeps values that clients READ"),
                    _ => bail!("'{value}': choose send or read"),
                }
            }
            "copies" => {
                let copies = number(value, 1, COPIES_MAX)?;
                let reads = matches!(
                    self.alternative,
                    Alternative::A4 | Alternative::A5 | Alternative::A4AndA5
                );
                if copies > 1 && !reads {
                    bail!("'{value}': clients READ the SoC's memory with a4, a5 and a4+a5 only");
                }
                self.copies = copies;
            }
            "asks_permille" => {
                let share = number(value, 0, 1_000)? as u16;
                if self.alternative != Alternative::A4AndA5 {
                    bail!("'{value}': only drtm-kv:a4+a5 has two ways for a get");
                }
                self.asks_permille = Some(share);
            }
            "reads" => {
                self.steering = match value {
                    "fixed" => None,
                    "planned" if self.alternative == Alternative::A4AndA5 => {
                        Some(Steering::DEFAULT)
                    }
                    "planned" => bail!("'{value}': only drtm-kv:a4+a5 has two ways for a get"),
                    _ => bail!("'{value}': choose fixed or planned"),
                }
            }
            "timeout_us" => self.timeout = Nanos::from_micros(number(value, 1, 10_000_000)?),
            "sabotage" => self.sabotage = sabotage(&SABOTAGES, value)?,
            _ => unreachable!("{key} is not among the keys"),
        }
        Ok(())
    }
}

impl SystemConfig for DrtmKvConfig {
    fn published(system: &str, sizes: &Sizes<'_>) -> Self {
        let source = sizes.source;
        let longest = source.value_lengths().iter().map(|(bytes, _)| u64::from(*bytes)).max();
        let value = longest.unwrap_or_default().max(sizes.value_bytes as u64);
        let found = ALTERNATIVES.iter().find(|(name, _)| *name == system);
        let alternative = found.map_or(Alternative::A1, |(_, alternative)| *alternative);
        Self::paper(alternative, source.records_per_shard(), value)
    }

    /// SENDs are datagrams of one message each, as C4.22 counts them.
    fn engines(&self) -> EngineSettings {
        EngineSettings { aggregation: Some(false), ..EngineSettings::default() }
    }

    fn check(&self, config: &BenchConfig) -> Result<()> {
        refuse_places_beyond_machine(
            self.table_bytes().saturating_mul(config.nodes as u64),
            "--set buckets, spare_buckets or extents",
        )
    }

    fn warnings(&self) -> Vec<String> {
        broken(&SABOTAGES, self.sabotage)
    }
}

impl KeyValueConfig for DrtmKvConfig {}

/// Runs in which a broken protocol shows: one bucket with a long chain, hardly an extent more than
/// there are values, and a cache that holds a part.
fn trials(system: &System, seed: u64) -> Vec<BenchConfig> {
    let spec = WorkloadSpec { records: Some(12), ..WorkloadSpec::named("ycsb") };
    // Frames of several messages let puts follow each other more closely.
    let settings = ["buckets=2", "extents=15", "cached=6", "aggregation=on"];
    let plain = BenchConfig {
        settings: settings.iter().map(ToString::to_string).collect(),
        nodes: 1,
        client_nodes: 3,
        replicas: 1,
        host_engines: Some(2),
        nic_engines: Some(2),
        clients: Some(6),
        length: Some(Length::Transactions(900)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system.name, spec, "bluefield2", seed)
    };
    let mut lossy = plain.clone();
    lossy.faults.messages = true;
    let reads_copies = system.harmless.iter().all(|(name, _)| *name != OLD_COPIES);
    let copied = reads_copies.then(|| {
        let mut copied = plain.clone();
        copied.settings.push("copies=4".to_owned());
        copied
    });
    [plain, lossy].into_iter().chain(copied).collect()
}
