//! Judges a finished run: memory, invariants, replicas, and its history if it has one.

use std::collections::{BTreeMap, BTreeSet};

use nicol_core::history::{
    self, Action, Crash, End, Found, History, Operation, Promise, Read, Write,
};
use nicol_core::ids::{Key, NodeId, ShardId, Version};
use nicol_core::medium::MediumWrite;
use nicol_core::records::Records;
use nicol_core::system::{Audit, ReadBack};
use nicol_core::view::ShardMap;
use nicol_workload::driver::history;

use crate::cluster::{Cluster, Quiet};
use crate::family::Judged;
use crate::measured::Measured;
use crate::parallel;
use crate::reader::{forgotten, reader};
use crate::recovered::{is_recovered, left_over, wrong_records};
use crate::report::Check;

/// Violations that a report spells out; more are counted.
const VIOLATIONS_SHOWN: usize = 20;

/// The verdict on a run that was measured, and the history that was judged.
pub(crate) fn judge(cluster: &Cluster, measured: &Measured) -> (Check, History) {
    let settled = measured.settled;
    let operations = std::mem::take(&mut cluster.run.result().history);
    let mut judged = History::default();
    let mut check = Check {
        promised: cluster.outline.promised,
        invariants: true,
        replicas_converge: cluster.survival.replicas_converge.then_some(true),
        ..Check::default()
    };
    if !settled {
        let quiet = "the cluster did not become quiet: work is stuck".to_owned();
        check.violations.push(measured.stuck.clone().unwrap_or(quiet));
    }
    if cfg!(debug_assertions) && settled {
        // Goes over every record of every replica: more work than many a run.
        cluster.survivors().for_each(|node| node.check());
    }
    let audits = audit_memory(cluster, &mut check);
    if cluster.survival.replicas_converge {
        compare_replicas(cluster, &audits, &operations, &mut check);
    }
    let undecided = undecided_by(&audits);
    audit_invariants(cluster, measured, &undecided, &mut check);
    let recovered = is_recovered(cluster, measured);
    if recovered {
        check.violations.extend(left_over(cluster, &measured.membership.1, &audits));
    }
    if cluster.run.plan().record {
        let promise = cluster.outline.promised.promise;
        judged = history(promise, operations, &*cluster.outline.source, &cluster.view);
        if let (Promise::Durable(_), true) = (promise, settled) {
            add_final_state(cluster, &mut judged);
        }
        let Judged { wrong: mut violations, acknowledged_lost } = cluster.judge.judge(&judged);
        check.acknowledged_lost = acknowledged_lost;
        // Every node has been down, but only NICs have crashed.
        let nics_alone = !judged.crashes.is_empty() && cluster.hosts_live();
        let stronger = cluster.outline.while_hosts_live.filter(|_| nics_alone);
        if let (Some(promise), true) = (stronger, violations.is_empty()) {
            violations = cluster.judge.judge(&History { promise, ..judged.clone() }).wrong;
        }
        if violations.is_empty() && settled && promise == Promise::Linearizable {
            violations = judge_survivors(cluster, &judged);
        }
        if violations.is_empty() && recovered {
            violations = wrong_records(cluster, &measured.membership.1, &undecided, &judged);
        }
        check.held_promise = Some(violations.is_empty());
        check.checked = judged.operations.len() as u64;
        for violation in violations.iter().take(VIOLATIONS_SHOWN) {
            check.violations.push(format!("{}: {violation}", check.promised.checker));
        }
    }
    (check, judged)
}

/// Reads back what log devices hold after a crash of everything, and judges it: one more operation
/// behind everything, which finds every key as it was read back, must fit into the history.
pub(crate) fn judge_read_back(
    cluster: &Cluster,
    media: &[(NodeId, Vec<MediumWrite>)],
    history: &History,
    check: &mut Check,
) {
    let read = cluster.judge.read_back(&cluster.view, &*cluster.outline.source, media);
    let Some(read) = read else { return };
    let mut wrong = match &read {
        Ok(records) => {
            let mut told = history.clone();
            told.operations.push(reader(records, history));
            let mut state = Restored(records);
            let mut wrong = cluster.judge.judge(&told).wrong;
            wrong.extend(forgotten(records, history));
            wrong.extend(cluster.judge.invariants_of_read_back(&mut state));
            wrong
        }
        Err(why) => vec![why.clone()],
    };
    wrong.truncate(VIOLATIONS_SHOWN);
    check.violations.extend(wrong.into_iter().map(|line| format!("read back: {line}")));
    check.read_back = Some(read.map_or(0, |records| records.len() as u64));
}

