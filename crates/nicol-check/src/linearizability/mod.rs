//! Linearizability of registers and key-value stores, decided key by key: a history is linearizable
//! if and only if its part on each key is. (Herlihy and Wing, 1990)
//!
//! Three deciders, the first that applies:
//!
//! | the key's operations | decider | cost |
//! |---|---|---|
//! | all have versions, but for absences that scans found | the order of versions is that of the writes | n log n |
//! | have no versions; put values that are all different, and no deletions | clusters of a write and its reads | n log n |
//! | anything else | a search with a bound on configurations, or "undecided" | exponential in what overlaps |
//!
//! A client's own order counts, also where its next operation begins at the instant at which the
//! last one ended. An operation of unknown outcome took effect once at some time after its
//! invocation, or never. A scan is judged as reads of its keys: linearizable key by key, not as a
//! whole.

mod clusters;
mod problem;
mod search;
mod versions;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Instant;

use nicol_core::history::{Action, End, History, Initial, Key, Operation, Read, Scan};

use crate::scans::contradiction;
pub(crate) use problem::{Op, Problem, Recovered, Value, initial, single};
use search::Searched;

/// Configurations that the search of one key visits at most, unless told otherwise.
pub const STATES_MAX: usize = 1_000_000;

/// How far the search of a key goes before it is undecided.
#[derive(Clone, Copy, Debug)]
pub struct Bound {
    states: usize,
    until: Option<Instant>,
}

impl Bound {
    /// At most so many configurations of each key, about 200 bytes each: [`STATES_MAX`] unless
    /// memory is short. The verdict does not depend on the machine.
    pub const fn states(states: usize) -> Self {
        Self { states, until: None }
    }

    /// The same, and no key goes on after `until`.
    pub const fn until(self, until: Instant) -> Self {
        Self { until: Some(until), ..self }
    }

    /// With at most `states` configurations, if it has more.
    pub(crate) fn at_most(self, states: usize) -> Self {
        Self { states: self.states.min(states), ..self }
    }

    /// True if it is met after so many configurations. Looks at the clock once in a while.
    fn is_met(&self, states: usize) -> bool {
        const LOOK: usize = 256;
        states >= self.states
            || states.is_multiple_of(LOOK)
                && self.until.is_some_and(|until| Instant::now() >= until)
    }
}

impl Default for Bound {
    fn default() -> Self {
        Self::states(STATES_MAX)
    }
}

/// The kind of violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// A read missed a write that had ended before it began.
    StaleRead,
    /// A read saw an older value than a read that had ended before it began.
    NewOldInversion,
    /// A read returned what was only asked to be written after it had ended.
    ReadFromTheFuture,
    /// A write has an older version than an operation that had ended before it began, or than the
    /// load.
    WriteOrder,
    /// Two writes that took effect have one version.
    DuplicateVersion,
    /// One version has two values: the bytes read are not those written.
    WrongValue,
    /// A read found a record where its version is that of a deletion, or none where it is a put's.
    WrongPresence,
    /// A read returned what a refused write would have written.
    FailedRead,
    /// A read returned what nobody wrote.
    UnknownValue,
    /// A scan returned keys outside its range, twice, out of order or too many.
    WrongScan,
    /// No order of the operations explains what was returned.
    NotLinearizable,
}

/// What a decider found wrong: the kind, and up to two operations by id, the earlier one first. The
/// id 0 stands for the load, or the recovered state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) anomaly: Anomaly,
    pub(crate) ids: [u64; 2],
}

impl Found {
    const fn at(anomaly: Anomaly, ids: [u64; 2]) -> Self {
        Self { anomaly, ids }
    }
}

/// One violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    pub key: Key,
    pub anomaly: Anomaly,
    /// The operations that show it, by id; fewer than two where one is enough.
    pub operations: Vec<u64>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.anomaly {
            Anomaly::StaleRead => "the read missed a write that had ended before it began",
            Anomaly::NewOldInversion => "the read is older than one that had ended before it began",
            Anomaly::ReadFromTheFuture => "the read ended before what it returned was asked for",
            Anomaly::WriteOrder => "the write is older than what had ended before it began",
            Anomaly::DuplicateVersion => "two writes took effect with one version",
            Anomaly::WrongValue => "one version has two values",
            Anomaly::WrongPresence => {
                "a read or a scan found a record that was not there, or missed one that was"
            }
            Anomaly::FailedRead => "the read returned what a refused write would have written",
            Anomaly::UnknownValue => "the read returned what nobody wrote",
            Anomaly::WrongScan => {
                "a scan returned keys outside its range, twice, out of order or too many"
            }
            Anomaly::NotLinearizable => "no order of the operations explains what was returned",
        };
        write!(f, "{:?}: {}: {what}", self.anomaly, KeyName(&self.key))?;
        write_operations(f, &self.operations)
    }
}

