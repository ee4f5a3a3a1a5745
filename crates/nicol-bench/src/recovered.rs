//! What must hold at the end of a run whose lost nodes' shards others have taken over: all of them
//! are served, nothing awaits a recovery, and the records are those that the history tells.

use std::collections::BTreeSet;

use nicol_core::history::History;
use nicol_core::ids::{Key, NodeId, ShardId, Version};
use nicol_core::system::{Audit, ReadBack};
use nicol_core::view::{Role, View};

use crate::cluster::Cluster;
use crate::measured::Measured;
use crate::reader::{forgotten, reader};
use crate::toll::Toll;

/// Is `cluster` at rest, and have survivors taken over what was led by those that are lost?
pub(crate) fn is_recovered(cluster: &Cluster, measured: &Measured) -> bool {
    let lost = |node: &NodeId| !cluster.survives(*node);
    let lost = cluster.view.nodes_of(Role::Server).filter(lost).count();
    measured.settled && measured.toll == Toll::Recovered && lost < cluster.view.replicas()
}

/// What somebody still waits for in a cluster at rest whose last view is `view`.
pub(crate) fn left_over(cluster: &Cluster, view: &View, audits: &[(NodeId, Audit)]) -> Vec<String> {
    let unserved = |shard: &ShardId| {
        let heir = view.primary(*shard);
        !cluster.survives(heir) || !cluster.nodes[heir.index()].serves(*shard)
    };
    let unserved = view.shard_ids().filter(unserved).map(|shard| {
        format!("shard {} is not served by node {}, which leads it", shard.0, view.primary(shard).0)
    });
    let mut left: Vec<String> = unserved.collect();
    for (node, audit) in audits {
        let waits = audit.awaiting_recovery.iter().filter(|(_, count)| *count > 0);
        left.extend(waits.map(|(name, count)| {
            let name = name.replace('_', " ");
            format!("{count} {name} of node {} await a recovery that is over", node.0)
        }));
    }
    left
}

/// What is wrong with the records that those hold who lead the shards in `view`, as if one
/// transaction had read them all behind everything. Of `undecided` keys nothing is known.
pub(crate) fn wrong_records(
    cluster: &Cluster,
    view: &View,
    undecided: &BTreeSet<Key>,
    history: &History,
) -> Vec<String> {
    let mut records = ReadBack::new();
    for shard in view.shard_ids() {
        let node = &cluster.nodes[view.primary(shard).index()];
        node.for_each_of(shard, &mut |key, version, value| {
            if !undecided.contains(&key) {
                records.insert(key, (version, Some(value.to_vec())));
            }
        });
    }
    let mut read = history.clone();
    read.operations.push(reader(&records, history));
    let mut wrong = cluster.judge.judge(&read).wrong;
    // An undecided write may be there or not.
    records.extend(undecided.iter().map(|&key| (key, (Version(u64::MAX), None))));
    wrong.extend(forgotten(&records, history));
    wrong.into_iter().map(|line| format!("records at the end: {line}")).collect()
}
