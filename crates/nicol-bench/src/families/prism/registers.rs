//! Replicated blocks: PRISM-RS, and ABDLOCK by verbs and in software.

use nicol_core::faults::{Crash, CrashScope, FaultPlan, Stall};
use nicol_core::ids::{Key, ShardId, Side};
use nicol_core::records::RecordSource;
use nicol_core::rng::{Purpose, Stream};
use nicol_core::units::Nanos;
use nicol_core::view::ShardMap;
use nicol_prism::abdlock::{self, AbdlockConfig, WriteTo};
use nicol_prism::rs::{Blocks, Node, RsConfig, Sabotage};
use nicol_prism::{Faithful, Verbs};
use nicol_workload::ycsb::Popularity;

use super::deaths;
use super::recycling;
use crate::config::{BenchConfig, Length};
use crate::key_value::{KeyValueConfig, system};
use crate::settings::{
    Setting, Settings, Sizes, SystemConfig, Values, broken, micros, numbers, sabotage, words,
};
use crate::system::System;
use crate::workloads::WorkloadSpec;

pub(super) const PRISM_RS: System = System {
    replication: "quorums of f + 1 of 2f + 1",
    survives: "message faults, partitions, stalls; crashes of any f replicas of a block, which come \
               back with what others hold",
    sabotages: || SABOTAGES.iter().map(|(name, _)| *name).collect(),
    trials: trials_of_rs,
    ..system::<Node>("prism", "prism-rs", "PRISM, SOSP '21")
};

/// ABDLOCK by verbs of the card, where there is one.
pub(super) const ABDLOCK: System = abdlock("abdlock", "PRISM, SOSP '21, section 7.2");

/// ABDLOCK in the software that executes PRISM's chains.
pub(super) const ABDLOCK_SOFTWARE: System =
    abdlock("abdlock-software", "PRISM, SOSP '21, section 7.2, in software");

const fn abdlock(name: &'static str, source: &'static str) -> System {
    System {
        replication: "quorums of f + 1 of 2f + 1, locked",
        survives: "message faults, partitions, stalls; crashes of any f replicas of a block, which \
                   do not come back",
        sabotages: || ABDLOCK_SABOTAGES.iter().map(|(name, _)| *name).collect(),
        trials,
        ..system::<abdlock::Node>("prism", name, source)
    }
}

/// Ways to break ABDLOCK on purpose.
const ABDLOCK_SABOTAGES: [(&str, abdlock::Sabotage); 6] = [
    ("no_locks", abdlock::Sabotage::NoLocks),
    ("gets_without_locks", abdlock::Sabotage::GetsWithoutLocks),
    ("small_quorum", abdlock::Sabotage::SmallQuorum),
    ("unlocks_first", abdlock::Sabotage::UnlocksFirst),
    ("reuses_timestamps", abdlock::Sabotage::ReusesTimestamps),
    ("keeps_locks", abdlock::Sabotage::KeepsLocks),
];

/// Ways to break PRISM-RS on purpose.
const SABOTAGES: [(&str, Sabotage); 9] = [
    ("skips_write_back", Sabotage::SkipsWriteBack),
    ("small_quorum", Sabotage::SmallQuorum),
    ("swaps_always", Sabotage::SwapsAlways),
    ("reuses_timestamps", Sabotage::ReusesTimestamps),
    ("keeps_old_buffers", Sabotage::KeepsOldBuffers),
    ("rejoins_empty", Sabotage::RejoinsEmpty),
    ("forgets_the_dead", Sabotage::ForgetsTheDead),
    ("counts_the_dead", Sabotage::CountsTheDead),
    ("skips_fence", Sabotage::SkipsFence),
];

/// One shard, of everything.
struct Everything;

impl ShardMap for Everything {
    fn shards(&self) -> u16 {
        1
    }

    fn shard_of(&self, _: Key) -> ShardId {
        ShardId(0)
    }
}