/// Writes which operations show a violation, if any do.
pub(crate) fn write_operations(f: &mut fmt::Formatter<'_>, operations: &[u64]) -> fmt::Result {
    let ids: Vec<_> = operations.iter().map(u64::to_string).collect();
    if ids.is_empty() { Ok(()) } else { write!(f, " (operations {})", ids.join(", ")) }
}

/// A key in words.
pub(crate) struct KeyName<'a>(pub(crate) &'a Key);

impl fmt::Display for KeyName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Key::Number(key) => write!(f, "key {key:#x}"),
            Key::Bytes(key) => write!(f, "key \"{}\"", key.escape_ascii()),
        }
    }
}

/// A key that is neither right nor wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Undecided {
    pub key: Key,
    pub operations: usize,
    pub reason: Reason,
}

/// Why a key is undecided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The search met its bound.
    Bound {
        /// Configurations visited until the bound, or the time that it allows, was reached.
        states: usize,
    },
    /// What a crash has left of it is not told well enough.
    ToldInPart,
}

impl fmt::Display for Undecided {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} operations, and ", KeyName(&self.key), self.operations)?;
        match self.reason {
            Reason::Bound { states } => write!(f, "{states} configurations were not enough"),
            Reason::ToldInPart => f.write_str(
                "only some of them tell a version or a digest, or nobody tells what was loaded: what \
                 the crash has left cannot be known",
            ),
        }
    }
}

/// The verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub keys: usize,
    /// Operations on single keys that took effect for certain.
    pub operations: usize,
    /// Writes of unknown outcome.
    pub unknown: usize,
    /// Keys that are wrong, each with the first thing found.
    pub violations: Vec<Violation>,
    /// Keys of which neither is known.
    pub undecided: Vec<Undecided>,
    /// Transactions, which this checker does not judge.
    pub not_judged: usize,
}

impl Report {
    /// True if every key is linearizable for certain.
    pub fn holds(&self) -> bool {
        self.violations.is_empty() && self.undecided.is_empty() && self.not_judged == 0
    }
}

/// Judges the operations of a history; its crashes are [durability](crate::durability)'s.
pub fn check(history: &History, bound: Bound) -> Report {
    let initial = in_order(&history.initial);
    let split = by_key(&initial, &BTreeSet::new(), &history.operations);
    let ByKey { problems, violations, not_judged } = split;
    let mut report = Report { violations, not_judged, ..Report::default() };
    for problem in problems.into_values() {
        report.keys += 1;
        report.operations += problem.certain.len();
        report.unknown += problem.unsure.len();
        match decide(&problem, bound) {
            Decision::Linearizable => {}
            Decision::Wrong(found) => report.violations.push(violation(&problem.key, found)),
            Decision::Undecided { states } => report.undecided.push(Undecided {
                operations: problem.certain.len() + problem.unsure.len(),
                key: problem.key,
                reason: Reason::Bound { states },
            }),
        }
    }
    report
}

pub(crate) fn violation(key: &Key, found: Found) -> Violation {
    let [first, second] = found.ids;
    let mut operations = vec![first, second];
    operations.dedup();
    operations.retain(|id| *id != 0);
    Violation { key: key.clone(), anomaly: found.anomaly, operations }
}

/// The loaded records, in the order of keys.
pub(crate) fn in_order(initial: &Initial) -> Initial {
    let mut sorted = initial.clone();
    if let Initial::Listed(loaded) = &mut sorted {
        loaded.sort_by(|one, other| one.key.cmp(&other.key));
    }
    sorted
}

/// A decider's verdict on a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    Linearizable,
    Wrong(Found),
    Undecided { states: usize },
}

/// Decides one key.
pub(crate) fn decide(problem: &Problem, bound: Bound) -> Decision {
    let clusters = || match clusters::decide(problem)? {
        // Clusters do not look at versions.
        Ok(()) if problem.tells_versions() => None,
        decided => Some(decided),
    };
    let in_order = || versions::decide(problem).or_else(clusters);
    // Only the search knows of writes that must come behind the recovered state.
    let plain = !problem.unsure.iter().any(|op| op.after_recovery);
    let decided = plain.then(in_order).flatten();
    match decided {
        Some(Ok(())) => Decision::Linearizable,
        Some(Err(found)) => Decision::Wrong(found),
        None => match search::decide(problem, bound) {
            Searched::Found => Decision::Linearizable,
            Searched::Undecided { states } => Decision::Undecided { states },
            Searched::Impossible { stuck, longest: _ } => {
                let id = |at: usize| stuck.get(at).copied().unwrap_or(0);
                Decision::Wrong(Found::at(Anomaly::NotLinearizable, [id(0), id(1)]))
            }
        },
    }
}

