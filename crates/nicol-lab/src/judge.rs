//! Judges a finished run: memory, invariants, replicas, and its history if it has one.

use std::collections::BTreeMap;
use std::sync::Arc;

use nicol_core::history::History;
use nicol_core::system::{Audit, SystemNode};
use nicol_workload::driver::history;

use crate::cluster::{Cluster, Quiet};
use crate::family::Family;
use crate::parallel;
use crate::report::Check;

/// Violations that a report spells out; more are counted.
const VIOLATIONS_SHOWN: usize = 20;

/// The verdict on a finished run, and the history that was judged.
pub(crate) fn judge<Y: Family>(cluster: &Cluster<Y>, settled: bool) -> (Check, History) {
    let operations = std::mem::take(&mut cluster.run.result().history);
    let mut judged = History::default();
    let mut check = Check {
        promised: cluster.built.promised,
        invariants: true,
        replicas_converge: Y::Node::REPLICAS_CONVERGE.then_some(true),
        ..Check::default()
    };
    if !settled {
        check.violations.push("the cluster did not become quiet: work is stuck".to_owned());
    }
    if cfg!(debug_assertions) && settled {
        // Goes over every record of every replica: more work than many a run.
        cluster.survivors().for_each(|node| node.check());
    }
    audit_memory(cluster, &mut check);
    audit_invariants(cluster, &mut check);
    if cluster.run.plan().record {
        let promise = cluster.built.promised.promise;
        judged = history(promise, operations, &*cluster.built.source, &cluster.view);
        let violations = Y::judge(&judged);
        check.held_promise = Some(violations.is_empty());
        check.checked = judged.operations.len() as u64;
        for violation in violations.iter().take(VIOLATIONS_SHOWN) {
            check.violations.push(format!("{}: {violation}", check.promised.checker));
        }
    }
    (check, judged)
}

fn add(sums: &mut BTreeMap<&'static str, u64>, counts: &[(&'static str, u64)]) {
    for (name, count) in counts {
        *sums.entry(name).or_default() += count;
    }
}

fn audit_memory<Y: Family>(cluster: &Cluster<Y>, check: &mut Check) {
    let survivors: Vec<_> = cluster.survivors().cloned().collect();
    let audits: Vec<Audit> =
        parallel::map(&survivors, cluster.records, |node: &Arc<Y::Node>| node.audit());
    for audit in &audits {
        add(&mut check.leaked, &audit.leaks);
        add(&mut check.awaiting_recovery, &audit.awaiting_recovery);
    }
    for (name, count) in check.leaked.iter().filter(|(_, count)| **count > 0) {
        check.violations.push(format!("{count} {} leaked", name.replace('_', " ")));
    }
    // What a crash has cut off may have reached some replicas only.
    if !Y::Node::REPLICAS_CONVERGE || !cluster.is_whole() {
        return;
    }
    let mut digests = BTreeMap::new();
    for (node, audit) in audits.iter().enumerate() {
        for &(shard, digest) in &audit.digests {
            let (first, expected) = *digests.entry(shard).or_insert((node, digest));
            if expected != digest {
                check.replicas_converge = Some(false);
                check.violations.push(format!(
                    "shard {} differs between node {first} and node {node}",
                    shard.0
                ));
            }
        }
    }
}

fn audit_invariants<Y: Family>(cluster: &Cluster<Y>, check: &mut Check) {
    // Invariants are those of all records, and a part of them is lost.
    if !cluster.is_whole() {
        return;
    }
    let wrong = Y::invariants(&cluster.built.workload, &mut Quiet(cluster), &cluster.run.result());
    check.invariants = wrong.is_empty();
    check.violations.extend(wrong.into_iter().take(VIOLATIONS_SHOWN));
}
