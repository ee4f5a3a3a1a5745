//! Durability: what must be there after a crash of everything, by the persistency model.
//!
//! | model | what a recovered state must follow |
//! |---|---|
//! | strict | every acknowledged write |
//! | synch | every acknowledged write, and every write that a read returned |
//! | renf | every write that a read returned |
//! | scope | every write of a scope whose `Persist` was acknowledged |
//! | event | nothing; what is lost is counted |
//!
//! For every model: what is recovered was once written, and not refused; replicas agree; and nothing
//! that is older than what an earlier recovery had found comes back.
//!
//! Each key is decided by linearizability: the recovered state is a read that comes after all that
//! the model protects and, like any other, at one point of the order of the operations before the
//! crash. So a history between two crashes must be linearizable, too; it begins with what the crash
//! before it left. A write whose outcome was unknown at a crash may still take effect after it.
//!
//! Of an operation that was under way at a crash and was acknowledged after it, the state before the
//! crash says nothing: a write may have taken effect before it, or, sent again, after it, and a
//! read's answer may come from either side, so that it is left out.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use nicol_core::history::{
    Action, Crash, End, History, Initial, Key, Loaded, Operation, Persistency, Read,
};

use crate::linearizability::{self, Decision, KeyName, Problem, Recovered, Value};

/// What kind of wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// What the model protects is not in the recovered state.
    Lost,
    /// The recovered state is one that was older than an earlier recovery's.
    Resurrected,
    /// The recovered state is what a refused write would have written.
    Refused,
    /// Nobody wrote what was recovered.
    NeverWritten,
    /// Replicas recovered different states.
    ReplicasDisagree,
    /// The operations before the crash are wrong already.
    NotLinearizable(linearizability::Anomaly),
}

/// One violation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// The crash, by its number from 0; the number of crashes for what follows the last one.
    pub crash: usize,
    /// The key.
    pub key: Key,
    /// What kind.
    pub anomaly: Anomaly,
    /// The operations that show it, by id: for a loss those that the model protects.
    pub operations: Vec<u64>,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.anomaly {
            Anomaly::Lost => "what the model protects was not recovered",
            Anomaly::Resurrected => "what was recovered is older than what an earlier crash left",
            Anomaly::Refused => "what was recovered had been refused",
            Anomaly::NeverWritten => "nobody wrote what was recovered",
            Anomaly::ReplicasDisagree => "replicas recovered different states",
            Anomaly::NotLinearizable(_) => "the operations are not linearizable",
        };
        let key = KeyName(&self.key);
        write!(f, "{:?}: {key}, crash {}: {what}", self.anomaly, self.crash)?;
        linearizability::write_operations(f, &self.operations)
    }
}

/// The verdict.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Crashes judged.
    pub crashes: usize,
    /// Keys looked at after crashes, summed up.
    pub recovered: usize,
    /// Operations before and after crashes that took effect for certain.
    pub operations: usize,
    /// Acknowledged writes that came after the state recovered, as far as versions tell: the loss,
    /// permitted or not.
    pub acknowledged_lost: usize,
    /// What is wrong.
    pub violations: Vec<Violation>,
    /// Keys whose search met its bound.
    pub undecided: Vec<linearizability::Undecided>,
    /// Transactions, which this checker does not judge.
    pub not_judged: usize,
}

impl Report {
    /// Did everything that the model protects survive, for certain?
    pub fn holds(&self) -> bool {
        self.violations.is_empty() && self.undecided.is_empty() && self.not_judged == 0
    }
}

