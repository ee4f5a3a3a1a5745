//! DrTM-KV's alternatives as systems: what may be set in them.

use anyhow::Result;
use nicol_core::steering::Steering;
use nicol_core::units::Nanos;
use nicol_offpath::drtm_kv::{Alternative, COPIES_MAX, DrtmKvConfig, KeptBy, Node, Sabotage};

use crate::config::{BenchConfig, Length};
use crate::families::key_value::{KeyValueConfig, system};
use crate::memory::refuse_places_beyond_machine;
use crate::refused::Unfit;
use crate::settings::{
    BY_RECORDS, EngineSettings, Setting, Settings, Sizes, SystemConfig, broken, micros, numbers,
    numbers_as, sabotage, words,
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

/// Planted faults that an alternative does not notice, and why.
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

/// The number of faults that must show. Where the SoC looks keys up, nobody READs buckets or copies
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
    fn table() -> Vec<Setting<Self>> {
        let mut table = vec![sabotage(SABOTAGES, |to: &mut Self| &mut to.sabotage)];
        table.extend(memory());
        table.extend(ways());
        table.push(
            Setting::new("timeout_us", micros(1..=10_000_000), |to: &mut Self| &mut to.timeout)
                .help("how long a client waits for the answer to a request"),
        );
        table
    }
}

fn memory() -> [Setting<DrtmKvConfig>; 4] {
    type It = DrtmKvConfig;
    [
        Setting::new("buckets", numbers(1..=1 << 32), |to: &mut It| &mut to.buckets)
            .help("buckets of 64 B that keys hash to")
            .default(BY_RECORDS),
        Setting::new("spare_buckets", numbers(0..=1 << 32), |to: &mut It| &mut to.spare_buckets)
            .help("further buckets, for chains")
            .default(BY_RECORDS),
        Setting::new("extents", numbers(1..=u32::MAX.into()), |to: &mut It| &mut to.extents)
            .help("extents of a server, for values and for puts under way")
            .default(BY_RECORDS),
        Setting::new("cached", numbers(0..=1 << 32), |to: &mut It| &mut to.cached)
            .help("most values that the SoC keeps (a5, a4+a5)")
            .default(BY_RECORDS),
    ]
}

/// That a get has two ways.
fn two_ways(of: &DrtmKvConfig) -> Result<(), Unfit> {
    let why = "only drtm-kv:a4+a5 has two ways for a get";
    let two = of.alternative == Alternative::A4AndA5;
    if two { Ok(()) } else { Err(Unfit::new(why, "leave it out, or choose that system")) }
}

/// Settings of the ways in which clients get values.
fn ways() -> [Setting<DrtmKvConfig>; 4] {
    type It = DrtmKvConfig;
    let shares =
        numbers_as(0..=1_000, |share| Some(Some(share as u16)), |share| share.map(u64::from));
    [
        Setting::new(
            "kept_by",
            words([("send", KeptBy::Send), ("read", KeptBy::Read)]),
            |to: &mut It| &mut to.kept_by,
        )
        .help("send: clients ask the SoC for a value that it keeps; read: they READ it (a5)")
        .then(|to| match (to.kept_by, to.alternative) {
            (KeptBy::Send, _) | (KeptBy::Read, Alternative::A5) => Ok(()),
            (KeptBy::Read, _) => Err(Unfit::new(
                "only drtm-kv:a5 keeps values that clients READ",
                "leave it out, or choose that system",
            )),
        }),
        Setting::new("copies", numbers(1..=COPIES_MAX), |to: &mut It| &mut to.copies)
            .help(
                "copies of the SoC's memory that clients READ, each in rows of its own (a4, a5, \
                 a4+a5)",
            )
            .then(|to| match to.alternative {
                Alternative::A4 | Alternative::A5 | Alternative::A4AndA5 => Ok(()),
                _ if to.copies == 1 => Ok(()),
                _ => Err(Unfit::new(
                    "clients READ the SoC's memory with a4, a5 and a4+a5 only",
                    "leave it out, or choose one of these",
                )),
            }),
        Setting::new("asks_permille", shares, |to: &mut It| &mut to.asks_permille)
            .help("of 1,000 gets, those that ask the SoC (a4+a5)")
            .then(|to| two_ways(to)),
        Setting::new(
            "reads",
            words([("fixed", None), ("planned", Some(Steering::DEFAULT))]),
            |to: &mut It| &mut to.steering,
        )
        .help(
            "planned: every client chooses between READs and asking by measured throughput (a4+a5)",
        )
        .then(|to| if to.steering.is_some() { two_ways(to) } else { Ok(()) }),
    ]
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
        let bytes = self.table_bytes().saturating_mul(config.nodes as u64);
        Ok(refuse_places_beyond_machine(bytes, &["buckets", "spare_buckets", "extents"])?)
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
