//! `--set key=value`: every mechanism of a system that can be varied.

use anyhow::{Context, Result, bail, ensure};
use nicol_core::units::{Bytes, Nanos};
use nicol_protocols::commit::xenic::{ExecuteAt, Faithful, LocalRead, XenicConfig};

/// What `--set` may change besides the system's own settings: how engines behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EngineSettings {
    /// One frame per destination and round? [Xenic21 5.7]
    pub aggregation: Option<bool>,
    /// DMA requests per vector; 1 switches vectors off. [Xenic21 5.7]
    pub dma_vector: Option<usize>,
    /// One-sided operations per doorbell.
    pub doorbell_batch: Option<usize>,
}

/// The keys that [`apply`] knows, with their values and what they mean.
pub const KEYS: [(&str, &str, &str); 14] = [
    ("execute_at", "host|annotation|nic", "where execution logic runs"),
    ("faithful", "paper|fixed", "leave the paper's gaps open; paper is not serializable"),
    ("multi_hop", "on|off", "let a primary NIC execute a whole transaction"),
    ("local_paths", "on|off", "let the host execute a transaction whose keys are all local"),
    ("local_read", "paper|strict", "how local read-only transactions check what they read"),
    ("index_objects", "N", "objects that each node's NIC index may cache"),
    ("displacement_max", "1..64", "displacement limit D_m of the host table"),
    ("slack", "0..64", "entries read beyond the known displacement, k"),
    ("slots_percent", "100..1000", "table slots per record, in percent"),
    ("log_bytes", "BYTES", "each NIC core's log in host memory"),
    ("patience_us", "MICROSECONDS", "how long a phase waits for an unreachable node"),
    ("aggregation", "on|off", "gather messages into frames (simulated worlds)"),
    ("dma_vector", "1..15", "DMA requests per vector (simulated worlds)"),
    ("doorbell_batch", "1..64", "one-sided operations per doorbell (simulated worlds)"),
];

/// Applies settings in order; a later one wins. Errors name the key, the value and the remedy.
pub fn apply(
    settings: &[String],
    xenic: &mut XenicConfig,
    engine: &mut EngineSettings,
) -> Result<()> {
    for setting in settings {
        let Some((key, value)) = setting.split_once('=') else {
            bail!("--set {setting}: write key=value; keys are {}", names());
        };
        one(key.trim(), value.trim(), xenic, engine).with_context(|| format!("--set {setting}"))?;
    }
    Ok(())
}

fn names() -> String {
    KEYS.map(|(key, ..)| key).join(", ")
}

fn number(value: &str, low: u64, high: u64) -> Result<u64> {
    let number: u64 = value.parse().with_context(|| format!("'{value}' is not a whole number"))?;
    ensure!((low..=high).contains(&number), "{number} is out of range: give {low} to {high}");
    Ok(number)
}

fn switch(value: &str) -> Result<bool> {
    match value {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => bail!("'{value}': choose on or off"),
    }
}

fn one(key: &str, value: &str, xenic: &mut XenicConfig, engine: &mut EngineSettings) -> Result<()> {
    match key {
        "execute_at" => {
            xenic.execute_at = match value {
                "host" => ExecuteAt::Host,
                "annotation" => ExecuteAt::Annotation,
                "nic" => ExecuteAt::Nic,
                _ => bail!("'{value}' is not a place: choose host, annotation or nic"),
            }
        }
        "faithful" => {
            (xenic.faithful, xenic.local_read) = match value {
                "paper" => (Faithful::Paper, LocalRead::Paper),
                "fixed" => (Faithful::Fixed, LocalRead::Strict),
                _ => bail!("'{value}': choose paper or fixed"),
            }
        }
        "multi_hop" => xenic.multi_hop = switch(value)?,
        "local_paths" => xenic.local_paths = switch(value)?,
        "local_read" => {
            xenic.local_read = match value {
                "paper" => LocalRead::Paper,
                "strict" => LocalRead::Strict,
                _ => bail!("'{value}': choose paper or strict"),
            }
        }
        "index_objects" => xenic.index_objects = number(value, 1, 1 << 32)? as usize,
        "displacement_max" => xenic.displacement_max = number(value, 1, 64)? as u16,
        "slack" => xenic.slack = number(value, 0, 64)? as u16,
        "slots_percent" => xenic.slots_percent = number(value, 100, 1_000)?,
        "log_bytes" => xenic.log = Bytes(number(value, 4_096, 1 << 32)?),
        "patience_us" => xenic.patience = Nanos::from_micros(number(value, 1, 60_000_000)?),
        "aggregation" => engine.aggregation = Some(switch(value)?),
        "dma_vector" => engine.dma_vector = Some(number(value, 1, 15)? as usize),
        "doorbell_batch" => engine.doorbell_batch = Some(number(value, 1, 64)? as usize),
        _ => bail!("no such key; keys are {}", names()),
    }
    Ok(())
}
