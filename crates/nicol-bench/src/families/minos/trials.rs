//! Runs in which a broken MINOS shows.

use nicol_core::faults::{Crash, CrashScope, FaultPlan};
use nicol_core::units::Nanos;
use nicol_workload::ycsb::Popularity;

use crate::config::{BenchConfig, Length};
use crate::system::System;
use crate::workloads::WorkloadSpec;

/// Few records and many clients: crashes of everything, early and late, of a node, of all NICs and
/// of one, message faults, and none. And a crash of a node among so many records that nobody writes
/// again what it has left.
pub(super) fn trials(system: &System, _: &str, seed: u64) -> Vec<BenchConfig> {
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
    let crashing = |scope, restart_after| {
        let at = Nanos(10_000 + seed.wrapping_mul(7_919) % 90_000);
        let crashes = vec![Crash { scope, node: seed as u16, at, restart_after }];
        let fault_plan = Some(FaultPlan { crashes, ..FaultPlan::none() });
        // Slow devices, so that much is on its way to them.
        let on = "minos-snic:persist.by_core=false:persist.per_kib=200us:\
                  nic_queues.durable_per_kib=200us"
            .to_owned();
        BenchConfig { fault_plan, on, ..calm.clone() }
    };
    let again = Some(Nanos::from_micros(50));
    let mut left = crashing(CrashScope::Node, None);
    left.workload.records = Some(400);
    // The NICs of all nodes, behind which updates wait for a slow way to their hosts.
    let mut nics = crashing(CrashScope::Nic, again);
    nics.on.push_str(":dma.write_latency=20us");
    if let Some(plan) = &mut nics.fault_plan {
        let first = plan.crashes[0];
        plan.crashes = (0..nics.nodes as u16).map(|node| Crash { node, ..first }).collect();
    }
    // A host that is left without its NIC for longer than a lease.
    let mut alone = crashing(CrashScope::Nic, None);
    (alone.clients, alone.length) = (Some(1), Some(Length::Time(Nanos::from_millis(16))));
    let everything = crashing(CrashScope::All, again);
    // Everything, with devices so slow, and records so many, that reads and the ends of scopes come
    // long before what is acknowledged too early is durable.
    let mut early = everything.clone();
    early.workload.records = Some(24);
    early.on = early.on.replace("200us", "2ms");
    if let Some(plan) = &mut early.fault_plan {
        plan.crashes[0].at = Nanos(100_000 + seed.wrapping_mul(7_919) % 500_000);
    }
    let mut trials = vec![everything, early, crashing(CrashScope::Node, None), left, nics];
    if seed.is_multiple_of(16) {
        // It takes longer than all others, and shows what it shows on the first seed.
        trials.push(alone);
    }
    trials.extend([lossy, calm]);
    trials
}