/// The records that were read back.
struct Restored<'a>(&'a ReadBack);

impl Records for Restored<'_> {
    fn read(&mut self, key: Key) -> Option<Vec<u8>> {
        self.0.get(&key).and_then(|(_, value)| value.clone())
    }

    fn for_each(&mut self, each: &mut dyn FnMut(Key, &[u8])) {
        for (&key, (_, value)) in self.0 {
            value.as_deref().into_iter().for_each(|value| each(key, value));
        }
    }
}

/// Adds what is there at the end, on every node that serves: as what a crash of everything has
/// left, if there was one; else as reads behind everything.
fn add_final_state(cluster: &Cluster, history: &mut History) {
    let ends = |operation: &Operation| operation.responded.unwrap_or(operation.invoked);
    let at = 1 + history.operations.iter().map(ends).max().unwrap_or_default();
    let mut found = Vec::new();
    // Of what no operation has named, the history does not tell what was loaded.
    let named: BTreeSet<history::Key> = history.operations.iter().filter_map(key_of).collect();
    for id in cluster.serving_ids() {
        for shard in cluster.view.shard_ids() {
            cluster.nodes[id.index()].for_each_of(shard, &mut |key, version, value| {
                let (version, digest) = (told(version), Some(history::digest(value)));
                let key: history::Key = key.into();
                if named.contains(&key) {
                    found.push((id, Read { key, present: true, version, digest }));
                }
            });
        }
    }
    if cluster.survivors().next().is_none() {
        let recovered = found.into_iter().map(|(_, read)| read).collect();
        history.crashes.push(Crash { at, recovered });
        return;
    }
    let clients = history.operations.iter().map(|operation| operation.client).max();
    let ids = history.operations.iter().map(|operation| operation.id).max();
    for (place, (node, read)) in (1..).zip(found) {
        let Read { key, present, version, digest } = read;
        history.operations.push(Operation {
            client: clients.unwrap_or_default() + 1 + u32::from(node.0),
            sequence: place,
            id: ids.unwrap_or_default() + place,
            invoked: at + 2 * place,
            responded: Some(at + 2 * place + 1),
            end: End::Ok,
            action: Action::Get { key, found: Some(Found { present, version, digest }) },
        });
    }
}

/// After a crash: what is wrong with what each node that serves holds, or lacks, as if it was read
/// behind everything. What was acknowledged is on every one of them; what was not may be on some.
fn judge_survivors(cluster: &Cluster, history: &History) -> Vec<String> {
    if !cluster.survival.replicas_converge || !cluster.survival.follows_views || cluster.is_whole()
    {
        return Vec::new();
    }
    let ends = |operation: &Operation| operation.responded.unwrap_or(operation.invoked);
    let at = 1 + history.operations.iter().map(ends).max().unwrap_or_default();
    let client = 1 + history.operations.iter().map(|one| one.client).max().unwrap_or_default();
    let last = history.operations.iter().map(|one| one.id).max().unwrap_or_default();
    // Of what no operation has named, the history does not tell what was loaded.
    let named: BTreeSet<history::Key> = history.operations.iter().filter_map(key_of).collect();
    let mut wrong = Vec::new();
    for id in cluster.serving_ids() {
        let mut absent = named.clone();
        let mut found = Vec::new();
        // Nodes that do not recover others may keep no replicas, whatever the view says.
        let held = |shard: ShardId| match cluster.survival.recovers {
            true => cluster.view.replicas_of(shard).contains(&id),
            false => cluster.view.primary(shard) == id,
        };
        let is_held = |key: &history::Key| match key {
            history::Key::Number(number) => held(cluster.view.shard_of(Key(*number))),
            history::Key::Bytes(_) => false,
        };
        for shard in cluster.view.shard_ids() {
            cluster.nodes[id.index()].for_each_of(shard, &mut |key, version, value| {
                let key: history::Key = key.into();
                absent.remove(&key);
                let (version, digest) = (told(version), Some(history::digest(value)));
                found.push((key, Found { present: true, version, digest }));
            });
        }
        let none = Found { present: false, version: None, digest: None };
        found.retain(|(key, _)| named.contains(key));
        found.extend(absent.into_iter().filter(is_held).map(|key| (key, none)));
        let mut read = history.clone();
        for (place, (key, found)) in (1..).zip(found) {
            read.operations.push(Operation {
                client,
                sequence: place,
                id: last + place,
                invoked: at + 2 * place,
                responded: Some(at + 2 * place + 1),
                end: End::Ok,
                action: Action::Get { key, found: Some(found) },
            });
        }
        let of_node = cluster.judge.judge(&read).wrong;
        wrong.extend(of_node.into_iter().map(|line| format!("on node {}: {line}", id.0)));
    }
    wrong
}

