//! Replicated blocks: PRISM-RS.

use anyhow::{Result, bail};
use nicol_core::faults::{Crash, CrashScope, FaultPlan};
use nicol_core::ids::{Key, ShardId};
use nicol_core::records::RecordSource;
use nicol_core::units::Nanos;
use nicol_core::view::ShardMap;
use nicol_protocols::prism::Faithful;
use nicol_protocols::prism::rs::{Blocks, Node, RsConfig, Sabotage};
use nicol_workload::ycsb::Popularity;

use crate::config::{BenchConfig, Length};
use crate::families::key_value::{KeyValueConfig, system};
use crate::settings::{SABOTAGE, Setting, Settings, Sizes, SystemConfig, broken, number, sabotage};
use crate::system::System;
use crate::workloads::WorkloadSpec;

/// PRISM-RS.
pub(super) const PRISM_RS: System = System {
    replication: "quorums of f + 1 of 2f + 1",
    survives: "message faults, partitions, stalls; crashes of any f replicas of a block, which come \
               back with what others hold",
    sabotages: || SABOTAGES.iter().map(|(name, _)| *name).collect(),
    trials,
    ..system::<Node>("prism", "prism-rs", "PRISM, SOSP '21")
};

/// Ways to break the protocol on purpose.
const SABOTAGES: [(&str, Sabotage); 6] = [
    ("skips_write_back", Sabotage::SkipsWriteBack),
    ("small_quorum", Sabotage::SmallQuorum),
    ("swaps_always", Sabotage::SwapsAlways),
    ("reuses_timestamps", Sabotage::ReusesTimestamps),
    ("keeps_old_buffers", Sabotage::KeepsOldBuffers),
    ("rejoins_empty", Sabotage::RejoinsEmpty),
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
    const KEYS: &'static [Setting] = &[
        ("blocks", "fixed|variable", "blocks of one size, or of up to that size"),
        ("spare_buffers", "1..2^20", "buffers of each size beyond one for each block"),
        ("write_back", "always|needed", "does a GET write back what a quorum has already"),
        ("faithful", "paper|fixed", "paper keeps the paper's errata, and leaks buffers"),
        ("timeout_us", "MICROSECONDS", "how long an operation looks for a quorum"),
    ];
    const HIDDEN: &'static [Setting] = &[SABOTAGE];

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "blocks" => {
                self.sizes = match value {
                    "fixed" => Blocks::Fixed,
                    "variable" => Blocks::Variable,
                    _ => bail!("'{value}': choose fixed or variable"),
                }
            }
            "spare_buffers" => self.spare_buffers = number(value, 1, 1 << 20)? as u32,
            "write_back" => {
                self.always_write_back = match value {
                    "always" => true,
                    "needed" => false,
                    _ => bail!("'{value}': choose always or needed"),
                }
            }
            "faithful" => self.faithful = faithful(value)?,
            "timeout_us" => self.timeout = Nanos::from_micros(number(value, 1, 1 << 32)?),
            _ => self.sabotage = sabotage(&SABOTAGES, value)?,
        }
        Ok(())
    }
}

/// A value of `faithful`.
pub(super) fn faithful(value: &str) -> Result<Faithful> {
    match value {
        "paper" => Ok(Faithful::Paper),
        "fixed" => Ok(Faithful::Fixed),
        _ => bail!("'{value}': choose paper or fixed"),
    }
}

impl SystemConfig for RsConfig {
    fn published(_system: &str, sizes: &Sizes<'_>) -> Self {
        Self::paper(blocks(sizes.source), sizes.value_bytes as u64)
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

/// Runs in which a broken protocol shows: few blocks, many clients, replicas that lag and crash.
fn trials(system: &System, seed: u64) -> Vec<BenchConfig> {
    let spec = WorkloadSpec {
        records: Some(2),
        value_bytes: Some(16),
        popularity: Some(Popularity::Uniform),
        ..WorkloadSpec::named("ycsb")
    };
    let calm = BenchConfig {
        clients: Some(4),
        client_nodes: 2,
        length: Some(Length::Transactions(300)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system.name, spec, "liquidio3", seed)
    };
    let mut lossy = calm.clone();
    lossy.faults.messages = true;
    let crash = |node, at| Crash {
        scope: CrashScope::Node,
        node,
        at: Nanos::from_micros(at),
        restart_after: Some(Nanos::from_micros(20)),
    };
    let crashes = vec![crash(0, 100 + seed % 50), crash(1, 30_000 + seed % 50)];
    let mut crashing = calm.clone();
    crashing.length = Some(Length::Time(Nanos::from_millis(60)));
    crashing.fault_plan = Some(FaultPlan { crashes, ..FaultPlan::none() });
    vec![calm, lossy, crashing]
}
