//! Engines that execute chains stand still for longer than a client waits for its answer: what they
//! have left waiting they execute when nobody asks for it any more. PRISM's servers find what that
//! leaves. A side's first engine goes on, since it renews the lease: without it a view takes the
//! server away.

use nicol_bench::bench::BenchConfig;
use nicol_bench::workloads::WorkloadSpec;
use nicol_core::faults::{CrashScope, FaultPlan, Stall};
use nicol_core::ids::Side;
use nicol_core::units::Nanos;

use crate::support::{crash, few_records, held, short};

/// Engines of each side of every node.
const ENGINES: u32 = 2;
/// Longer than a client waits, 20 ms simulated, and a server for what is on its way.
const SPAN: Nanos = Nanos::from_millis(30);

fn config(system: &str, seed: u64) -> BenchConfig {
    let (spec, nodes) = match system {
        "prism-rs" => (few_records(4), 3),
        "prism-kv" => (WorkloadSpec { records: Some(16), ..WorkloadSpec::named("churn") }, 2),
        _ => {
            let spec = WorkloadSpec { records: Some(8), ..WorkloadSpec::named("ycsb-t") };
            let (keys, value_bytes, zipf_percent) = (Some(3), Some(16), Some(0));
            (WorkloadSpec { keys, value_bytes, zipf_percent, ..spec }, 2)
        }
    };
    BenchConfig {
        nodes,
        replicas: if system == "prism-rs" { 3 } else { 1 },
        client_nodes: 3,
        clients: Some(4),
        host_engines: Some(ENGINES as usize),
        nic_engines: Some(ENGINES as usize),
        ..short(system, spec, "connectx5-40g", seed)
    }
}

/// These NIC engines of the first node stand still from so many microseconds on. Elsewhere a frame
/// may be lost, so that answers are not waited for without end.
fn stalls(cores: impl Iterator<Item = u32>, from_us: u64) -> FaultPlan {
    let engine = |core| Side::Nic as u32 * ENGINES + core;
    let from = Nanos::from_micros(from_us);
    let stalls = cores.map(|core| Stall { engine: engine(core), from, span: SPAN }).collect();
    FaultPlan { loss: 1, stalls, ..FaultPlan::none() }
}

#[test]
fn what_is_executed_after_its_client_has_given_up_is_found() {
    for system in ["prism-kv", "prism-rs", "prism-tx"] {
        let (mut scans, mut resolved) = (0, 0);
        for step in 0..8 {
            let fault_plan = Some(stalls(1..ENGINES, 50 + 3 * step));
            let report = held(&BenchConfig { fault_plan, ..config(system, 3) });
            let counters = &report.counters[system.replace('-', "_").as_str()];
            scans += counters["scans"];
            resolved += counters.get("resolved").copied().unwrap_or_default();
        }
        assert!(scans + resolved > 0, "{system}: nothing was given up");
        assert_eq!(resolved > 0, system == "prism-tx", "write checks wait at the engine");
    }
}

/// A client dies whose locks are still to come: at an engine that stands still, while another one
/// of the same server goes on.
#[test]
fn a_lock_that_a_dead_client_gets_late_is_released() {
    for seed in [1, 4, 7] {
        for from_us in (60..120).step_by(3) {
            let mut plan = stalls(1..2, from_us);
            plan.crashes.push(crash(CrashScope::Node, 4, from_us + 5, None));
            held(&BenchConfig {
                nodes: 3,
                client_nodes: 2,
                host_engines: Some(ENGINES as usize),
                nic_engines: Some(ENGINES as usize),
                fault_plan: Some(plan),
                ..short("abdlock-software", few_records(1), "connectx5-40g", seed)
            });
        }
    }
}
