//! Runs in which a broken protocol shows: few records, many clients.

use nicol_core::faults::FaultFamilies;
use nicol_core::units::Nanos;

use crate::config::{BenchConfig, Length};
use crate::system::System;
use crate::workloads::WorkloadSpec;

/// Records per node: so few that transactions meet.
const FEW: u64 = 10;
/// Transactions of a run.
const SHORT: u64 = 400;

/// Transactions of a run with crashes: some are still under way when the last nodes come back.
const WITH_CRASHES: u64 = 2_000;
/// Time that a call waits for an answer in a run with crashes: less than a crashed node stays away.
const TIMEOUT: &str = "timeout_us=500";

/// The runs of `seed`: every workload that some sabotage needs, the cheapest first.
pub(super) fn trials(system: &System, seed: u64) -> Vec<BenchConfig> {
    let on = if system.offloads { "liquidio3" } else { "connectx5" };
    let trial = |workload: &str, records, clients, transactions| {
        let mut spec = WorkloadSpec { records, ..WorkloadSpec::named(workload) };
        spec.shrink();
        BenchConfig {
            host_engines: Some(2),
            nic_engines: Some(2),
            clients: Some(clients),
            length: Some(Length::Transactions(transactions)),
            warmup: Some(Nanos::ZERO),
            ..BenchConfig::new(system.name, spec, on, seed)
        }
    };
    let mut trials = vec![
        trial("smallbank", Some(FEW), 8, SHORT),
        trial("churn", Some(FEW), 8, SHORT),
        trial("churn-ordered", Some(FEW), 8, SHORT),
        BenchConfig {
            faults: FaultFamilies { crashes: true, ..FaultFamilies::MESSAGES },
            settings: vec![TIMEOUT.to_owned()],
            ..trial("churn", Some(FEW), 8, WITH_CRASHES)
        },
    ];
    if seed.is_multiple_of(4) {
        // Load makes the trees of Xenic's hosts lag behind its NICs, which shows old scans.
        trials.push(trial("tpcc", None, 24, 5 * SHORT));
    }
    trials
}
