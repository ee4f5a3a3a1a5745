//! PRISM-KV as a system: what may be set in it.

use anyhow::{Context, Result, ensure};
use nicol_core::units::Nanos;
use nicol_prism::kv::{
    DeletedSlots, Hash, ITEM_BYTES_MAX, KvConfig, Node, Operands, Reuse, Sabotage, Slots,
};

use super::deaths;
use super::recycling;
use crate::config::{BenchConfig, Length};
use crate::families::serving::serve;
use crate::key_value::{KeyValueConfig, system};
use crate::memory::refuse_slots_beyond_machine;
use crate::refused::refuse;
use crate::settings::{
    BY_RECORDS, ServingMemory, Setting, Settings, Sizes, SystemConfig, broken, numbers, sabotage,
    words,
};
use crate::system::{SingleRecords, System};
use crate::workloads::WorkloadSpec;

pub(super) const PRISM_KV: System = System {
    survives: "message faults, partitions, stalls; after a crash the node's shard is refused",
    coverage: &["conflict"],
    coverage_of_crashes: &["shard_unavailable"],
    sabotages: || SABOTAGES.iter().map(|(name, _)| *name).collect(),
    trials,
    single: Some(SingleRecords { record_bytes: SERVED_BYTES, one_copy: true, may_lose: None }),
    serve: Ok(serve::<Node>),
    ..system::<Node>("prism", "prism-kv", "PRISM, SOSP '21")
};

/// Bytes of the largest record of a store that is served: what an item has beside its key and
/// header.
const SERVED_BYTES: usize = (ITEM_BYTES_MAX - KvConfig::item_bytes(KEY_BYTES, 0)) as usize;

/// Bytes of a workload's key.
pub(super) const KEY_BYTES: u64 = 8;

/// Ways to break it on purpose, so that a sweep can show that its checkers see it.
const SABOTAGES: [(&str, Sabotage); 9] = [
    ("trusts_slots", Sabotage::TrustsSlots),
    ("probes_once", Sabotage::ProbesOnce),
    ("ignores_failed_swaps", Sabotage::IgnoresFailedSwaps),
    ("empties_slots", Sabotage::EmptiesSlots),
    ("keeps_old_buffers", Sabotage::KeepsOldBuffers),
    ("keeps_new_buffers", Sabotage::KeepsNewBuffers),
    ("installs_unconditionally", Sabotage::InstallsUnconditionally),
    ("posts_early", Sabotage::PostsEarly),
    ("forgets_the_dead", Sabotage::ForgetsTheDead),
];

impl Settings for KvConfig {
    fn table() -> Vec<Setting<Self>> {
        let mut table = vec![sabotage(SABOTAGES, |to: &mut Self| &mut to.sabotage)];
        table.extend(slots());
        table.extend([
            hash(|to: &mut Self| &mut to.hash),
            Setting::new("entries", numbers(1..=1 << 32), |to: &mut Self| &mut to.entries)
                .help("slots of a server's index")
                .default(BY_RECORDS),
            Setting::new("spare_buffers", numbers(0..=1 << 24), |to: &mut Self| {
                &mut to.spare_buffers
            })
            .help("buffers of each size beyond those of the records"),
        ]);
        table.extend(recycling::settings(|to: &mut Self| &mut to.recycling));
        table
    }
}

/// Settings of a slot's content, and of a PUT's comparison with it.
fn slots() -> [Setting<KvConfig>; 4] {
    type It = KvConfig;
    let operands = [
        ("fixed", Operands::Two),
        ("paper", Operands::OneCompared),
        ("paper-unmasked", Operands::OneUnmasked),
    ];
    [
        Setting::new(
            "slots",
            words([("bounded", Slots::Bounded), ("pointer", Slots::Pointer)]),
            |to: &mut It| &mut to.slots,
        )
        .help("what a slot holds: a pointer with its bound, or the pointer alone"),
        Setting::new(
            "reuse",
            words([("pointer", Reuse::Pointer), ("generation", Reuse::Generation)]),
            |to: &mut It| &mut to.reuse,
        )
        .help("what a PUT compares to see that the slot is its key's"),
        Setting::new(
            "deleted",
            words([("kept", DeletedSlots::Kept), ("reused", DeletedSlots::Reused)]),
            |to: &mut It| &mut to.deleted_slots,
        )
        .help(
            "what becomes of the slot of a deleted key: it keeps its key, or another key may take \
             it",
        ),
        Setting::new("faithful", words(operands), |to: &mut It| &mut to.operands).help(
            "paper compares with the one operand that Table 1 prints, so that no PUT succeeds; \
             paper-unmasked compares nothing, and loses records",
        ),
    ]
}

