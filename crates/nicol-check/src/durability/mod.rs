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
//! For every model: what is recovered was once written, and not refused; replicas agree; and
//! nothing that is older than what an earlier recovery had found comes back.
//!
//! Each key is decided by linearizability: the recovered state is a read that comes after all that
//! the model protects and, like any other, at one point of the order of the operations before the
//! crash. So a history between two crashes must be linearizable, too; it begins with what the crash
//! before it left. A write whose outcome was unknown at a crash may still take effect after it.
//!
//! Of a key that nobody looked at after a crash, every state that the crash may have left is
//! carried on (`starts.rs`): what follows must be right from one of them.
//!
//! Of a key of which some operations tell a version or a digest and others none, and of every key
//! where the load is untold, nobody can say what a crash has left: it is undecided behind one,
//! unless what follows is wrong from every state.
//!
//! Of an operation that was under way at a crash and was acknowledged after it, the state before
//! the crash says nothing: a write may have taken effect before it, or, sent again, after it, and a
//! read's answer may come from either side, so that it is left out.

mod of_key;
mod starts;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use nicol_core::history::{
    Action, Crash, End, History, Initial, Key, Operation, Persistency, Read,
};

use crate::linearizability::{self, Bound, KeyName, Problem, Value};
use of_key::OfKey;
use starts::{Carried, Starts, Writers, is_under_way};

/// The kind of violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Anomaly {
    /// The recovered state lacks something that the model protects.
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
    pub key: Key,
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
    pub crashes: usize,
    /// Keys looked at after crashes, summed up.
    pub recovered: usize,
    /// Operations before and after crashes that took effect for certain.
    pub operations: usize,
    /// Acknowledged writes that came after the state recovered, as far as versions tell: the loss,
    /// permitted or not. Of keys that nobody looked at nothing is counted.
    pub acknowledged_lost: usize,
    pub violations: Vec<Violation>,
    /// Keys that are neither right nor wrong.
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

/// Judges a history with crashes under `model`. `bound` is that of [`linearizability::check`],
/// and so is the cost, once for each state in which a key may be after a crash: one, unless nobody
/// looked at it.
pub fn check(history: &History, model: Persistency, bound: Bound) -> Report {
    let mut report = Report { crashes: history.crashes.len(), ..Report::default() };
    let mut operations: Vec<&Operation> = history.operations.iter().collect();
    operations.sort_by_key(|operation| (operation.invoked, operation.client, operation.sequence));
    let initial = linearizability::in_order(&history.initial);
    let writers = starts::writers(history);
    let told_in_part = told_in_part(history, &initial);
    let mut starts = BTreeMap::new();
    let mut rest = &operations[..];
    for number in 0..=history.crashes.len() {
        let crash = history.crashes.get(number);
        let ends = rest
            .partition_point(|operation| crash.is_none_or(|crash| operation.invoked <= crash.at));
        let (own, later) = rest.split_at(ends);
        rest = later;
        let (initial, earlier, writers) = (&initial, history, &writers);
        let told_in_part = &told_in_part;
        let piece =
            Piece { number, crash, own, initial, earlier, writers, told_in_part, model, bound };
        piece.judge(&mut starts, &mut report);
    }
    report
}

/// The keys of which some operations, or some of what was recovered, tell a version or a digest,
/// and others none.
#[derive(Default)]
struct ToldInPart {
    keys: BTreeSet<Key>,
    /// Those of which operations tell no version, and what was recovered does: what is known after
    /// a crash is enough, if somebody looked.
    unless_recovered: BTreeSet<Key>,
}

fn told_in_part(history: &History, initial: &Initial) -> ToldInPart {
    let mut told = ToldInPart::default();
    if history.crashes.is_empty() {
        return told;
    }
    let mut recovered: BTreeMap<&Key, Vec<Value>> = BTreeMap::new();
    for read in history.crashes.iter().flat_map(|crash| &crash.recovered) {
        recovered.entry(&read.key).or_default().push(Value::read(read));
    }
    let by_key = linearizability::by_key(initial, &BTreeSet::new(), &history.operations);
    for (key, problem) in by_key.problems {
        let recovered = recovered.get(&key).map_or(&[][..], Vec::as_slice);
        if problem.is_told_in_part(recovered) {
            told.keys.insert(key);
        } else if problem.leaves_out_versions()
            && recovered.iter().any(|value| value.version.is_some())
        {
            told.unless_recovered.insert(key);
        }
    }
    told
}

