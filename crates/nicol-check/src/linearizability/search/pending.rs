//! Which reads fit which writes of a key, and which of them are still to come.

use std::collections::BTreeMap;

use crate::linearizability::problem::{Problem, Value};

/// The distinct values that reads returned, with their reads and the writes that fit them. Writes
/// are numbered as in a configuration: the certain ones by their position, then the unsure ones.
pub(super) struct Pending {
    values: Vec<ReadValue>,
    /// For each write, the values read that fit it; empty for reads.
    fitting: Vec<Vec<usize>>,
    /// For each certain operation, the next one of its client.
    next: Vec<Option<usize>>,
}

/// A value that was read.
struct ReadValue {
    /// Positions of its reads, in their order.
    reads: Vec<usize>,
    /// The writes that fit it.
    writes: Vec<usize>,
}

impl Pending {
    /// Those of `problem`. Costs, for each write whose digest is known, the values of its digest;
    /// for each other one, all values read.
    pub(super) fn of(problem: &Problem) -> Self {
        let mut reads = BTreeMap::<Value, Vec<usize>>::new();
        let certain = problem.certain.iter().enumerate();
        for (at, op) in certain.filter(|(_, op)| !op.writes) {
            reads.entry(op.value).or_default().push(at);
        }
        let mut by_digest = BTreeMap::<Option<u64>, Vec<usize>>::new();
        for (number, value) in reads.keys().enumerate() {
            by_digest.entry(value.digest).or_default().push(number);
        }
        let read: Vec<Value> = reads.keys().copied().collect();
        let mut values: Vec<_> =
            reads.into_values().map(|reads| ReadValue { reads, writes: Vec::new() }).collect();
        let writes = problem.certain.iter().chain(&problem.unsure);
        let fitting: Vec<Vec<usize>> = writes
            .map(|op| match (op.writes, op.value.digest) {
                (false, _) => Vec::new(),
                // Of a read without a digest, and so of an absence, any write may be.
                (true, Some(digest)) => {
                    let told = [Some(digest), None].map(|digest| by_digest.get(&digest));
                    let told = told.into_iter().flatten().flatten().copied();
                    told.filter(|number| op.value.may_be_version(&read[*number])).collect()
                }
                (true, None) => {
                    let all = 0..read.len();
                    all.filter(|number| op.value.may_be_version(&read[*number])).collect()
                }
            })
            .collect();
        for (write, fitting) in fitting.iter().enumerate() {
            fitting.iter().for_each(|number| values[*number].writes.push(write));
        }
        let mut next = vec![None; problem.certain.len()];
        for (at, previous) in problem.previous.iter().enumerate() {
            if let Some(previous) = previous {
                next[*previous] = Some(at);
            }
        }
        Self { values, fitting, next }
    }

    /// The values read that fit what `write` writes.
    pub(super) fn reads_of(&self, write: usize) -> &[usize] {
        &self.fitting[write]
    }

    /// The writes that fit `value`, a value read.
    pub(super) fn writes_of(&self, value: usize) -> &[usize] {
        &self.values[value].writes
    }

    /// The reads of `value`, a value read, from position `base` on.
    pub(super) fn to_come(&self, value: usize, base: usize) -> impl Iterator<Item = usize> {
        let reads = &self.values[value].reads;
        reads[reads.partition_point(|read| *read < base)..].iter().copied()
    }

    /// The next operation of the client of the certain operation `at`.
    pub(super) fn next_of_client(&self, at: usize) -> Option<usize> {
        self.next[at]
    }
}