/// The help of where searches begin.
pub(super) const HASH: &str =
    "where the search for a key begins: at its hash, or at a slot of its own";

/// The setting of where searches begin.
pub(super) fn hash<C: 'static>(part: fn(&mut C) -> &mut Hash) -> Setting<C> {
    let hashes = words([("probing", Hash::Probing), ("collision-free", Hash::CollisionFree)]);
    Setting::new("hash", hashes, part).help(HASH)
}

impl SystemConfig for KvConfig {
    fn published(_system: &str, sizes: &Sizes<'_>) -> Self {
        let source = sizes.source;
        let item = |bytes| Self::item_bytes(KEY_BYTES, bytes).min(ITEM_BYTES_MAX);
        let mut items: Vec<(u64, u64)> = Vec::new();
        for (bytes, records) in source.value_lengths() {
            items.push((item(bytes.into()), records));
        }
        let records = source.records_per_shard() + source.growth_per_shard();
        let sized: u64 = items.iter().map(|(_, records)| records).sum();
        if sized < records {
            items.push((item(sizes.value_bytes as u64), records - sized));
        }
        Self::paper(items)
    }

    fn serving(self, memory: &ServingMemory) -> Result<Self> {
        let ServingMemory { limit, nodes, replicas, records } = *memory;
        ensure!(
            replicas == 1,
            refuse("replicas", replicas, "PRISM-KV keeps one copy of each record", "give 1")
        );
        self.serving(limit.0 / nodes, records).with_context(|| {
            let why = format!(
                "the index of so many keys leaves no space for values in the {} MB that each of \
                 {nodes} nodes may have (`max_memory`)",
                (limit.0 / nodes) >> 20
            );
            refuse("records", records, why, "give less, or more memory")
        })
    }

    fn check(&self, config: &BenchConfig) -> Result<()> {
        recycling::check(&self.recycling, &config.settings)?;
        Ok(refuse_slots_beyond_machine(self.entries, config.nodes, &["entries"])?)
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = broken(&SABOTAGES, self.sabotage);
        let printed = match self.operands {
            Operands::Two => None,
            Operands::OneCompared => Some("faithful=paper: no PUT of a record ever succeeds"),
            Operands::OneUnmasked => Some("faithful=paper-unmasked: records may be lost"),
        };
        warnings.extend(printed.map(|what| format!("{what} (AMB-09)")));
        if (self.deleted_slots, self.reuse) == (DeletedSlots::Reused, Reuse::Pointer) {
            let what = "deleted=reused, reuse=pointer: a PUT may overwrite another key (AMB-48)";
            warnings.push(what.to_owned());
        }
        warnings
    }
}

impl KeyValueConfig for KvConfig {}

/// Runs in which a broken protocol shows: an index so full that searches meet other keys, and one
/// server with hardly a buffer more than it needs; and a client that dies.
fn trials(system: &System, _: &str, seed: u64) -> Vec<BenchConfig> {
    let full = churn_on_two_servers(system, seed, &["entries=20"]);
    let mut lossy = full.clone();
    lossy.faults.messages = true;
    let scarce = ["spare_buffers=3", "watermark=1", "refill_us=1000"];
    let mut dying = full.clone();
    dying.fault_plan = Some(deaths(2..3, Nanos::from_micros(150), seed));
    vec![full, lossy, churn_on_two_servers(system, seed, &scarce), dying]
}

/// A run of churn on 16 rows of two servers, with clients on nodes of their own.
pub(super) fn churn_on_two_servers(system: &System, seed: u64, settings: &[&str]) -> BenchConfig {
    let spec = WorkloadSpec { records: Some(16), ..WorkloadSpec::named("churn") };
    BenchConfig {
        settings: settings.iter().map(ToString::to_string).collect(),
        nodes: 2,
        client_nodes: 2,
        replicas: 1,
        host_engines: Some(2),
        nic_engines: Some(2),
        clients: Some(6),
        length: Some(Length::Transactions(600)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system.name, spec, "connectx5-40g", seed)
    }
}
