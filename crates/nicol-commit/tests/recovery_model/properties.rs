//! What must hold: in every state, and in every state in which nothing is left to happen once
//! faults have stopped.

use crate::scope::{Fault, Scope, view_nodes};
use crate::state::{Fate, KEYS, ROWS, SHARDS, State, Value, shard_of, writer};

/// A property, and what it says when it is broken.
pub type Property = (&'static str, fn(&Scope, &State) -> bool);

/// What holds in every state.
pub const ALWAYS: [Property; 3] = [
    ("no transaction is both committed and aborted", has_one_outcome),
    ("committed transactions are strictly serializable", is_serializable),
    ("a restart of everything takes what is committed and nothing else", restarts_right),
];

/// What holds when nothing is left to happen.
pub const IN_THE_END: [Property; 4] = [
    ("every transaction is decided", is_decided),
    ("no lock is left", has_no_lock),
    ("replicas are equal", is_equal),
    ("nothing acknowledged is lost", keeps_what_it_said),
];

fn has_one_outcome(scope: &Scope, state: &State) -> bool {
    scope.txns().all(|txn| {
        let outcomes = state.txns[txn].outcomes;
        !(outcomes.committed && outcomes.aborted)
    })
}

/// The last writer of each key after `order`, if every transaction in it has read what it would
/// have read alone, one after the other.
fn replay(scope: &Scope, state: &State, order: &[usize]) -> Option<[u8; KEYS]> {
    let mut last = [0; KEYS];
    for &txn in order {
        let programme = &scope.programmes[txn];
        if programme.reads.iter().any(|key| state.txns[txn].seen[*key].writer != last[*key]) {
            return None;
        }
        for key in programme.writes {
            last[*key] = writer(txn);
        }
    }
    Some(last)
}

/// The orders of the committed transactions that agree with real time and with what they have read,
/// each as the last writers of its keys.
fn orders(scope: &Scope, state: &State) -> Vec<[u8; KEYS]> {
    let committed: Vec<usize> =
        scope.txns().filter(|txn| state.txns[*txn].outcomes.committed).collect();
    let mut orders = vec![Vec::new()];
    for txn in committed {
        let insert = |order: &Vec<usize>| {
            let order = order.clone();
            (0..=order.len()).map(move |place| {
                let mut longer = order.clone();
                longer.insert(place, txn);
                longer
            })
        };
        orders = orders.iter().flat_map(insert).collect();
    }
    let in_time = |order: &Vec<usize>| {
        let begins_late = |(place, txn): (usize, &usize)| {
            order[place + 1..].iter().any(|later| state.txns[*txn].after.has(*later))
        };
        !order.iter().enumerate().any(begins_late)
    };
    let right = orders.into_iter().filter(in_time);
    right.filter_map(|order| replay(scope, state, &order)).collect()
}

fn is_serializable(scope: &Scope, state: &State) -> bool {
    !orders(scope, state).is_empty()
}

/// Would a restart of everything, from log files and tables, have the transaction's writes, if
/// `has` says so of what a table has for one of its keys?
fn is_taken(scope: &Scope, state: &State, txn: usize, has: fn(Value, Value) -> bool) -> bool {
    let view = state.newest();
    let found = &state.txns[txn];
    let every_log = scope.breaks(Fault::RevivedAtRestart) || scope.breaks(Fault::RemovedLogsRead);
    if every_log {
        let is_aborted = |(node, shard)| state.replica(node, shard).fates[txn] == Fate::Aborted;
        let mut replicas =
            view_nodes().flat_map(|node| (0..SHARDS).map(move |shard| (node, shard)));
        let is_heeded = scope.breaks(Fault::RemovedLogsRead) && replicas.any(is_aborted);
        return !is_heeded && scope.listed(txn).all(|shard| !found.files[shard].is_empty());
    }
    scope.listed(txn).all(|shard| {
        view.complete[shard].iter().any(|node| {
            let replica = state.replica(node, shard);
            let is_in_table = |key| has(replica.values[key % ROWS], found.wrote[key]);
            let is_begun = found.wrote.iter().any(|value| value.writer > 0);
            let are_in_table = scope.writes(txn, shard).all(is_in_table);
            replica.fates[txn].has_record() || is_begun && are_in_table
        })
    })
}

fn restarts_right(scope: &Scope, state: &State) -> bool {
    let writes = |txn: &usize| scope.listed(*txn).next().is_some();
    !scope.is_synced
        || scope.txns().filter(writes).all(|txn| {
            let told = state.txns[txn].told;
            let is_kept = || is_taken(scope, state, txn, |found, wrote| found >= wrote);
            let is_revived = || is_taken(scope, state, txn, |found, wrote| found == wrote);
            (!told.committed || is_kept()) && !(told.aborted && is_revived())
        })
}

fn is_decided(scope: &Scope, state: &State) -> bool {
    let waits = |txn: usize| scope.is_alive(state, txn) && !state.txns[txn].told.is_any();
    let is_in_doubt = |txn: usize| {
        living(state).any(|(node, shard)| state.replica(node, shard).fates[txn] == Fate::Logged)
    };
    !scope.txns().any(|txn| state.txns[txn].life > 0 && (waits(txn) || is_in_doubt(txn)))
}

/// Every complete replica of the newest view whose node runs.
fn living(state: &State) -> impl Iterator<Item = (usize, usize)> {
    let all = (0..SHARDS)
        .flat_map(|shard| state.newest().complete[shard].iter().map(move |node| (node, shard)));
    all.filter(|(node, _)| state.is_current(*node))
}

fn has_no_lock(_: &Scope, state: &State) -> bool {
    living(state).all(|(node, shard)| {
        state.replica(node, shard).locks.iter().all(|holders| holders.is_empty())
    })
}

fn is_equal(_: &Scope, state: &State) -> bool {
    living(state).all(|(node, shard)| {
        let primary = state.newest().primary(shard);
        state.replica(node, shard).values == state.replica(primary, shard).values
    })
}

/// Do the values agree with an order of what has committed?
fn keeps_what_it_said(scope: &Scope, state: &State) -> bool {
    orders(scope, state).iter().any(|last| {
        (0..KEYS).all(|key| {
            let primary = state.newest().primary(shard_of(key));
            let values = &state.replica(primary, shard_of(key)).values;
            values[key % ROWS].writer == last[key]
        })
    })
}
