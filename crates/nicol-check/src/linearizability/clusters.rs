//! The decider for values that are all different: near-linear. (Gibbons and Korach, 1997)
//!
//! A write and the reads of its value form a cluster. No other write may come between them, so the
//! clusters as wholes must have an order in which none comes after one that it precedes.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};

use super::problem::{NEVER, Problem, Value};
use super::{Anomaly, Found};

/// The cluster of the initial value.
const INITIAL: usize = 0;

struct Cluster {
    /// The first response in it: whatever is invoked later comes after the cluster.
    ends: u64,
    /// The last invocation in it.
    begins: u64,
    /// An operation of it, for words.
    id: u64,
    /// Clusters that must come later, by the order of a client within an instant.
    before: Vec<usize>,
    /// How many of them must come earlier.
    waits_for: usize,
}

/// Which writes there are, by the digest of what they wrote.
struct Writers {
    of: BTreeMap<u64, usize>,
    initial: Value,
}

impl Writers {
    /// `None` where the values are not all known and different.
    fn new(problem: &Problem) -> Option<Self> {
        let initial = problem.initial?;
        let mut of = BTreeMap::new();
        if !initial.is_absent() {
            of.insert(initial.digest?, INITIAL);
        }
        let writes = problem.certain.iter().filter(|op| op.writes).chain(&problem.unsure);
        for (number, op) in writes.enumerate() {
            let fresh =
                op.value.present == Some(true) && of.insert(op.value.digest?, number + 1).is_none();
            if !fresh {
                return None;
            }
        }
        Some(Self { of, initial })
    }

    /// The cluster that `read` belongs to: `None` if nobody wrote it.
    fn of(&self, read: &Value) -> Option<usize> {
        match read.digest {
            _ if read.is_absent() => self.initial.is_absent().then_some(INITIAL),
            Some(digest) => self.of.get(&digest).copied(),
            None => None,
        }
    }
}

/// Decides `problem`; `None` if its values are not all known and different.
pub(crate) fn decide(problem: &Problem) -> Option<Result<(), Found>> {
    let writers = Writers::new(problem)?;
    let reads = problem.certain.iter().filter(|op| !op.writes).map(|op| op.value);
    let mut reads = reads.chain(problem.recovered.iter().map(|recovered| recovered.value));
    if reads.any(|read| !read.is_absent() && read.digest.is_none()) {
        return None;
    }
    Some(in_clusters(problem, &writers).and_then(order))
}

/// Puts each operation into its cluster.
fn in_clusters(problem: &Problem, writers: &Writers) -> Result<Vec<Cluster>, Found> {
    let mut clusters: BTreeMap<usize, Cluster> = BTreeMap::new();
    let mut written = BTreeMap::new();
    let cluster = |ends, begins, id| Cluster { ends, begins, id, before: vec![], waits_for: 0 };
    // The initial value was written before all: times are counted from 1 on.
    clusters.insert(INITIAL, cluster(0, 0, 0));
    let mut number_of = vec![INITIAL; problem.certain.len()];
    let writes = problem.certain.iter().enumerate().filter(|(_, op)| op.writes);
    let mut number = 0;
    for (at, op) in writes {
        number += 1;
        number_of[at] = number;
        written.insert(number, *op);
        clusters.insert(number, cluster(later(op.responded), later(op.invoked), op.id));
    }
    for op in &problem.unsure {
        number += 1;
        written.insert(number, *op);
    }
    for (at, op) in problem.certain.iter().enumerate().filter(|(_, op)| !op.writes) {
        let nobody = || Found::at(Anomaly::UnknownValue, [op.id, op.id]);
        let number = writers.of(&op.value).ok_or_else(nobody)?;
        number_of[at] = number;
        if let Some(write) = written.get(&number) {
            if Problem::precedes(op, write) {
                return Err(Found::at(Anomaly::ReadFromTheFuture, [op.id, write.id]));
            }
            // An unsure write has happened once somebody reads it.
            let (invoked, id) = (later(write.invoked), write.id);
            clusters.entry(number).or_insert_with(|| cluster(NEVER, invoked, id));
        }
        let into = clusters.get_mut(&number).expect("a cluster that is read is there");
        into.ends = into.ends.min(later(op.responded));
        into.begins = into.begins.max(later(op.invoked));
    }
    let mut edges = client_order(problem, &number_of, &written, &clusters);
    if let Some(recovered) = &problem.recovered {
        let number =
            writers.of(&recovered.value).ok_or(Found::at(Anomaly::UnknownValue, [0, 0]))?;
        if let Some(write) = written.get(&number) {
            let invoked = later(write.invoked);
            clusters.entry(number).or_insert_with(|| cluster(NEVER, invoked, write.id));
        }
        edges.extend(recovered.after.iter().map(|at| (number_of[*at], number)));
    }
    for (from, to) in edges.into_iter().filter(|(from, to)| from != to) {
        clusters.get_mut(&from).expect("both are there").before.push(to);
        clusters.get_mut(&to).expect("both are there").waits_for += 1;
    }
    Ok(renumber(clusters))
}

