//! MINOS without the others: a node that is cut off for longer than a lease serves nothing, and one
//! that is left alone goes on.

use nicol_bench::bench::{BenchConfig, BenchRun, Length};
use nicol_core::faults::{CrashScope, FaultPlan, Partition};
use nicol_core::history::{Action, End, Operation};
use nicol_core::ids::NodeId;
use nicol_core::units::Nanos;
use nicol_sim::view_service::LEASE;

use crate::support::{crash, each_minos, few_records, held_run, short};

/// A client at each node, which has the node's number, for so long.
fn config(system: &str, seed: u64, span: Nanos, fault_plan: FaultPlan) -> BenchConfig {
    BenchConfig {
        clients: Some(1),
        length: Some(Length::Time(span)),
        fault_plan: Some(fault_plan),
        ..short(system, few_records(20), "minos-snic", seed)
    }
}

/// Operations of the client at `node` that have ended well, and lie between two instants.
fn served(ran: &BenchRun, node: u16, from: Nanos, until: Nanos) -> Vec<&Operation> {
    let operations = ran.history.operations.iter();
    let within = |one: &&Operation| {
        one.end == End::Ok
            && one.client == u32::from(node)
            && one.invoked >= from.0
            && one.responded.is_some_and(|responded| responded < until.0)
    };
    operations.filter(within).collect()
}

fn is_write(operation: &&Operation) -> bool {
    matches!(operation.action, Action::Put { .. })
}

/// Nodes 0 and 2, or node 1, are cut off, in both ways or in the way from them: they may hear all
/// INVs, or send some, and have no lease either way. Whoever is left goes on.
#[test]
fn a_node_without_a_lease_serves_nothing_behind_a_cut_of_either_kind() {
    let (from, until, end) =
        (Nanos::from_micros(300), Nanos::from_millis(14), Nanos::from_millis(28));
    for (cut_off, left) in [(&[1][..], &[0, 2][..]), (&[0, 2], &[1])] {
        for one_way in [false, true] {
            each_minos(1, |system, seed| {
                let side = cut_off.iter().copied().map(NodeId).collect();
                let partitions = vec![Partition { from, until, side, one_way }];
                let plan = FaultPlan { partitions, ..FaultPlan::none() };
                let ran = held_run(&config(system, seed, end, plan));
                let name = format!("{system}, {cut_off:?} cut off, one way: {one_way}");
                for &node in cut_off {
                    assert!(!served(&ran, node, Nanos::ZERO, from).is_empty(), "{name}");
                    let stale = served(&ran, node, from + LEASE, until);
                    assert!(stale.is_empty(), "{name}: node {node} served {:?}", stale[0]);
                    // It begins a new life then, without its clients.
                    let again = served(&ran, node, until, Nanos::MAX);
                    assert!(again.is_empty(), "{name}: node {node} served {:?}", again[0]);
                }
                for &node in left {
                    let goes_on = served(&ran, node, from + LEASE, until);
                    assert!(goes_on.iter().any(is_write), "{name}: node {node} waits");
                }
            });
        }
    }
}

/// Two of three nodes crash for good, at random instants: the third commits afterwards.
#[test]
fn the_last_of_three_nodes_goes_on() {
    each_minos(3, |system, seed| {
        let instant = |draw: u64| 20 + (seed * 7_919 + draw * 104_729) % 3_000;
        let last = (seed % 3) as u16;
        let crashes = (0..3u16).filter(|node| *node != last);
        let crashes: Vec<_> = crashes
            .map(|node| crash(CrashScope::Node, node, instant(u64::from(node)), None))
            .collect();
        let at = crashes.iter().map(|crash| crash.at).max().unwrap();
        let plan = FaultPlan { crashes, ..FaultPlan::none() };
        let ran = held_run(&config(system, seed, at + LEASE + Nanos::from_millis(10), plan));
        let after = served(&ran, last, at + LEASE + Nanos::from_millis(5), Nanos::MAX);
        assert!(after.iter().any(is_write), "{system}, seed {seed}: node {last} waits");
    });
}
