//! PRISM-TX as a system of the commit family: what may be set in it.

use anyhow::{Result, bail};
use nicol_core::units::Nanos;
use nicol_prism::kv::Hash;
use nicol_prism::tx::{Bump, Node, OwnReads, ReadVersion, Sabotage, Staging, TxConfig};

use super::deaths;
use super::recycling::{self, RECLAIM, REFILL, WATERMARK};
use super::registers::faithful;
use crate::config::{BenchConfig, Length};
use crate::families::commit;
use crate::memory::refuse_slots_beyond_machine;
use crate::settings::{SABOTAGE, Setting, Settings, Sizes, SystemConfig, broken, number, sabotage};
use crate::system::System;
use crate::workloads::WorkloadSpec;

/// PRISM-TX.
pub(super) const PRISM_TX: System = System {
    replication: "none",
    survives: "message faults, partitions, stalls; servers end the transactions of clients that \
               crash; after a server's crash its shard is refused",
    mirrors_engines: false,
    coverage: &["lock_conflict", "stale"],
    coverage_of_crashes: &["shard_unavailable"],
    sabotages: || SABOTAGES.iter().map(|(name, _)| *name).collect(),
    trials,
    ..commit::system::<Node>("prism-tx", "PRISM, SOSP '21, section 8")
};

/// Ways to break it on purpose, so that a sweep can show that its checkers see it.
const SABOTAGES: [(&str, Sabotage); 8] = [
    ("trusts_failed_reads", Sabotage::TrustsFailedReads),
    ("commits_unchecked", Sabotage::CommitsUnchecked),
    ("reuses_timestamps", Sabotage::ReusesTimestamps),
    ("never_bumps", Sabotage::NeverBumps),
    ("keeps_old_buffers", Sabotage::KeepsOldBuffers),
    ("recovers_alone", Sabotage::RecoversAlone),
    ("forgets_installs", Sabotage::ForgetsInstalls),
    ("installs_always", Sabotage::InstallsAlways),
];

impl Settings for TxConfig {
    const HIDDEN: &'static [Setting] = &[SABOTAGE];
    const KEYS: &'static [Setting] = &[
        ("faithful", "fixed|paper", "paper sets the four that follow as printed"),
        ("own_reads", "pass|conflict", "may a transaction write what it has read (AMB-13)"),
        (
            "bump",
            "in-order|checked",
            "when an abort raises C: once the write before it is there, or at once (AMB-14)",
        ),
        (
            "read_version",
            "slot-first|slot-last|buffer",
            "where RC comes from: C, read before or after the buffer, or the buffer (AMB-14b)",
        ),
        (
            "staging",
            "prepare|commit",
            "when a new value goes to its server; with prepare, servers can end the transactions of \
             a client that died (AMB-14c)",
        ),
        (
            "hash",
            "probing|collision-free",
            "where the search for a key begins: at its hash, or at a slot of its own",
        ),
        ("entries", "1..2^32", "slots of a server's table"),
        ("spare_buffers", "0..2^24", "buffers of each size beyond those of the records"),
        WATERMARK,
        REFILL,
        RECLAIM,
        ("clock_skew_us", "0..1000000", "by how much the clocks of client engines may differ"),
    ];

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match (key, value) {
            ("faithful", _) => self.follow(faithful(value)?),
            ("own_reads", "pass") => self.own_reads = OwnReads::Pass,
            ("own_reads", "conflict") => self.own_reads = OwnReads::Conflict,
            ("own_reads", _) => bail!("'{value}': choose pass or conflict"),
            ("bump", "in-order") => self.bump = Bump::InOrder,
            ("bump", "checked") => self.bump = Bump::Checked,
            ("bump", _) => bail!("'{value}': choose in-order or checked"),
            ("read_version", "slot-first") => self.read_version = ReadVersion::SlotFirst,
            ("read_version", "slot-last") => self.read_version = ReadVersion::SlotLast,
            ("read_version", "buffer") => self.read_version = ReadVersion::Buffer,
            ("read_version", _) => bail!("'{value}': choose slot-first, slot-last or buffer"),
            ("staging", "prepare") => self.staging = Staging::AtPrepare,
            ("staging", "commit") => self.staging = Staging::AtCommit,
            ("staging", _) => bail!("'{value}': choose prepare or commit"),
            ("hash", "probing") => self.hash = Hash::Probing,
            ("hash", "collision-free") => self.hash = Hash::CollisionFree,
            ("hash", _) => bail!("'{value}': choose probing or collision-free"),
            ("entries", _) => self.entries = number(value, 1, 1 << 32)?,
            ("spare_buffers", _) => self.spare_buffers = number(value, 0, 1 << 24)? as u32,
            ("watermark" | "refill_us" | "reclaim", _) => {
                recycling::set(&mut self.recycling, key, value)?;
            }
            ("clock_skew_us", _) => {
                self.clock_skew = Nanos::from_micros(number(value, 0, 1_000_000)?);
            }
            ("sabotage", _) => self.sabotage = sabotage(&SABOTAGES, value)?,
            _ => unreachable!("{key} is not among the keys"),
        }
        Ok(())
    }
}

