//! What `--set` may change in MINOS.

use anyhow::{Result, bail, ensure};
use nicol_core::history::{Persistency, Promise};
use nicol_core::units::{Bytes, Nanos};
use nicol_minos::{Errata, Faithful, MinosConfig, WhenFull};

use super::{SABOTAGES, SERVED_BYTES, parts};
use crate::config::BenchConfig;
use crate::families::key_value::KeyValueConfig;
use crate::settings::{
    SABOTAGE, ServingMemory, Setting, Settings, Sizes, SystemConfig, broken, number, sabotage,
    switch,
};

impl Settings for MinosConfig {
    const KEYS: &'static [Setting] = &[
        ("combined", "on|off", "does the SmartNIC run the algorithms, on coherent metadata"),
        ("batching", "on|off", "do host and SmartNIC exchange one INV and one ACK a write"),
        ("broadcast", "on|off", "does the card send the copies of an INV or VAL"),
        ("queue_entries", "1..2^20|unlimited", "entries of each of the vFIFO and the dFIFO"),
        ("when_full", "wait|reject", "what a vFIFO without a free entry does with a request"),
        ("sharded", "on|off", "is a record on --replicas nodes only, whose clients ask for it"),
        ("scope_writes", "1..1000", "writes of a client in a scope, of the scope model"),
        ("timeout_us", "MICROSECONDS", "how long a client waits, where messages may be lost"),
    ];
    const HIDDEN: &'static [Setting] = &[SABOTAGE, ("faithful", "ERRATUM", "keep it as printed")];

    fn set(&mut self, key: &str, value: &str) -> Result<()> {
        match key {
            "combined" => self.offload = switch(value)?,
            "batching" => self.batching = switch(value)?,
            "broadcast" => self.broadcast = switch(value)?,
            "queue_entries" if value == "unlimited" => self.queue_entries = None,
            "queue_entries" => self.queue_entries = Some(number(value, 1, 1 << 20)? as u32),
            "when_full" => {
                self.when_full = match value {
                    "wait" => WhenFull::Wait,
                    "reject" => WhenFull::Reject,
                    _ => bail!("'{value}': choose wait or reject"),
                }
            }
            "sharded" => self.sharded = switch(value)?,
            "scope_writes" => self.scope_writes = number(value, 1, 1_000)? as u32,
            "timeout_us" => self.timeout = Nanos::from_micros(number(value, 1, 1 << 32)?),
            "faithful" => *erratum(&mut self.errata, value)? = Faithful::Paper,
            _ => self.sabotage = sabotage(&SABOTAGES, value)?,
        }
        Ok(())
    }
}

/// The erratum of this name.
fn erratum<'e>(errata: &'e mut Errata, name: &str) -> Result<&'e mut Faithful> {
    Ok(match name {
        "timestamps" => &mut errata.timestamps,
        "global_timestamps" => &mut errata.global_timestamps,
        "scopes" => &mut errata.scopes,
        "queued" => &mut errata.queued,
        _ => bail!("'{name}': choose timestamps, global_timestamps, scopes or queued"),
    })
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
            "--replicas {replicas}: every node of MINOS holds every record; give --replicas {nodes}"
        );
        // The queues stand for a card's: a server's are as long as its logs.
        let (value_bytes, memory) = (SERVED_BYTES as u64, Some(Bytes(limit.0 / nodes)));
        Ok(Self { value_bytes, memory, queue_entries: None, ..self })
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
            "--set sharded=on with crashes, stalls or partitions: a node that comes back copies from \
             one that serves, which may not hold its records; leave one of them out"
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