/// All that is known of an operation at the crash that ends its piece: one that is under way has no
/// outcome yet.
fn as_known_at<'o>(operation: &'o Operation, crash: Option<&Crash>) -> Option<Cow<'o, Operation>> {
    match crash.filter(|crash| is_under_way(operation, crash.at)) {
        None => Some(Cow::Borrowed(operation)),
        Some(_) if matches!(linearizability::single(operation), Some((_, true, _))) => {
            Some(Carried::new(operation).known_at(crash))
        }
        // Transactions are counted as not judged.
        Some(_) => operation.txn().map(|_| Cow::Borrowed(operation)),
    }
}

/// The operations between two crashes, and the crash at their end.
struct Piece<'a, 'h> {
    number: usize,
    crash: Option<&'h Crash>,
    /// The operations that were invoked in it.
    own: &'a [&'h Operation],
    /// The loaded records, in the order of keys.
    initial: &'a Initial,
    earlier: &'h History,
    writers: &'a Writers<'h>,
    told_in_part: &'a ToldInPart,
    model: Persistency,
    bound: Bound,
}

impl<'h> Piece<'_, 'h> {
    /// `starts`: the states in which each key may be at the start, where that is no longer what was
    /// loaded. Afterwards those at the end.
    fn judge(&self, starts: &mut BTreeMap<Key, Starts<'h>>, report: &mut Report) {
        let known: Vec<Cow<'_, Operation>> =
            self.own.iter().filter_map(|operation| as_known_at(operation, self.crash)).collect();
        let changed: BTreeSet<&Key> = starts.keys().collect();
        let own = known.iter().map(Cow::as_ref);
        let split = linearizability::by_key(self.initial, &changed, own);
        let linearizability::ByKey { mut problems, violations, not_judged } = split;
        report.not_judged += not_judged;
        report.violations.extend(violations.into_iter().map(|wrong| {
            self.violation(&wrong.key, Anomaly::NotLinearizable(wrong.anomaly), wrong.operations)
        }));
        let mut recovered: BTreeMap<&Key, Vec<&Read>> = BTreeMap::new();
        for read in self.crash.into_iter().flat_map(|crash| &crash.recovered) {
            recovered.entry(&read.key).or_default().push(read);
        }
        let carrying = starts.iter().filter(|(_, of_key)| of_key.carried().next().is_some());
        for key in recovered.keys().copied().chain(carrying.map(|(key, _)| key)) {
            let fresh = || Problem::new(key.clone(), linearizability::initial(self.initial, key));
            problems.entry(key.clone()).or_insert_with(fresh);
        }
        let mut writes: BTreeMap<&Key, Vec<Carried<'h>>> = BTreeMap::new();
        for operation in self.own {
            if let Some((key, true, _)) = linearizability::single(operation) {
                writes.entry(key).or_default().push(Carried::new(operation));
            }
        }
        let read = read_values(&known);
        let scopes = self.persisted(starts, &known);
        for (key, problem) in problems {
            let from = starts.remove(&key).unwrap_or_else(|| Starts::loaded(problem.initial));
            let of_key = OfKey {
                piece: self,
                problem: &problem,
                writes: writes.get(&key).map_or(&[][..], Vec::as_slice),
                recovered: recovered.get(&key).map(Vec::as_slice),
                read: &read,
                scopes: &scopes,
            };
            let left = of_key.judge(&from, report);
            starts.insert(key, left);
        }
    }

    fn violation(&self, key: &Key, anomaly: Anomaly, operations: Vec<u64>) -> Violation {
        Violation { crash: self.number, key: key.clone(), anomaly, operations }
    }

    /// When this piece began: the crash before it.
    fn started(&self) -> u64 {
        self.number.checked_sub(1).map_or(0, |before| self.earlier.crashes[before].at)
    }

    /// The ids of writes that an acknowledged `Persist` of their client has made durable.
    fn persisted(
        &self,
        starts: &BTreeMap<Key, Starts<'h>>,
        known: &[Cow<'_, Operation>],
    ) -> BTreeSet<u64> {
        let carried = starts.values().flat_map(Starts::carried);
        let carried: BTreeMap<u64, Cow<'h, Operation>> =
            carried.map(|one| (one.operation.id, one.known_at(self.crash))).collect();
        let mut waiting: BTreeMap<u32, Vec<(Option<u64>, u64)>> = BTreeMap::new();
        let mut persisted = BTreeSet::new();
        let operations = carried.values().map(Cow::as_ref).chain(known.iter().map(Cow::as_ref));
        for operation in operations.filter(|operation| operation.end == End::Ok) {
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

/// The values that reads and scans returned, with their versions.
type ReadValues<'o> = BTreeMap<(&'o Key, u64), Option<u64>>;

fn read_values<'o>(operations: &'o [Cow<'_, Operation>]) -> ReadValues<'o> {
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