/// The version of a record that is there, as histories tell it: some systems export none.
fn told(version: Version) -> Option<u64> {
    Some(version.0).filter(|&version| version > 0)
}

/// The key of an operation on a single record.
fn key_of(operation: &Operation) -> Option<history::Key> {
    match &operation.action {
        Action::Get { key, .. } => Some(key.clone()),
        Action::Put { write, .. } | Action::Delete { write, .. } => Some(write.key.clone()),
        Action::Txn(_) | Action::Scan(_) | Action::Persist { .. } => None,
    }
}

fn add(sums: &mut BTreeMap<&'static str, u64>, counts: &[(&'static str, u64)]) {
    for (name, count) in counts {
        *sums.entry(name).or_default() += count;
    }
}

/// Audits of the memory of each survivor, and of each node that has recovered.
fn audit_memory(cluster: &Cluster, check: &mut Check) -> Vec<(NodeId, Audit)> {
    let survivors: Vec<_> = cluster.serving_ids().collect();
    let audits = parallel::map(&survivors, cluster.records, |id| cluster.nodes[id.index()].audit());
    for audit in &audits {
        add(&mut check.leaked, &audit.leaks);
        add(&mut check.awaiting_recovery, &audit.awaiting_recovery);
    }
    for (name, count) in check.leaked.iter().filter(|(_, count)| **count > 0) {
        check.violations.push(format!("{count} {} leaked", name.replace('_', " ")));
    }
    survivors.into_iter().zip(audits).collect()
}

/// The replicas that have survived hold the same records; but for those that a dead node has left
/// undecided, of which some may hold a write that others lack.
fn compare_replicas(
    cluster: &Cluster,
    audits: &[(NodeId, Audit)],
    operations: &[Operation],
    check: &mut Check,
) {
    if !cluster.is_whole() && !cluster.survival.follows_views {
        // What a crash has cut off may have reached some replicas only, and nobody tells which.
        return;
    }
    let mut digests = BTreeMap::<ShardId, Vec<(NodeId, u64)>>::new();
    for (node, audit) in audits {
        for &(shard, digest) in &audit.digests {
            digests.entry(shard).or_default().push((*node, digest));
        }
    }
    for (shard, replicas) in digests {
        let (first, expected) = replicas[0];
        let Some(&(other, _)) = replicas.iter().find(|(_, digest)| *digest != expected) else {
            continue;
        };
        let nodes: Vec<NodeId> = replicas.iter().map(|(node, _)| *node).collect();
        let differing = differing_keys(cluster, shard, &nodes);
        let wrong: Vec<String> = if cluster.is_whole() {
            let nodes =
                format!("shard {} differs between node {} and node {}", shard.0, first.0, other.0);
            std::iter::once(nodes).chain(differing.into_iter().map(|(_, line)| line)).collect()
        } else {
            let undecided = undecided_keys(cluster, audits, operations, shard);
            let is_undecided = |key: &Key| undecided.as_ref().is_none_or(|keys| keys.contains(key));
            let (known, wrong): (Vec<_>, Vec<_>) =
                differing.into_iter().partition(|(key, _)| is_undecided(key));
            add(&mut check.awaiting_recovery, &[("differing_records", known.len() as u64)]);
            wrong.into_iter().map(|(_, line)| line).collect()
        };
        if !wrong.is_empty() {
            check.replicas_converge = Some(false);
        }
        check.violations.extend(wrong.into_iter().take(VIOLATIONS_SHOWN));
    }
}

