//! Runs in which a recovery that is broken on purpose shows: each fault needs something that comes
//! in a recovery's way.

use nicol_core::faults::{Crash, CrashScope, FaultFamilies, FaultPlan, Stall};
use nicol_core::units::Nanos;
use nicol_sim::view_service::{RENEWAL, SERVICE_LATENCY};

use super::trials::{FEW, TIMEOUT, WITH_CRASHES, trial};
use crate::config::BenchConfig;
use crate::system::System;

/// Records per node where each has hardly more than one write, so that one that is lost stays so.
const MANY: u64 = 300;

/// When the view of a node that is back before the second renewal reaches the others.
const VIEW: Nanos = Nanos(RENEWAL.0 + 2 * SERVICE_LATENCY.0);

/// What comes in a recovery's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// What sweeps draw: crashes, and in some runs messages and cuts.
    Drawn,
    /// An engine of a survivor stands still from before the crash until after the view.
    Stalled,
    /// Messages are lost, on few records or on many.
    Lossy { records: u64 },
    /// Messages are late, and some lost.
    Late,
}

impl Way {
    /// In which `sabotage` shows.
    fn of(sabotage: &str) -> Self {
        match sabotage {
            "takes_overruled" | "reports_unread" => Self::Stalled,
            "lists_own_shard" => Self::Lossy { records: FEW },
            "decides_unreplicated" => Self::Lossy { records: MANY },
            "decides_at_logs" => Self::Late,
            _ => Self::Drawn,
        }
    }
}

/// The runs of `seed` in which `sabotage` may show.
pub(super) fn trials(system: &System, sabotage: &str, seed: u64) -> Vec<BenchConfig> {
    let workload = ["smallbank", "churn"][seed as usize % 2];
    let base = trial(system, workload, Some(FEW), 8, WITH_CRASHES, seed);
    let on = |nodes, replicas| BenchConfig {
        nodes,
        replicas,
        settings: vec![TIMEOUT.to_owned(), "recovery=prepared".to_owned()],
        ..base.clone()
    };
    let under = |plan, run| vec![BenchConfig { fault_plan: Some(plan), ..run }];
    let replicas = 2 + seed as usize / 2 % 2;
    match Way::of(sabotage) {
        Way::Drawn => {
            let faults = FaultFamilies {
                crashes: true,
                messages: seed.is_multiple_of(2),
                partitions: seed % 4 == 3,
                ..FaultFamilies::NONE
            };
            vec![BenchConfig { faults, ..on(3, 2) }, BenchConfig { faults, ..on(5, 3) }]
        }
        Way::Stalled => under(stalled(seed), on(3, replicas)),
        Way::Lossy { records } => {
            // With a backup more than one is left that may lack a record.
            let mut run = on(3, if records == MANY { 3 } else { 2 });
            run.workload.records = Some(records);
            under(FaultPlan { loss: 200_000, ..one_lost(seed) }, run)
        }
        Way::Late => under(late(seed), on(3, replicas)),
    }
}

/// A number below `bound` that differs from seed to seed.
fn spread(seed: u64, factor: u64, bound: u64) -> u64 {
    seed.wrapping_mul(factor) % bound
}

/// One node of three is lost among open transactions, and comes back shortly before the view
/// service looks who is there.
fn one_lost(seed: u64) -> FaultPlan {
    let at = Nanos(20_000 + spread(seed, 7_919, 280_000));
    let back = Nanos(RENEWAL.0 - 5_000 - spread(seed, 15_485_863, 55_000));
    let restart_after = Some(back - at);
    let crash = Crash { scope: CrashScope::Node, node: (seed % 3) as u16, at, restart_after };
    FaultPlan { crashes: vec![crash], quiet_after: RENEWAL * 10, ..FaultPlan::none() }
}

/// The second engine of a survivor's host or NIC, since the first one asks for the lease.
fn stalled(seed: u64) -> FaultPlan {
    let plan = one_lost(seed);
    let survivor = (seed as u32 % 3 + 1 + (seed / 3 % 2) as u32) % 3;
    let engine = 4 * survivor + [1, 3][(seed / 6 % 2) as usize];
    let from = Nanos(plan.crashes[0].at.0 - spread(seed, 104_729, 16_000));
    let span = VIEW + Nanos(spread(seed, 1_299_709, 100_000)) - from;
    FaultPlan { stalls: vec![Stall { engine, from, span }], ..plan }
}

fn late(seed: u64) -> FaultPlan {
    let reorder_span = Nanos::from_micros([100, 400, 1_000][(seed / 6 % 3) as usize]);
    let loss = [10_000, 100_000][(seed / 3 % 2) as usize];
    FaultPlan { loss, reorder: 200_000, reorder_span, ..one_lost(seed) }
}
