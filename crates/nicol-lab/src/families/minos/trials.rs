//! Runs in which a broken MINOS shows.

use nicol_core::units::Nanos;
use nicol_workload::ycsb::Popularity;

use crate::config::{BenchConfig, Length};
use crate::system::System;
use crate::workloads::WorkloadSpec;

/// Few records and many clients, with and without message faults.
pub(super) fn trials(system: &System, seed: u64) -> Vec<BenchConfig> {
    let spec = WorkloadSpec {
        records: Some(2),
        value_bytes: Some(16),
        popularity: Some(Popularity::Uniform),
        ..WorkloadSpec::named("ycsb")
    };
    let calm = BenchConfig {
        clients: Some(6),
        host_engines: Some(2),
        nic_engines: Some(2),
        length: Some(Length::Transactions(300)),
        warmup: Some(Nanos::ZERO),
        ..BenchConfig::new(system.name, spec, "minos-snic", seed)
    };
    let mut lossy = calm.clone();
    lossy.faults.messages = true;
    vec![calm, lossy]
}