/// Judges a history with crashes under `model`. `states_max` is that of
/// [`linearizability::check`].
pub fn check(history: &History, model: Persistency, states_max: usize) -> Report {
    let mut report = Report { crashes: history.crashes.len(), ..Report::default() };
    let mut operations: Vec<&Operation> = history.operations.iter().collect();
    operations.sort_by_key(|operation| (operation.invoked, operation.client, operation.sequence));
    let mut initial = history.initial.clone();
    if let Initial::Listed(loaded) = &mut initial {
        loaded.sort_by(|one, other| one.key.cmp(&other.key));
    }
    let mut unseen = BTreeSet::new();
    let mut rest = &operations[..];
    let mut carried: Vec<Cow<'_, Operation>> = Vec::new();
    let writers = writers(history);
    for number in 0..=history.crashes.len() {
        let crash = history.crashes.get(number);
        let ends = rest
            .partition_point(|operation| crash.is_none_or(|crash| operation.invoked <= crash.at));
        let (piece, later) = rest.split_at(ends);
        rest = later;
        let start = History { initial: initial.clone(), ..History::default() };
        let all: Vec<_> =
            carried.into_iter().chain(piece.iter().copied().map(Cow::Borrowed)).collect();
        let known: Vec<Cow<'_, Operation>> =
            all.iter().filter_map(|operation| as_known_at(operation, crash)).collect();
        let known: Vec<&Operation> = known.iter().map(Cow::as_ref).collect();
        let piece =
            Piece { number, crash, operations: &known, earlier: history, model, states_max };
        piece.judge(&start, &unseen, &mut report);
        let Some(crash) = crash else { break };
        initial = left_by(&initial, crash, &mut unseen, &known);
        let recovered: BTreeMap<&Key, &Read> =
            crash.recovered.iter().map(|read| (&read.key, read)).collect();
        let keeps_read = matches!(model, Persistency::Synch | Persistency::Renf);
        let read = read_values(&known);
        let came = Came { writers: &writers, recovered: &recovered, read, keeps_read };
        let came: Vec<bool> = all.iter().map(|operation| came.has(operation)).collect();
        let open = all.into_iter().zip(came).filter(|(_, came)| !came);
        carried = open.filter_map(|(it, _)| carry(it, crash.at, &recovered)).collect();
    }
    report
}

/// Was `operation` acknowledged only after the crash, at which it was under way?
fn is_under_way(operation: &Operation, at: u64) -> bool {
    operation.end == End::Ok && operation.responded.is_some_and(|responded| responded > at)
}

/// What is known of an operation at the crash that ends its piece: one that is under way has no
/// outcome yet.
fn as_known_at<'o>(operation: &'o Operation, crash: Option<&Crash>) -> Option<Cow<'o, Operation>> {
    match crash.filter(|crash| is_under_way(operation, crash.at)) {
        None => Some(Cow::Borrowed(operation)),
        Some(_) if matches!(linearizability::single(operation), Some((_, true, _))) => {
            Some(Cow::Owned(Operation { end: End::Unknown, ..operation.clone() }))
        }
        // Transactions are counted as not judged.
        Some(_) => operation.txn().map(|_| Cow::Borrowed(operation)),
    }
}

/// How many writes may have put a value, the load among them.
type Writers<'h> = BTreeMap<(&'h Key, u64), usize>;

fn writers(history: &History) -> Writers<'_> {
    let mut writers = Writers::new();
    if let Initial::Listed(loaded) = &history.initial {
        for one in loaded {
            *writers.entry((&one.key, one.digest.unwrap_or(0))).or_default() += 1;
        }
    }
    for operation in history.operations.iter().filter(|operation| operation.end != End::Failed) {
        if let Some((key, true, Value { digest: Some(digest), .. })) =
            linearizability::single(operation)
        {
            *writers.entry((key, digest)).or_default() += 1;
        }
    }
    writers
}

/// The values that reads and scans returned, with their versions.
fn read_values<'o>(operations: &[&'o Operation]) -> BTreeMap<(&'o Key, u64), Option<u64>> {
    let mut values = BTreeMap::new();
    for operation in operations.iter().filter(|operation| operation.end == End::Ok) {
        match &operation.action {
            Action::Get { key, found: Some(found) } => {
                values.extend(found.digest.map(|digest| ((key, digest), found.version)));
            }
            Action::Scan(scan) => {
                let found = scan.found.iter();
                values.extend(
                    found.filter_map(|read| Some(((&read.key, read.digest?), read.version))),
                );
            }
            _ => {}
        }
    }
    values
}