/// Operations, key by key.
pub(crate) struct ByKey {
    pub(crate) problems: BTreeMap<Key, Problem>,
    /// Scans that are wrong in themselves, and so are reads of no key.
    pub(crate) violations: Vec<Violation>,
    /// Transactions that were left out.
    pub(crate) not_judged: usize,
}

/// The problem of each key. `initial`: what was loaded, in the order of keys. `others`: further
/// keys that may be there at the start, which a scan may miss.
pub(crate) fn by_key<'h>(
    initial: &Initial,
    others: &BTreeSet<&Key>,
    operations: impl IntoIterator<Item = &'h Operation>,
) -> ByKey {
    let mut problems = BTreeMap::new();
    let mut violations = Vec::new();
    let mut not_judged = 0;
    let mut scans = Vec::new();
    let fresh = |key: &Key| Problem::new(key.clone(), problem::initial(initial, key));
    for operation in operations {
        match (problem::single(operation), &operation.action) {
            (Some((key, writes, value)), _) => {
                let problem = problems.entry(key.clone()).or_insert_with(|| fresh(key));
                problem.add(operation, writes, value);
            }
            (None, Action::Scan(scan)) if operation.end == End::Ok => {
                match contradiction(scan, |key| KeyName(key).to_string()) {
                    None => scans.push((operation, scan)),
                    Some((key, _)) => {
                        let found = Found::at(Anomaly::WrongScan, [operation.id, operation.id]);
                        violations.push(violation(key, found));
                    }
                }
            }
            (None, Action::Txn(_)) => not_judged += 1,
            (None, _) => {}
        }
    }
    for (_, scan) in &scans {
        let missed =
            spoken_of(scan).map(|(first, last)| others.range::<Key, _>(first..=last).copied());
        for key in scanned(initial, scan).chain(missed.into_iter().flatten()) {
            problems.entry(key.clone()).or_insert_with(|| fresh(key));
        }
    }
    for (operation, scan) in scans {
        add_scan(&mut problems, operation, scan);
    }
    problems.values_mut().for_each(Problem::finish);
    ByKey { problems, violations, not_judged }
}

/// The keys that a scan found, and the loaded ones that it speaks of: it may have missed them.
fn scanned<'h>(sorted: &'h Initial, scan: &'h Scan) -> impl Iterator<Item = &'h Key> {
    let loaded = match (sorted, spoken_of(scan)) {
        (Initial::Listed(loaded), Some((first, last))) => {
            let from = loaded.partition_point(|one| one.key < *first);
            &loaded[from..loaded.partition_point(|one| one.key <= *last)]
        }
        _ => &[],
    };
    scan.found.iter().map(|found| &found.key).chain(loaded.iter().map(|one| &one.key))
}

/// The range of which a scan says what is there: up to the last key found if it was full then.
fn spoken_of(scan: &Scan) -> Option<(&Key, &Key)> {
    if scan.limit == Some(0) || scan.first > scan.last {
        return None;
    }
    let full = scan.limit.is_some_and(|limit| scan.found.len() >= limit as usize);
    let end = scan.found.last().filter(|_| full).map(|last| &last.key);
    Some(match (end, scan.backward) {
        (Some(end), false) => (&scan.first, end),
        (Some(end), true) => (end, &scan.last),
        (None, _) => (&scan.first, &scan.last),
    })
}

/// Adds a scan as reads: of what it found, and of the other keys that it says are absent.
fn add_scan(problems: &mut BTreeMap<Key, Problem>, operation: &Operation, scan: &Scan) {
    let found: BTreeMap<&Key, &Read> = scan.found.iter().map(|read| (&read.key, read)).collect();
    for (key, read) in &found {
        let problem = problems.get_mut(*key).expect("every key found has its problem");
        problem.add(operation, false, Value::read(read));
    }
    let Some((first, last)) = spoken_of(scan) else { return };
    for (_, problem) in problems.range_mut(first..=last).filter(|(key, _)| !found.contains_key(key))
    {
        problem.add(operation, false, Value { version: None, ..Value::ABSENT });
    }
}
