//! DrTM-KV's alternatives as systems: what may be set in them.

use anyhow::Result;
use nicol_core::steering::Steering;
use nicol_core::units::Nanos;
use nicol_offpath::drtm_kv::{
    Alternative, Asking, COPIES_MAX, DrtmKvConfig, KeptBy, Node, Sabotage,
};

use crate::config::{BenchConfig, Length};
use crate::key_value::{KeyValueConfig, system};
use crate::memory::refuse_places_beyond_machine;
use crate::settings::{
    BY_RECORDS, EngineSettings, Setting, Settings, Sizes, SystemConfig, broken, micros, numbers,
    numbers_as, refuse_idle, sabotage, value_of, words,
};
use crate::system::{Needs, System};
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
        needs: match alternative {
            Alternative::Rnic | Alternative::A1 => Needs::NONE,
            _ => Needs::SOC,
        },
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

/// Settings of the ways in which clients get values.
fn ways() -> [Setting<DrtmKvConfig>; 5] {
    type It = DrtmKvConfig;
    let shares = numbers_as(
        0..=1_000,
        |share| Some(Asking::Permille(share as u16)),
        |asking| match asking {
            Asking::Permille(share) => Some(u64::from(*share)),
            Asking::Greedy | Asking::OneMachine => None,
        },
    );
    [
        Setting::new(
            "kept_by",
            words([("send", KeptBy::Send), ("read", KeptBy::Read)]),
            |to: &mut It| &mut to.kept_by,
        )
        .help("send: clients ask the SoC for a value that it keeps; read: they READ it (a5)"),
        Setting::new("copies", numbers(1..=COPIES_MAX), |to: &mut It| &mut to.copies)
            .help(
                "copies of the SoC's memory that clients READ, each in rows of its own (a4, a5, \
                 a4+a5)",
            ),
        Setting::new(
            "asks",
            words([("greedy", Asking::Greedy), ("one-machine", Asking::OneMachine)]),
            |to: &mut It| &mut to.asking,
        )
        .help("which gets ask the SoC: those for which that is faster now, or one client node's (a4+a5)"),
        Setting::new("asks_permille", shares, |to: &mut It| &mut to.asking)
            .help("of 1,000 gets, those that ask the SoC instead (a4+a5)")
            .default("as asks says"),
        Setting::new(
            "reads",
            words([("fixed", None), ("planned", Some(Steering::DEFAULT))]),
            |to: &mut It| &mut to.steering,
        )
        .help(
            "planned: every client chooses between READs and asking by measured throughput (a4+a5)",
        ),
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
        refuse_what_is_idle(self, &config.settings)?;
        let bytes = self.table_bytes().saturating_mul(config.nodes as u64);
        Ok(refuse_places_beyond_machine(bytes, &["buckets", "spare_buckets", "extents"])?)
    }

    fn warnings(&self) -> Vec<String> {
        broken(&SABOTAGES, self.sabotage)
    }
}

impl KeyValueConfig for DrtmKvConfig {}

/// Refuses settings that would change nothing in an alternative, or beside others.
fn refuse_what_is_idle(config: &DrtmKvConfig, settings: &[String]) -> Result<()> {
    let refuse = |keys: &[&'static str], why: &str| refuse_idle(settings, keys, why);
    let alternative = config.alternative;
    if !alternative.caches() {
        refuse(&["cached"], "only a5 and a4+a5 keep values on the SoC")?;
    }
    if alternative != Alternative::A5 {
        refuse(&["kept_by"], "only drtm-kv:a5 keeps values that clients may READ or ask for")?;
    }
    if alternative != Alternative::A4AndA5 {
        let why = "only drtm-kv:a4+a5 has two ways for a get";
        refuse(&["asks", "asks_permille", "reads"], why)?;
    } else if config.steering.is_some() {
        let why = "with reads=planned every client chooses by itself";
        refuse(&["asks", "asks_permille"], why)?;
    } else if matches!(config.asking, Asking::Permille(_)) && value_of(settings, "asks").is_some() {
        refuse(&["asks"], "asks_permille says which gets ask")?;
    }
    let asks = match alternative {
        Alternative::A2 | Alternative::A3 => true,
        Alternative::A5 => config.kept_by == KeptBy::Send,
        _ => false,
    };
    if asks || matches!(alternative, Alternative::Rnic | Alternative::A1) {
        let why = "clients READ no memory of the SoC; they do with a4, a4+a5, and a5 kept_by=read";
        refuse(&["copies"], why)?;
    }
    // Of A5 what the SoC does not keep is READ of the host.
    if asks && value_of(settings, "cached").is_none() {
        let why = "clients ask the SoC, and nobody posts operations that could share a doorbell";
        refuse(&["doorbell_batch"], why)?;
    }
    Ok(())
}

/// Runs in which a broken protocol shows: one bucket with a long chain, hardly an extent more than
/// there are values, and a cache that holds a part.
fn trials(system: &System, _: &str, seed: u64) -> Vec<BenchConfig> {
    let spec = WorkloadSpec { records: Some(12), ..WorkloadSpec::named("ycsb") };
    // Frames of several messages let puts follow each other more closely.
    let keeps = system.harmless.iter().all(|(name, _)| *name != "keeps_cached");
    let settings = ["buckets=2", "extents=15", "aggregation=on"].into_iter();
    let settings = settings.chain(keeps.then_some("cached=6"));
    // A SoC that READs its host is done with an extent before the next put ends, unless many wait
    // for the SoC.
    let clients = if system.name == "drtm-kv:a2" { 32 } else { 6 };
    let plain = BenchConfig {
        settings: settings.map(str::to_owned).collect(),
        nodes: 1,
        client_nodes: 3,
        replicas: 1,
        host_engines: Some(2),
        nic_engines: Some(2),
        clients: Some(clients),
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
