//! What a sweep varies in the commit family's systems, besides faults.

use nicol_core::rng::{Purpose, Stream};

use super::workloads::write_set_bytes;
use crate::system::System;
use crate::workloads::WorkloadSpec;

/// One run in so many has hardly any memory.
const SCARCE_ONE_IN: u64 = 8;
/// Logs of such a run, in thirds of the workload's largest write set. A record takes at most half a
/// log: in the smaller ones the largest never fit, in the larger ones they all fit and wait for
/// each other.
const SCARCE_LOGS: [u64; 4] = [5, 6, 8, 16];
/// Logs are made of lines of this many bytes.
const LOG_LINE: u64 = 32;
/// Objects that the NIC index of such a run may cache.
const SCARCE_INDICES: [u64; 3] = [1, 8, 64];

/// Settings under which caches start empty, so that what they save is seen to work.
const COLD: [&str; 2] = ["warm_index", "warm_addresses"];

/// One run in so many takes another way of [`WAYS`], for each of them.
const WAY_ONE_IN: u64 = 8;

/// Settings that choose another way through a protocol, and their values but for the paper's.
pub const WAYS: [(&str, &[&str]); 6] = [
    ("log_content", &["shard", "whole"]),
    ("log_acks", &["on", "off"]),
    ("combined_ops", &["keys", "off"]),
    ("homes_per_hint", &["2", "4", "8", "16"]),
    ("locks_until", &["primary"]),
    ("recovery", &["prepared"]),
];

/// The other ways of a run. They have a stream of their own, so that they move no other draw.
fn ways(seed: u64) -> Vec<(&'static str, String)> {
    let mut random = Stream::new(seed, Purpose::Variation, 1);
    let drawn = WAYS.map(|(key, values)| {
        let (chosen, value) = (random.below(WAY_ONE_IN) == 0, random.pick(values));
        value.filter(|_| chosen).map(|value| (key, (*value).to_owned()))
    });
    drawn.into_iter().flatten().collect()
}

/// The variation of a sweep, besides faults, as settings drawn from `seed`: most runs have the
/// memory that they need, the others a log that a few records fill and an index of a few objects,
/// so that refusals and back-pressure are seen. Half of the runs start with empty caches, and some
/// take another way than the paper's.
pub(super) fn variation(system: &System, workload: &WorkloadSpec, seed: u64) -> Vec<String> {
    let mut random = Stream::new(seed, Purpose::Variation, 0);
    let mut varied = Vec::new();
    if random.below(SCARCE_ONE_IN) == 0 {
        let mut one_of = |sizes: &[u64]| sizes[random.below(sizes.len() as u64) as usize];
        let log_bytes = one_of(&SCARCE_LOGS) * write_set_bytes(workload) / 3;
        let log_bytes = log_bytes.next_multiple_of(LOG_LINE).to_string();
        varied.push(("log_bytes", log_bytes.clone()));
        varied.push(("message_log_bytes", log_bytes));
        varied.push(("index_objects", one_of(&SCARCE_INDICES).to_string()));
    }
    if random.below(2) == 0 {
        varied.extend(COLD.map(|cache| (cache, "off".to_owned())));
    }
    varied.extend(ways(seed));
    let known = (system.settings)(system.name);
    varied.retain(|(key, _)| known.iter().any(|row| row.key == *key));
    varied.into_iter().map(|(key, value)| format!("{key}={value}")).collect()
}