impl SystemConfig for TxConfig {
    fn published(_system: &str, sizes: &Sizes<'_>) -> Self {
        let source = sizes.source;
        let mut items: Vec<(u64, u64)> = Vec::new();
        for (bytes, records) in source.value_lengths() {
            items.push((Self::item_bytes(bytes.into()), records));
        }
        let records = source.records_per_shard() + source.growth_per_shard();
        let sized: u64 = items.iter().map(|(_, records)| records).sum();
        // Short values are not listed: each may have any length up to the longest of them.
        let short = records.saturating_sub(sized);
        let longest = if short > 0 { Self::item_bytes(sizes.value_bytes as u64) } else { 0 };
        Self::paper(items, (longest, short))
    }

    fn check(&self, config: &BenchConfig) -> Result<()> {
        recycling::check(&self.recycling, &config.settings)?;
        refuse_slots_beyond_machine(self.entries, config.nodes, "--set entries")
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = broken(&SABOTAGES, self.sabotage);
        let printed = [
            (self.own_reads == OwnReads::Conflict, "no read-modify-write commits (AMB-13)"),
            (self.bump == Bump::Checked, "committed writes may be lost (AMB-14)"),
            (self.read_version == ReadVersion::Buffer, "records become unreadable (AMB-14b)"),
            (self.read_version == ReadVersion::SlotLast, "reads may be old (AMB-14b)"),
            (self.staging == Staging::AtCommit, "clients that die block records (AMB-14c)"),
        ];
        let printed = printed.into_iter().filter(|(is_printed, _)| *is_printed);
        warnings.extend(printed.map(|(_, what)| format!("as printed: {what}")));
        warnings
    }
}

/// Runs in which a broken protocol shows: few records, many clients on nodes of their own, clients
/// that die.
fn trials(system: &System, seed: u64) -> Vec<BenchConfig> {
    let calm = contended(system, "ycsb-t", seed);
    let mut blind = contended(system, "ycsb-t", seed);
    blind.workload.blind_percent = Some(70);
    let mut lossy = contended(system, "churn", seed);
    lossy.faults.messages = true;
    let mut crashing = BenchConfig {
        fault_plan: Some(deaths(2..7, Nanos::from_micros(500), seed)),
        // Five of six nodes die. What they leave others must see: two leases later, and a while
        // after.
        length: Some(Length::Time(Nanos::from_millis(30))),
        client_nodes: 6,
        ..blind.clone()
    };
    crashing.workload.records = Some(6);
    crashing.workload.keys = Some(4);
    vec![calm, blind, lossy, crashing]
}

fn contended(system: &System, workload: &str, seed: u64) -> BenchConfig {
    let mut spec = WorkloadSpec { records: Some(8), ..WorkloadSpec::named(workload) };
    if workload == "ycsb-t" {
        (spec.keys, spec.value_bytes, spec.zipf_percent) = (Some(3), Some(16), Some(0));
    }
    BenchConfig {
        nodes: 2,
        client_nodes: 3,
        replicas: 1,
        host_engines: Some(2),
        nic_engines: Some(2),
        clients: Some(4),
        length: Some(Length::Transactions(600)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system.name, spec, "connectx5-40g", seed)
    }
}