/// Blocks that hold the records of `source`: one for each row.
pub(super) fn blocks(source: &dyn RecordSource) -> u64 {
    let mut blocks = 0;
    source.load(&Everything, ShardId(0), &mut |key, _| blocks = blocks.max(key.row() + 1));
    blocks
}

impl Settings for RsConfig {
    fn table() -> Vec<Setting<Self>> {
        let sizes = [("fixed", Blocks::Fixed), ("variable", Blocks::Variable)];
        let write_back = words([("always", true), ("needed", false)]);
        let mut table = vec![
            sabotage(SABOTAGES, |to: &mut Self| &mut to.sabotage),
            Setting::new("blocks", words(sizes), |to: &mut Self| &mut to.sizes)
                .help("blocks of one size, or of up to that size"),
            Setting::new("spare_buffers", numbers(1..=1 << 20), |to: &mut Self| {
                &mut to.spare_buffers
            })
            .help("buffers of each size beyond one for each block"),
            Setting::new("write_back", write_back, |to: &mut Self| &mut to.always_write_back)
                .help("when a GET writes a value back: always, or if a quorum lacks it"),
            Setting::new("faithful", faithful(), |to: &mut Self| &mut to.faithful)
                .help("paper keeps the paper's errata, and leaks buffers"),
            Setting::new("timeout_us", micros(1..=1 << 32), |to: &mut Self| &mut to.timeout)
                .help("how long an operation waits for a quorum"),
        ];
        table.extend(recycling::settings(|to: &mut Self| &mut to.recycling));
        table
    }
}

/// As printed, or as it must be.
pub(super) fn faithful() -> Values<Faithful> {
    words([("paper", Faithful::Paper), ("fixed", Faithful::Fixed)])
}

impl SystemConfig for RsConfig {
    fn published(_system: &str, sizes: &Sizes<'_>) -> Self {
        Self::paper(blocks(sizes.source), sizes.value_bytes as u64)
    }

    fn check(&self, config: &BenchConfig) -> anyhow::Result<()> {
        recycling::check(&self.recycling, &config.settings)
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = broken(&SABOTAGES, self.sabotage);
        if self.faithful == Faithful::Paper {
            warnings.push("faithful=paper: chains whose CAS fails leak their buffers".to_owned());
        }
        warnings
    }
}

impl KeyValueConfig for RsConfig {}

impl Settings for AbdlockConfig {
    fn table() -> Vec<Setting<Self>> {
        let verbs = [("card", Verbs::Card), ("software", Verbs::Software)];
        vec![
            sabotage(ABDLOCK_SABOTAGES, |to: &mut Self| &mut to.sabotage),
            Setting::new("verbs", words(verbs), |to: &mut Self| &mut to.verbs)
                .help("who executes its verbs: the card, where it can, or software"),
            Setting::new(
                "write_to",
                words([("locked", WriteTo::Locked), ("quorum", WriteTo::Quorum)]),
                |to: &mut Self| &mut to.write_to,
            )
            .help("which replicas are written: all that are locked by then, or f + 1 (AMB-54)"),
            Setting::new("backoff_us", micros(1..=1 << 20), |to: &mut Self| &mut to.backoff)
                .help("the longest wait before the second attempt to lock"),
            Setting::new("timeout_us", micros(1..=1 << 32), |to: &mut Self| &mut to.timeout)
                .help("how long an operation waits for a majority"),
        ]
    }
}

impl SystemConfig for AbdlockConfig {
    fn published(system: &str, sizes: &Sizes<'_>) -> Self {
        let software = system == ABDLOCK_SOFTWARE.name;
        let verbs = if software { Verbs::Software } else { Verbs::Card };
        Self::paper(blocks(sizes.source), sizes.value_bytes as u64, verbs)
    }

    fn warnings(&self) -> Vec<String> {
        broken(&ABDLOCK_SABOTAGES, self.sabotage)
    }
}

