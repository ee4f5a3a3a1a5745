//! Xenic with `recovery=prepared`: nodes that were lost come back, are given their records, and
//! lead again. (decision 0105)

use std::sync::Arc;

use nicol_commit::xenic::{Node, XenicConfig};
use nicol_core::faults::{Crash, CrashScope};
use nicol_core::units::Nanos;
use nicol_core::workload::Workload;

use crate::cluster::{Ran, Run, run};
use crate::crashes::{churn, config, smallbank, with};

/// Nodes are lost one after the other, so long after one another.
const APART: Nanos = Nanos::from_millis(9);

fn prepared(workload: &Arc<dyn Workload>) -> XenicConfig {
    XenicConfig { timeout: Nanos::from_millis(5), ..config(workload).that_recovers() }
}

/// Each of these nodes is lost in its turn and starts again soon; log devices that take their time
/// let the load last.
fn one_after_the_other(nodes: &[u16], replicas: usize, shift: u64) -> Run {
    let crash = |(turn, &node): (u64, &u16)| Crash {
        scope: CrashScope::Node,
        node,
        at: Nanos::from_micros(1_000 + 137 * shift) + APART * turn,
        restart_after: Some(Nanos::from_micros(80)),
    };
    let crashes = (0..).zip(nodes).map(crash).collect();
    let transactions = 1_200 * nodes.len() as u64;
    let log_device = Some(Nanos::from_micros(200));
    Run { replicas, transactions, log_device, ..with(crashes) }
}

fn returns(how: &Run, config: &XenicConfig, workload: &Arc<dyn Workload>, seed: u64) -> Ran {
    let ran = run::<Node>(how, config, workload.clone(), seed);
    let crashes = &how.faults.crashes;
    assert!(ran.held(), "seed {seed}, {crashes:?}: {:#?} {:#?}", ran.anomalies, ran.wrong);
    assert_eq!(ran.awaiting, 0, "seed {seed}, {crashes:?}: somebody still waits");
    let last = crashes.last().map_or(Nanos::ZERO, |crash| crash.at);
    let again = ran.to_inherited.iter().any(|&at| at > (last + Nanos::from_millis(3)).0);
    assert!(again, "seed {seed}, {crashes:?}: no lost shard is served after the last loss");
    ran
}

/// With one backup each, the second loss takes a shard unless the first node is whole again.
#[test]
fn with_one_backup_two_nodes_are_lost_one_after_the_other() {
    for (workload, shift) in [(smallbank(30), 0), (churn(false), 1), (churn(true), 2)] {
        let how = one_after_the_other(&[1, 2], 2, shift);
        returns(&how, &prepared(&workload), &workload, shift);
    }
}