/// The keys whose records differ between replicas of `shard`, and a line about each.
fn differing_keys(cluster: &Cluster, shard: ShardId, nodes: &[NodeId]) -> Vec<(Key, String)> {
    type Record = (u64, u64);
    let mut records = BTreeMap::<Key, BTreeMap<NodeId, Record>>::new();
    for &node in nodes {
        cluster.nodes[node.index()].for_each_of(shard, &mut |key, version, value| {
            let record = (version.0, history::digest(value));
            records.entry(key).or_default().insert(node, record);
        });
    }
    let differ = |held: &BTreeMap<NodeId, Record>| {
        let mut values = nodes.iter().map(|node| held.get(node));
        let first = values.next();
        values.any(|value| Some(value) != first)
    };
    let line = |key: Key, held: &BTreeMap<NodeId, Record>| {
        let version = |node: &NodeId| match held.get(node) {
            Some((version, _)) => format!("version {version} on node {}", node.0),
            None => format!("none on node {}", node.0),
        };
        let versions: Vec<String> = nodes.iter().map(version).collect();
        format!("shard {} differs in key {:#x}: {}", shard.0, key.0, versions.join(", "))
    };
    let differing = records.iter().filter(|(_, held)| differ(held));
    differing.map(|(&key, held)| (key, line(key, held))).collect()
}

/// The keys of `shard` that a dead node may have left undecided: those which the living say or, if
/// its primary is dead, those that operations of unknown outcome may have written. `None`: any.
/// Where nodes recover, so do the records: none is left undecided.
fn undecided_keys(
    cluster: &Cluster,
    audits: &[(NodeId, Audit)],
    operations: &[Operation],
    shard: ShardId,
) -> Option<BTreeSet<Key>> {
    if cluster.survival.recovers {
        return Some(BTreeSet::new());
    }
    let primary = cluster.view.primary(shard);
    if audits.iter().any(|(node, _)| *node == primary) {
        // A backup may keep what its primary has committed.
        let keys = audits.iter().flat_map(|(_, audit)| &audit.keys_awaiting_recovery);
        return Some(keys.copied().collect());
    }
    let unknown = || operations.iter().filter(|operation| operation.end == End::Unknown);
    let writes_more = unknown().any(|operation| operation.txn().is_some_and(|txn| txn.writes_more));
    if !cluster.run.plan().record || writes_more {
        return None;
    }
    let number = |write: &Write| match &write.key {
        history::Key::Number(number) => Some(Key(*number)),
        history::Key::Bytes(_) => None,
    };
    let of_transactions = unknown().filter_map(Operation::txn).flat_map(|txn| &txn.writes);
    let single = unknown().filter_map(|operation| match &operation.action {
        Action::Put { write, .. } | Action::Delete { write, .. } => Some(write),
        _ => None,
    });
    Some(of_transactions.chain(single).filter_map(number).collect())
}

/// The keys that a dead node has left undecided, as the living say.
fn undecided_by(audits: &[(NodeId, Audit)]) -> BTreeSet<Key> {
    audits.iter().flat_map(|(_, audit)| &audit.keys_awaiting_recovery).copied().collect()
}

fn audit_invariants(
    cluster: &Cluster,
    measured: &Measured,
    undecided: &BTreeSet<Key>,
    check: &mut Check,
) {
    let state = &mut Quiet::new(cluster, &measured.membership.1, undecided);
    let all_known = is_recovered(cluster, measured) && undecided.is_empty();
    let wrong = match (cluster.is_whole() || all_known, cluster.survival.follows_views) {
        (true, _) => cluster.judge.invariants(state, &cluster.run.result()),
        (false, true) => cluster.judge.invariants_of_survivors(state),
        // Nobody tells which records a dead node has left undecided.
        (false, false) => Vec::new(),
    };
    check.invariants = wrong.is_empty();
    check.violations.extend(wrong.into_iter().take(VIOLATIONS_SHOWN));
}
