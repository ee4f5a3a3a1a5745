//! Runs in which a broken protocol shows: few records, many clients.

use nicol_core::faults::{Crash, CrashScope, FaultFamilies, FaultPlan, Partition};
use nicol_core::ids::NodeId;
use nicol_core::units::Nanos;
use nicol_core::view::NodeSet;

use crate::config::{BenchConfig, Length};
use crate::system::System;
use crate::workloads::WorkloadSpec;

/// Records per node: so few that transactions meet.
pub(super) const FEW: u64 = 10;
/// Transactions of a run.
const SHORT: u64 = 400;
/// The same of a run in which new orders and who looks for them meet.
const ORDERS: u64 = 3_000;

/// Transactions of a run with crashes: some are still under way when the last nodes come back.
pub(super) const WITH_CRASHES: u64 = 2_000;
/// Time that a call waits for an answer in a run with crashes: less than a crashed node stays away.
pub(super) const TIMEOUT: &str = "timeout_us=500";

/// What it waits where the network is cut: far less than a cut lasts.
const SHORT_TIMEOUT: &str = "timeout_us=100";
/// How long a cut lasts: less than a lease.
const CUT: Nanos = Nanos::from_micros(900);

/// Runs as `calm` in which it shows what becomes of whom somebody waits for: the host of one node,
/// or a NIC, goes and comes back, and messages are lost; and cuts that heal before a lease ends.
fn dying(calm: &BenchConfig, seed: u64) -> [BenchConfig; 2] {
    let under = |fault_plan, timeout: &str| BenchConfig {
        fault_plan: Some(fault_plan),
        settings: vec![timeout.to_owned()],
        length: Some(Length::Transactions(WITH_CRASHES)),
        ..calm.clone()
    };
    let early = Nanos(20_000 + seed.wrapping_mul(7_919) % 300_000);
    let scope = if seed.is_multiple_of(2) { CrashScope::Host } else { CrashScope::Nic };
    let restart_after = Some(Nanos(10_000 + seed.wrapping_mul(104_729) % 500_000));
    let crashes = vec![Crash { scope, node: seed as u16, at: early, restart_after }];
    let loss = [30_000, 100_000][seed as usize % 2];
    let quiet_after = Nanos::from_millis(20);
    let lossy = FaultPlan { crashes, loss, quiet_after, ..FaultPlan::none() };
    let cut = |number: u64| {
        let from = early + (CUT + Nanos::from_micros(100)) * number;
        let side = NodeSet::from_iter([NodeId(((seed + number) % 3) as u16)]);
        Partition { from, until: from + CUT, side, one_way: (seed / 3 + number).is_multiple_of(2) }
    };
    let partitions = (0..3).map(cut).collect();
    let parted = FaultPlan { partitions, quiet_after, ..FaultPlan::none() };
    [under(lossy, TIMEOUT), under(parted, SHORT_TIMEOUT)]
}

/// A run without faults.
pub(super) fn trial(
    system: &System,
    workload: &str,
    records: Option<u64>,
    clients: usize,
    transactions: u64,
    seed: u64,
) -> BenchConfig {
    let on = if system.offloads { "liquidio3" } else { "connectx5" };
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
}

/// The runs of `seed` in which a sabotage of the steps shows: every workload that one needs, the
/// cheapest first.
pub(super) fn trials(system: &System, seed: u64) -> Vec<BenchConfig> {
    let trial = |workload: &str, records, clients, transactions| {
        trial(system, workload, records, clients, transactions, seed)
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
    trials.extend(dying(&trials[1], seed));
    if seed % 32 == 31 {
        // Load makes the trees of Xenic's hosts lag behind its NICs, which shows old scans.
        trials.push(trial("tpcc", None, 24, 5 * SHORT));
    }
    if system.offloads && seed.is_multiple_of(2) {
        // Few customers, whose orders are looked for while LOGs of new ones are late, show what
        // ranges hold.
        let mut orders = trial("tpcc", None, 24, ORDERS);
        orders.workload.customers = Some(3);
        orders.faults = FaultFamilies::MESSAGES;
        orders.settings = vec![TIMEOUT.to_owned()];
        trials.push(orders);
    }
    trials
}