/// Which writes have come to light by a crash.
struct Came<'a, 'h> {
    writers: &'a Writers<'h>,
    recovered: &'a BTreeMap<&'h Key, &'h Read>,
    /// What was read before the crash.
    read: BTreeMap<(&'a Key, u64), Option<u64>>,
    /// Does the model keep what was read? What a crash lost may come again.
    keeps_read: bool,
}

impl Came<'_, '_> {
    /// Has this write taken effect for certain, for good? Its version was recovered; or its value was,
    /// or was read and not lost, and no other write put that.
    fn has(&self, operation: &Operation) -> bool {
        let Some((key, true, written)) = linearizability::single(operation) else { return false };
        let kept = self.recovered.get(key).map(|read| Value::read(read));
        let found = kept.filter(|found| written.may_be_version(found));
        if found.is_some_and(|found| found.version.is_some() && found.version == written.version) {
            return true;
        }
        written.digest.is_some_and(|digest| {
            self.writers.get(&(key, digest)) == Some(&1)
                && (found.is_some()
                    || self.read.get(&(key, digest)).is_some_and(|read| {
                        let versions = read.zip(kept.and_then(|kept| kept.version));
                        versions.map_or(self.keeps_read, |(read, kept)| read <= kept)
                    }))
        })
    }
}

/// The operation, if it may take effect after the crash at `at`, which left `recovered`, although it
/// did not come to light before: a write of unknown outcome, or one that was under way.
fn carry<'o>(
    operation: Cow<'o, Operation>,
    at: u64,
    recovered: &BTreeMap<&Key, &Read>,
) -> Option<Cow<'o, Operation>> {
    let (key, _, written) = linearizability::single(&operation).filter(|(_, writes, _)| *writes)?;
    let read = recovered.get(key).map(|read| Value::read(read));
    if operation.end == End::Unknown || operation.responded.is_none() {
        return Some(operation);
    }
    if !is_under_way(&operation, at) {
        return None;
    }
    // Only versions tell whether a newer write had replaced it before the crash.
    match written.version.zip(read.and_then(|read| read.version)) {
        Some((own, kept)) if own < kept => None,
        Some(_) => Some(operation),
        None => Some(Cow::Owned(Operation { end: End::Unknown, ..operation.into_owned() })),
    }
}

/// The state that a crash left: what was recovered. A key that was not looked at is as it was if no
/// operation of the piece wrote it, and else among the `unseen`.
fn left_by(
    before: &Initial,
    crash: &Crash,
    unseen: &mut BTreeSet<Key>,
    piece: &[&Operation],
) -> Initial {
    let Initial::Listed(before) = before else { return Initial::Untold };
    let mut state: BTreeMap<Key, Loaded> =
        before.iter().map(|loaded| (loaded.key.clone(), loaded.clone())).collect();
    for operation in piece {
        if let Some((key, true, _)) = linearizability::single(operation) {
            state.remove(key);
            unseen.insert(key.clone());
        }
    }
    for read in &crash.recovered {
        state.remove(&read.key);
        unseen.remove(&read.key);
        if read.present {
            let (key, version) = (read.key.clone(), read.version.unwrap_or(0));
            state.insert(key.clone(), Loaded { key, version, digest: read.digest });
        }
    }
    Initial::Listed(state.into_values().collect())
}

/// The operations between two crashes, and the crash at their end.
struct Piece<'h> {
    number: usize,
    crash: Option<&'h Crash>,
    operations: &'h [&'h Operation],
    earlier: &'h History,
    model: Persistency,
    states_max: usize,
}

