//! PRISM-TX as a system of the commit family: what may be set in it.

use anyhow::Result;
use nicol_core::units::Nanos;
use nicol_prism::Faithful;
use nicol_prism::tx::{Bump, Node, OwnReads, Prepare, ReadVersion, Sabotage, Staging, TxConfig};

use super::deaths;
use super::key_values::hash;
use super::recycling;
use super::registers::faithful;
use crate::config::{BenchConfig, Length};
use crate::families::commit;
use crate::memory::refuse_slots_beyond_machine;
use crate::settings::{
    BY_RECORDS, Setting, Settings, Sizes, SystemConfig, broken, micros, numbers, sabotage, words,
};
use crate::system::System;
use crate::workloads::WorkloadSpec;

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
const SABOTAGES: [(&str, Sabotage); 9] = [
    ("trusts_failed_reads", Sabotage::TrustsFailedReads),
    ("commits_unchecked", Sabotage::CommitsUnchecked),
    ("reuses_timestamps", Sabotage::ReusesTimestamps),
    ("never_bumps", Sabotage::NeverBumps),
    ("keeps_old_buffers", Sabotage::KeepsOldBuffers),
    ("recovers_alone", Sabotage::RecoversAlone),
    ("forgets_installs", Sabotage::ForgetsInstalls),
    ("installs_always", Sabotage::InstallsAlways),
    ("leaves_reads_unguarded", Sabotage::LeavesReadsUnguarded),
];

impl Settings for TxConfig {
    fn table() -> Vec<Setting<Self>> {
        let mut table = vec![sabotage(SABOTAGES, |to: &mut Self| &mut to.sabotage)];
        table.extend(protocol());
        table.extend([
            hash(|to: &mut Self| &mut to.hash),
            Setting::new("entries", numbers(1..=1 << 32), |to: &mut Self| &mut to.entries)
                .help("slots of a server's table")
                .default(BY_RECORDS),
            Setting::new("spare_buffers", numbers(0..=1 << 24), |to: &mut Self| {
                &mut to.spare_buffers
            })
            .help("buffers of each size beyond those of the records"),
            Setting::new("clock_skew_us", micros(0..=1_000_000), |to: &mut Self| {
                &mut to.clock_skew
            })
            .help("by how much the clocks of client engines may differ"),
        ]);
        table.extend(recycling::settings(|to: &mut Self| &mut to.recycling));
        table
    }
}

/// Settings for sentences of the protocol that have two readings.
fn protocol() -> [Setting<TxConfig>; 6] {
    type It = TxConfig;
    let versions = [
        ("slot-first", ReadVersion::SlotFirst),
        ("slot-last", ReadVersion::SlotLast),
        ("buffer", ReadVersion::Buffer),
    ];
    [
        Setting::derived("faithful", faithful(), follows, TxConfig::follow)
            .help("paper sets the four that follow as printed"),
        Setting::new(
            "own_reads",
            words([("pass", OwnReads::Pass), ("conflict", OwnReads::Conflict)]),
            |to: &mut It| &mut to.own_reads,
        )
        .help("pass: a transaction may write what it has read (AMB-13)"),
        Setting::new(
            "bump",
            words([("in-order", Bump::InOrder), ("checked", Bump::Checked)]),
            |to: &mut It| &mut to.bump,
        )
        .help("when an abort raises C: once the write before it is there, or at once (AMB-14)"),
        Setting::new("read_version", words(versions), |to: &mut It| &mut to.read_version).help(
            "where RC comes from: C, read before or after the buffer, or the buffer (AMB-14b)",
        ),
        Setting::new(
            "staging",
            words([("prepare", Staging::AtPrepare), ("commit", Staging::AtCommit)]),
            |to: &mut It| &mut to.staging,
        )
        .help(
            "when a new value goes to its server; with prepare, servers can end the transactions \
             of a client that died (AMB-14c)",
        ),
        Setting::new(
            "prepare",
            words([("one-chain", Prepare::OneChain), ("reads-first", Prepare::ReadsFirst)]),
            |to: &mut It| &mut to.prepare,
        )
        .help("both validations in one chain at each server, or one after the other (AMB-53)"),
    ]
}

/// The reading that all of the protocol follows, if it is one.
fn follows(config: &TxConfig) -> Option<Faithful> {
    let parts = |of: &TxConfig| (of.own_reads, of.bump, of.read_version, of.staging);
    let follows = |faithful: &Faithful| {
        let mut other = config.clone();
        other.follow(*faithful);
        parts(&other) == parts(config)
    };
    [Faithful::Paper, Faithful::Fixed].into_iter().find(follows)
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
        Ok(refuse_slots_beyond_machine(self.entries, config.nodes, &["entries"])?)
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
fn trials(system: &System, _: &str, seed: u64) -> Vec<BenchConfig> {
    let calm = contended(system, "ycsb-t", seed);
    // Two each: a protocol that never gets on aborts a thousand times before a client gives up.
    let brief = BenchConfig { length: Some(Length::Transactions(24)), ..calm.clone() };
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
    vec![brief, calm, blind, lossy, crashing]
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