impl KeyValueConfig for AbdlockConfig {}

/// Runs in which a broken protocol shows: few blocks, many clients, replicas that lag.
fn trials(system: &System, _: &str, seed: u64) -> Vec<BenchConfig> {
    let calm = trial(system, 2, Length::Transactions(300), seed);
    let mut lossy = calm.clone();
    lossy.faults.messages = true;
    vec![calm, lossy]
}

/// The same, a client that dies, and replicas that come back one after the other: so many blocks
/// that some are not written meanwhile.
fn trials_of_rs(system: &System, sabotage: &str, seed: u64) -> Vec<BenchConfig> {
    let mut trials = trials(system, sabotage, seed);
    let mut dying = trials[0].clone();
    dying.fault_plan = Some(deaths(3..4, Nanos::from_micros(150), seed));
    trials.push(dying);
    trials.push(rejoining(system, seed));
    if seed.is_multiple_of(4) {
        let crash = |node, at| Crash {
            scope: CrashScope::Node,
            node,
            at: Nanos::from_millis(at),
            restart_after: Some(Nanos::from_micros(20)),
        };
        let crashes = vec![crash(0, 5), crash(1, 25)];
        let mut crashing = trial(system, 3_000, Length::Time(Nanos::from_millis(45)), seed);
        crashing.fault_plan = Some(FaultPlan { crashes, ..FaultPlan::none() });
        trials.push(crashing);
    }
    trials
}

/// A replica dies at a drawn instant, while what it has just acknowledged waits at both others, and
/// rejoins. Clients that come later then read from it and from the one that lags, alone.
fn rejoining(system: &System, seed: u64) -> BenchConfig {
    const CORES: u32 = 2;
    let micros = Nanos::from_micros;
    // Nodes are alike: a host and a card of so many engines.
    let stall = |(node, side, core): (u32, Side, u32), from: Nanos, until: Nanos| {
        let engine = (node * 2 + side as u32) * CORES + core;
        Stall { engine, from, span: until.since(from) }
    };
    let late_clients = (3, Side::Host, 1);
    // Of the two others, the engines that execute what is sent by those that come first.
    let (slow, lagging) = ((1, Side::Nic, 0), (2, Side::Nic, 1));
    let at = micros(20) + Nanos(Stream::new(seed, Purpose::Test, 0).below(80_000));
    let rejoined = at + micros(3_000);
    let reads_from = rejoined + micros(50);
    let end = reads_from + micros(1_500);
    let mut stalls = vec![
        stall(late_clients, Nanos::ZERO, reads_from),
        // In between it refuses what has waited.
        stall(lagging, Nanos::ZERO, rejoined),
        stall(lagging, rejoined + micros(28), end),
        stall(slow, Nanos(at.0 - 7_000), rejoined),
    ];
    stalls.extend((0..CORES).map(|core| stall((1, Side::Nic, core), reads_from, end)));
    let restart_after = Some(micros(20));
    let crash = Crash { scope: CrashScope::Node, node: 0, at, restart_after };
    BenchConfig {
        on: "connectx5-40g".to_owned(),
        settings: vec!["timeout_us=50000".to_owned()],
        client_nodes: 1,
        clients: Some(6),
        fault_plan: Some(FaultPlan { stalls, crashes: vec![crash], ..FaultPlan::none() }),
        ..trial(system, 2, Length::Transactions(48), seed)
    }
}

/// A run of so many blocks for each node.
fn trial(system: &System, blocks: u64, length: Length, seed: u64) -> BenchConfig {
    let spec = WorkloadSpec {
        records: Some(blocks),
        value_bytes: Some(16),
        popularity: Some(Popularity::Uniform),
        ..WorkloadSpec::named("ycsb")
    };
    BenchConfig {
        clients: Some(4),
        client_nodes: 2,
        host_engines: Some(2),
        nic_engines: Some(2),
        length: Some(length),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system.name, spec, "liquidio3", seed)
    }
}