impl Piece<'_> {
    /// `unseen`: keys of which nobody knows what they are at the start.
    fn judge(&self, start: &History, unseen: &BTreeSet<Key>, report: &mut Report) {
        let own = self.operations.iter().copied();
        let (mut problems, not_judged) = linearizability::by_key(start, own);
        report.not_judged += not_judged;
        let mut recovered: BTreeMap<&Key, Vec<&Read>> = BTreeMap::new();
        for read in self.crash.into_iter().flat_map(|crash| &crash.recovered) {
            recovered.entry(&read.key).or_default().push(read);
        }
        for key in recovered.keys() {
            let fresh = || Problem::new((*key).clone(), linearizability::initial(start, key));
            problems.entry((*key).clone()).or_insert_with(fresh);
        }
        let scopes = self.persisted();
        for (key, mut problem) in problems {
            report.operations += problem.certain.len();
            if unseen.contains(&key) {
                problem.initial = None;
            }
            if let Some(reads) = recovered.get(&key) {
                report.recovered += 1;
                if reads.iter().any(|read| differ(read, reads[0])) {
                    report.violations.push(self.violation(&key, Anomaly::ReplicasDisagree, vec![]));
                }
                let value = Value::read(reads[0]);
                let after = self.protected(&problem, &scopes);
                report.acknowledged_lost += lost(&problem, value);
                problem.recovered = Some(Recovered { value, after });
            }
            self.decide(problem, report);
        }
    }

    fn decide(&self, mut problem: Problem, report: &mut Report) {
        let found = match linearizability::decide(&problem, self.states_max) {
            Decision::Linearizable => return,
            Decision::Wrong(found) => found,
            Decision::Undecided { states } => {
                let operations = problem.certain.len() + problem.unsure.len();
                let key = problem.key;
                let undecided = linearizability::Undecided { key, operations, states };
                return report.undecided.push(undecided);
            }
        };
        let Some(recovered) = problem.recovered.take() else {
            return report.violations.push(self.wrong_already(&problem.key, found));
        };
        if let Decision::Wrong(found) = linearizability::decide(&problem, self.states_max) {
            return report.violations.push(self.wrong_already(&problem.key, found));
        }
        let protected = recovered.after.iter().map(|at| problem.certain[*at].id).collect();
        let value = recovered.value;
        problem.recovered = Some(Recovered { after: Vec::new(), ..recovered });
        let lost = linearizability::decide(&problem, self.states_max) == Decision::Linearizable;
        let (anomaly, ids) =
            if lost { (Anomaly::Lost, protected) } else { self.origin(&problem, &value) };
        report.violations.push(self.violation(&problem.key, anomaly, ids));
    }

    fn wrong_already(&self, key: &Key, found: linearizability::Found) -> Violation {
        let ids = linearizability::violation(key, found).operations;
        self.violation(key, Anomaly::NotLinearizable(found.anomaly), ids)
    }

    fn violation(&self, key: &Key, anomaly: Anomaly, operations: Vec<u64>) -> Violation {
        Violation { crash: self.number, key: key.clone(), anomaly, operations }
    }

    /// Where a recovered value that nothing in this piece explains comes from.
    fn origin(&self, problem: &Problem, value: &Value) -> (Anomaly, Vec<u64>) {
        if let Some(op) = problem.failed.iter().find(|op| op.value.may_be_version(value)) {
            return (Anomaly::Refused, vec![op.id]);
        }
        let begins = self.operations.iter().map(|operation| operation.id).collect::<BTreeSet<_>>();
        let older = self.earlier.operations.iter().filter(|operation| {
            let before = self.number > 0 && !begins.contains(&operation.id);
            before && operation.end != End::Failed && operation.invoked <= self.started()
        });
        let mut of_key = older.filter_map(|operation| {
            let (key, writes, written) = linearizability::single(operation)?;
            (*key == problem.key && writes && written.may_be_version(value)).then_some(operation.id)
        });
        match of_key.next_back() {
            Some(id) => (Anomaly::Resurrected, vec![id]),
            None => (Anomaly::NeverWritten, Vec::new()),
        }
    }

    /// When this piece began: the crash before it.
    fn started(&self) -> u64 {
        self.number.checked_sub(1).map_or(0, |before| self.earlier.crashes[before].at)
    }

    /// Positions of the certain operations that the recovered state must follow.
    fn protected(&self, problem: &Problem, scopes: &BTreeSet<u64>) -> Vec<usize> {
        let protects = |op: &linearizability::Op| match (self.model, op.writes) {
            (Persistency::Strict, true) => true,
            (Persistency::Synch, _) => true,
            (Persistency::Renf, false) => true,
            (Persistency::Scope, true) => scopes.contains(&op.id),
            (Persistency::Strict | Persistency::Scope, false)
            | (Persistency::Renf, true)
            | (Persistency::Event, _) => false,
        };
        let certain = problem.certain.iter().enumerate();
        certain.filter(|(_, op)| protects(op)).map(|(at, _)| at).collect()
    }

    /// The ids of writes that an acknowledged `Persist` of their client has made durable.
    fn persisted(&self) -> BTreeSet<u64> {
        let mut waiting: BTreeMap<u32, Vec<(Option<u64>, u64)>> = BTreeMap::new();
        let mut persisted = BTreeSet::new();
        for operation in self.operations.iter().filter(|operation| operation.end == End::Ok) {
            let own = waiting.entry(operation.client).or_default();
            match &operation.action {
                Action::Put { scope, .. } | Action::Delete { scope, .. } => {
                    own.push((*scope, operation.id));
                }
                Action::Persist { scope } => own.retain(|(of, id)| {
                    let covered = scope.is_none() || of == scope;
                    if covered {
                        persisted.insert(*id);
                    }
                    !covered
                }),
                Action::Txn(_) | Action::Get { .. } | Action::Scan(_) => {}
            }
        }
        persisted
    }
}

/// Did two replicas recover different states of a key?
fn differ(one: &Read, other: &Read) -> bool {
    let known = |one: Option<u64>, other: Option<u64>| {
        one.zip(other).is_some_and(|(one, other)| one != other)
    };
    one.present != other.present
        || one.present && (known(one.digest, other.digest) || known(one.version, other.version))
}

/// Acknowledged writes with versions above the recovered one.
fn lost(problem: &Problem, recovered: Value) -> usize {
    let newer =
        |version: Option<u64>| version.zip(recovered.version).is_some_and(|(own, kept)| own > kept);
    problem.certain.iter().filter(|op| op.writes && newer(op.value.version)).count()
}
