//! What `--set` may change in MINOS.

use anyhow::{Result, ensure};
use nicol_core::history::{Persistency, Promise};
use nicol_core::units::Bytes;
use nicol_minos::{Errata, Faithful, MinosConfig, WhenFull};

use super::{SABOTAGES, SERVED_BYTES, parts};
use crate::config::BenchConfig;
use crate::key_value::KeyValueConfig;
use crate::refused::{Unfit, refuse};
use crate::settings::{
    ServingMemory, Setting, Settings, Sizes, SystemConfig, broken, micros, numbers, numbers_as,
    sabotage, switch, words,
};

impl Settings for MinosConfig {
    fn table() -> Vec<Setting<Self>> {
        let mut table = errata();
        table.extend(mechanisms());
        table
    }
}

/// The errata that may be kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Erratum {
    Timestamps,
    GlobalTimestamps,
    Scopes,
    Queued,
}

/// Hidden settings, under which the protocol is not correct.
fn errata() -> Vec<Setting<MinosConfig>> {
    let errata = [
        ("timestamps", Erratum::Timestamps),
        ("global_timestamps", Erratum::GlobalTimestamps),
        ("scopes", Erratum::Scopes),
        ("queued", Erratum::Queued),
    ];
    let keep = |to: &mut MinosConfig, erratum| {
        let kept = match erratum {
            Erratum::Timestamps => &mut to.errata.timestamps,
            Erratum::GlobalTimestamps => &mut to.errata.global_timestamps,
            Erratum::Scopes => &mut to.errata.scopes,
            Erratum::Queued => &mut to.errata.queued,
        };
        *kept = Faithful::Paper;
    };
    vec![
        sabotage(SABOTAGES, |to: &mut MinosConfig| &mut to.sabotage),
        Setting::derived("faithful", words(errata), |_| None, keep)
            .help("keep an erratum as it is printed")
            .hidden(),
    ]
}

fn mechanisms() -> [Setting<MinosConfig>; 9] {
    type It = MinosConfig;
    let entries = numbers_as(
        1..=1 << 20,
        |entries| Some(Some(entries as u32)),
        |entries| entries.map(u64::from),
    );
    [
        Setting::new("combined", switch(), |to: &mut It| &mut to.offload)
            .help("the SmartNIC runs the algorithms, on coherent metadata"),
        Setting::new("batching", switch(), |to: &mut It| &mut to.batching)
            .help("host and SmartNIC exchange one INV and one ACK a write"),
        Setting::new("broadcast", switch(), |to: &mut It| &mut to.broadcast)
            .help("the card sends the copies of an INV or VAL"),
        Setting::new("queue_entries", words([("unlimited", None)]).or(entries), |to: &mut It| {
            &mut to.queue_entries
        })
        .help("entries of each of the vFIFO and the dFIFO"),
        Setting::new(
            "when_full",
            words([("wait", WhenFull::Wait), ("reject", WhenFull::Reject)]),
            |to: &mut It| &mut to.when_full,
        )
        .help("what a vFIFO without a free entry does with a request"),
        Setting::new("sharded", switch(), |to: &mut It| &mut to.sharded)
            .help("a record is on as many nodes as there are replicas, whose clients ask for it"),
        Setting::new("forgets", switch(), |to: &mut It| &mut to.forgets)
            .help("records of deleted keys are freed once every node has the deletion"),
        Setting::new("scope_writes", numbers(1..=1_000), |to: &mut It| &mut to.scope_writes)
            .help("writes of a client in a scope, of the scope model"),
        Setting::new("timeout_us", micros(1..=1 << 32), |to: &mut It| &mut to.timeout)
            .help("how long a client waits, where messages may be lost"),
    ]
}

impl SystemConfig for MinosConfig {
    fn published(system: &str, sizes: &Sizes<'_>) -> Self {
        let (model, offload) = parts(system);
        Self::paper(model, offload, sizes.value_bytes as u64)
    }

    fn serving(self, memory: &ServingMemory) -> Result<Self> {
        let ServingMemory { limit, nodes, replicas, .. } = *memory;
        ensure!(
            replicas == nodes,
            refuse(
                "replicas",
                replicas,
                "every node of MINOS holds every record",
                format!("give {nodes}")
            )
        );
        // The queues stand for a card's: a server's are as long as its logs.
        let (value_bytes, memory) = (SERVED_BYTES as u64, Some(Bytes(limit.0 / nodes)));
        Ok(Self { value_bytes, memory, queue_entries: None, forgets: true, ..self })
    }

    fn check(&self, config: &BenchConfig) -> Result<()> {
        let whole = !self.sharded || config.replicas == config.nodes;
        let families = config.faults;
        let drawn = families.crashes || families.stalls || families.partitions;
        let planned = config.fault_plan.as_ref().is_some_and(|plan| {
            !(plan.crashes.is_empty() && plan.stalls.is_empty() && plan.partitions.is_empty())
        });
        ensure!(
            whole || !drawn && !planned,
            Unfit::new(
                "with crashes, stalls or partitions a node comes back and copies from one that \
                 serves, which may not hold its records",
                "leave one of them out"
            )
            .of_setting("sharded", "on")
        );
        Ok(())
    }

    fn warnings(&self) -> Vec<String> {
        let mut warnings = broken(&SABOTAGES, self.sabotage);
        if self.errata != Errata::FIXED {
            warnings.push("faithful: as printed, the protocol is not correct".to_owned());
        }
        warnings
    }
}

impl KeyValueConfig for MinosConfig {
    fn promise(&self) -> Promise {
        Promise::Durable(self.model)
    }

    /// What is in the hosts' memory stays. Of MINOS-B that is all that was acknowledged; offloaded,
    /// all that was read, while what only the vFIFOs have is lost with the NICs.
    fn promise_while_hosts_live(&self) -> Option<Promise> {
        let synced = matches!(self.model, Persistency::Synch | Persistency::Strict);
        let kept = if synced || !self.offload { Persistency::Synch } else { Persistency::Renf };
        Some(Promise::Durable(kept))
    }

    fn scope_writes(&self) -> Option<u32> {
        (self.model == Persistency::Scope).then_some(self.scope_writes)
    }

    fn serves_own_records(&self) -> bool {
        self.sharded
    }
}
