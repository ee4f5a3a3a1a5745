//! Xenic under every checker: its steps, the ways that a transaction may take ([`crate::ways`] has
//! what each saves), and what is broken on purpose.

use std::sync::Arc;

use nicol_commit::Sabotage;
use nicol_commit::xenic::{CombinedOps, ExecuteAt, Node, XenicConfig};
use nicol_core::faults::FaultPlan;
use nicol_core::units::Nanos;
use nicol_core::workload::Workload;
use nicol_workload::churn::{Churn, ChurnConfig};
use nicol_workload::smallbank::{Smallbank, SmallbankConfig};
use nicol_workload::tpcc::{Tpcc, TpccConfig};

use crate::cluster::{NODES, RUN, Ran, Run, run};

pub fn smallbank(accounts: u64) -> Arc<dyn Workload> {
    Arc::new(Smallbank::new(SmallbankConfig::paper(NODES, accounts)))
}

/// Records that come and go.
fn churn(rows_per_node: u64, ordered: bool) -> Arc<dyn Workload> {
    let rows = rows_per_node * u64::from(NODES);
    Arc::new(Churn::new(ChurnConfig { ordered, ..ChurnConfig::new(NODES, rows) }))
}

fn tpcc() -> Arc<dyn Workload> {
    let config = TpccConfig {
        items: 100,
        customers_per_district: 30,
        ..TpccConfig::specification(NODES, 1).for_transactions(2_000)
    };
    Arc::new(Tpcc::new(config))
}

/// Space for records of the workload, whose values have `value` bytes at most.
pub fn config(workload: &Arc<dyn Workload>, value: usize) -> XenicConfig {
    XenicConfig::paper(workload.records_per_shard() + workload.growth_per_shard(), value)
}

pub fn held(how: &Run, config: &XenicConfig, workload: &Arc<dyn Workload>, seed: u64) -> Ran {
    let ran = run::<Node>(how, config, workload.clone(), seed);
    assert!(ran.held(), "seed {seed}: {config:?}: {:#?} {:#?}", ran.anomalies, ran.wrong);
    ran
}

/// Does the serializability checker catch what `config` breaks? Then the same run must hold when
/// nothing is broken: a protocol that lacks the step fails here.
fn is_distinguished(
    how: &Run,
    config: XenicConfig,
    workload: &Arc<dyn Workload>,
    seed: u64,
) -> bool {
    let caught = !run::<Node>(how, &config, workload.clone(), seed).anomalies.is_empty();
    if caught {
        // A protocol that is broken on purpose takes no shorter way.
        let (sabotage, local_paths, multi_hop) = (Sabotage::None, false, false);
        let whole = XenicConfig { sabotage, local_paths, multi_hop, ..config };
        held(how, &whole, workload, seed);
    }
    caught
}

#[test]
fn inserts_and_deletes_survive_contention() {
    for seed in 0..8 {
        for ordered in [false, true] {
            let workload = churn(16, ordered);
            let ran = held(&RUN, &config(&workload, 16), &workload, seed);
            assert!(ran.counts.aborted() > 0, "nothing ever conflicted");
        }
    }
}

#[test]
fn every_broken_protocol_is_caught_within_200_seeds() {
    let how = Run { transactions: 400, ..RUN };
    let workloads = [smallbank(10), churn(10, false)];
    for sabotage in [
        Sabotage::NoValidate,
        Sabotage::ValidateIgnoresLocks,
        Sabotage::NoLocks,
        Sabotage::UnlockFirst,
        Sabotage::EarlyUnlock,
        Sabotage::AbortInstalls,
    ] {
        let caught = (0..200).any(|seed| {
            workloads.iter().any(|workload| {
                let config = XenicConfig { sabotage, ..config(workload, 16) };
                is_distinguished(&how, config, workload, seed)
            })
        });
        assert!(caught, "{sabotage:?} was never caught by the serializability checker");
    }
}

#[test]
fn every_commit_took_one_way() {
    let workload = smallbank(500);
    let ran = held(&RUN, &config(&workload, 8), &workload, 1);
    assert!(ran.paths.values().all(|&count| count > 0), "{:?}", ran.paths);
    assert_eq!(ran.paths.values().sum::<u64>(), ran.counts.committed);
}

#[test]
fn a_way_that_is_switched_off_is_taken_by_nobody() {
    let workload = smallbank(500);
    let paper = config(&workload, 8);
    let split = XenicConfig { combined_ops: CombinedOps::None, multi_hop: false, ..paper.clone() };
    let at = |execute_at| XenicConfig { execute_at, ..paper.clone() };
    for (config, paths) in [
        (XenicConfig { multi_hop: false, ..paper.clone() }, &["multi_hop"][..]),
        (split, &["multi_hop"]),
        (at(ExecuteAt::Host), &["multi_hop"]),
        (at(ExecuteAt::Nic), &["local_write", "local_read"]),
        (XenicConfig { local_paths: false, ..paper.clone() }, &["local_write", "local_read"]),
    ] {
        let ran = held(&RUN, &config, &workload, 2);
        for (&path, &count) in &ran.paths {
            assert_eq!(count == 0, paths.contains(&path), "{config:?}: {path} {count}");
        }
    }
}

/// TPC-C's logic adds keys, so its transactions go back to their coordinators.
#[test]
fn every_way_survives_message_faults() {
    let (smallbank, churn, tpcc) = (smallbank(40), churn(40, false), tpcc());
    let mut unknown = 0;
    for seed in 0..6 {
        let paper = |workload: &Arc<dyn Workload>, value| XenicConfig {
            timeout: Nanos::from_micros(500),
            ..config(workload, value)
        };
        let split = |combined_ops, config| XenicConfig { combined_ops, multi_hop: false, ..config };
        let at = |execute_at, config| XenicConfig { execute_at, ..config };
        let remote = |config| XenicConfig { local_paths: false, ..config };
        let prepared = XenicConfig::that_recovers;
        for (workload, config) in [
            (&smallbank, split(CombinedOps::Keys, paper(&smallbank, 8))),
            (&smallbank, split(CombinedOps::None, paper(&smallbank, 8))),
            (&churn, at(ExecuteAt::Host, split(CombinedOps::None, paper(&churn, 16)))),
            (&churn, at(ExecuteAt::Nic, paper(&churn, 16))),
            (&smallbank, remote(paper(&smallbank, 8))),
            (&tpcc, remote(paper(&tpcc, 96))),
            (&smallbank, XenicConfig { index_objects: 64, ..paper(&smallbank, 8) }),
            (&churn, prepared(paper(&churn, 16))),
            (&tpcc, prepared(remote(paper(&tpcc, 96)))),
        ] {
            let how = Run { faults: FaultPlan::messages(seed), ..RUN };
            unknown += held(&how, &config, workload, seed).counts.unknown;
        }
    }
    assert!(unknown > 0, "no outcome was ever unknown");
}