/// Makes the numbers of clusters their positions: unsure writes that nobody read are gone.
fn renumber(clusters: BTreeMap<usize, Cluster>) -> Vec<Cluster> {
    let place: BTreeMap<usize, usize> =
        clusters.keys().enumerate().map(|(place, number)| (*number, place)).collect();
    let renumbered = clusters.into_values().map(|mut cluster| {
        cluster.before.iter_mut().for_each(|number| *number = place[number]);
        cluster
    });
    renumbered.collect()
}

const fn later(time: u64) -> u64 {
    time.saturating_add(1)
}

/// The order of clients where an operation began at the instant at which the one before it ended.
fn client_order(
    problem: &Problem,
    number_of: &[usize],
    written: &BTreeMap<usize, super::problem::Op>,
    clusters: &BTreeMap<usize, Cluster>,
) -> BTreeSet<(usize, usize)> {
    let mut edges = BTreeSet::new();
    for (at, op) in problem.certain.iter().enumerate() {
        let Some(before) = problem.previous[at] else { continue };
        if Problem::precedes(&problem.certain[before], op) {
            edges.insert((number_of[before], number_of[at]));
        }
    }
    // An unsure write comes after what its client did before it: real time tells of all but the
    // last one, which may have ended at the instant at which the write began.
    let mut of_client: BTreeMap<u32, Vec<(u64, usize)>> = BTreeMap::new();
    for (at, op) in problem.certain.iter().enumerate() {
        of_client.entry(op.client).or_default().push((op.sequence, at));
    }
    let unsure = written
        .iter()
        .filter(|(number, op)| op.responded == NEVER && clusters.contains_key(number));
    for (&number, write) in unsure {
        let own = of_client.get(&write.client).map_or(&[][..], Vec::as_slice);
        let before = own.partition_point(|(sequence, _)| *sequence < write.sequence);
        if let Some((_, last)) = before.checked_sub(1).map(|last| own[last]) {
            edges.insert((number_of[last], number));
        }
    }
    edges
}

/// Takes away, again and again, a cluster that no other one precedes.
fn order(mut clusters: Vec<Cluster>) -> Result<(), Found> {
    let heap = |time: fn(&Cluster) -> u64| {
        move |(number, cluster): (usize, &Cluster)| Reverse((time(cluster), number))
    };
    let mut by_end: BinaryHeap<_> =
        clusters.iter().enumerate().map(heap(|cluster| cluster.ends)).collect();
    let free = clusters.iter().enumerate().filter(|(_, cluster)| cluster.waits_for == 0);
    let mut by_begin: BinaryHeap<_> = free.map(heap(|cluster| cluster.begins)).collect();
    let mut gone = vec![false; clusters.len()];
    for _ in 0..clusters.len() {
        let (first, first_ends, second_ends) = earliest_ends(&mut by_end, &gone);
        // The cluster that ends first has to begin before any other ends; every other cluster has
        // to begin before the first one ends.
        let allowed = |number: usize, begins: u64| {
            begins <= if number == first { second_ends } else { first_ends }
        };
        while by_begin.peek().is_some_and(|Reverse((_, number))| gone[*number]) {
            by_begin.pop();
        }
        let candidate = by_begin.peek().map(|Reverse((begins, number))| (*number, *begins));
        let own = (clusters[first].waits_for == 0).then(|| (first, clusters[first].begins));
        let next = [candidate, own].into_iter().flatten();
        let next = next.into_iter().find(|(number, begins)| allowed(*number, *begins));
        let Some((number, _)) = next else {
            let other = candidate.map_or(first, |(number, _)| number);
            let ids = [clusters[first].id, clusters[other].id];
            return Err(Found::at(Anomaly::NotLinearizable, ids));
        };
        gone[number] = true;
        for then in std::mem::take(&mut clusters[number].before) {
            clusters[then].waits_for -= 1;
            if clusters[then].waits_for == 0 {
                by_begin.push(Reverse((clusters[then].begins, then)));
            }
        }
    }
    Ok(())
}

/// The cluster that is left and ends first, when, and when the next one does.
fn earliest_ends(
    by_end: &mut BinaryHeap<Reverse<(u64, usize)>>,
    gone: &[bool],
) -> (usize, u64, u64) {
    let mut pop = || {
        while by_end.peek().is_some_and(|Reverse((_, number))| gone[*number]) {
            by_end.pop();
        }
        by_end.pop()
    };
    let Reverse((first_ends, first)) = pop().expect("a cluster is left");
    let second = pop();
    let second_ends = second.map_or(u64::MAX, |Reverse((ends, _))| ends);
    by_end.extend(second);
    by_end.push(Reverse((first_ends, first)));
    (first, first_ends, second_ends)
}
