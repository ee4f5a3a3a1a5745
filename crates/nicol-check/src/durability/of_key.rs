//! One key between two crashes: is it right, and what may the second crash have left of it?

use std::collections::{BTreeMap, BTreeSet};

use nicol_core::history::{End, Initial, Persistency, Read};

use super::starts::{Came, Carried, STARTS_MAX, Start, Starts};
use super::{Anomaly, Piece, ReadValues, Report, Violation};
use crate::linearizability::{self, Decision, Found, Problem, Reason, Recovered, Value};

/// Writes of a key of which it is told whether they must have taken effect before a crash: every
/// set of them is tried.
const OPEN_MAX: usize = 6;
/// Configurations that the search for each of these sets visits at most.
const OPEN_STATES_MAX: usize = 10_000;

/// One key in a piece.
pub(super) struct OfKey<'a, 'h> {
    pub(super) piece: &'a Piece<'a, 'h>,
    /// The operations of the piece, without what earlier ones left.
    pub(super) problem: &'a Problem,
    /// Those of them that write.
    pub(super) writes: &'a [Carried<'h>],
    /// The state that the crash left, if somebody looked.
    pub(super) recovered: Option<&'a [&'h Read]>,
    /// The reads of the piece, of any key.
    pub(super) read: &'a ReadValues<'a>,
    /// The writes that a `Persist` has made durable.
    pub(super) scopes: &'a BTreeSet<u64>,
}

impl<'h> OfKey<'_, 'h> {
    /// Judges the key, which began in one of the states `from`. Returns those in which it may be
    /// behind the crash.
    pub(super) fn judge(&self, from: &Starts<'h>, report: &mut Report) -> Starts<'h> {
        let recovered = self.recovered.map(|reads| {
            report.recovered += 1;
            if reads.iter().any(|read| differ(read, reads[0])) {
                let key = &self.problem.key;
                let split = self.piece.violation(key, Anomaly::ReplicasDisagree, vec![]);
                report.violations.push(split);
            }
            Value::read(reads[0])
        });
        let mut left = Starts::default();
        let (mut right, mut unsure, mut wrong) = (false, None, None);
        for (number, start) in from.iter().enumerate() {
            let mut problem = self.begun_in(start);
            if number == 0 {
                report.operations += problem.certain.len();
                report.acknowledged_lost += recovered.map_or(0, |value| lost(&problem, value));
            }
            let after = self.protected(&problem);
            problem.recovered = recovered.map(|value| Recovered { value, after: after.clone() });
            let doubtful = match linearizability::decide(&problem, self.piece.bound) {
                Decision::Linearizable => start.doubtful,
                Decision::Undecided { states } => Some(states),
                Decision::Wrong(found) => {
                    wrong = wrong.or(Some((start, problem, found)));
                    continue;
                }
            };
            right |= doubtful.is_none();
            unsure = unsure.or(doubtful);
            match (self.piece.crash, recovered) {
                (None, _) => {}
                (Some(_), Some(_)) => self.add_behind(start, &problem, doubtful, &mut left),
                (Some(_), None) => self.leave(start, problem, after, doubtful, &mut left),
            }
        }
        match (right, unsure, wrong) {
            (true, ..) => {}
            (false, Some(states), _) => self.undecided(Reason::Bound { states }, report),
            (false, None, wrong) => {
                let (start, problem, found) = wrong.expect("a key is in some state");
                report.violations.push(self.name(problem, found));
                // What follows is judged as if the state recovered were right, or any.
                left.add(Start { carried: self.open(start, recovered), ..behind(recovered, None) });
            }
        }
        // What is not told of a state would be taken for what it is not, behind the crash.
        let untold = matches!(self.piece.initial, Initial::Untold);
        let (key, told) = (&self.problem.key, self.piece.told_in_part);
        let unseen = recovered.is_none() && told.unless_recovered.contains(key);
        let in_part = untold || unseen || told.keys.contains(key);
        let reason = match left.len() {
            _ if self.piece.crash.is_some() && in_part => Reason::ToldInPart,
            states if states > STARTS_MAX => Reason::Bound { states },
            _ => return left,
        };
        self.undecided(reason, report);
        Starts::one(self.any_state(from))
    }

    /// What a crash may have left, whatever that is, with all writes that may still take effect.
    fn any_state(&self, from: &Starts<'h>) -> Start<'h> {
        let at = self.piece.crash.map_or(0, |crash| crash.at);
        let all = from.carried().chain(self.writes).filter_map(|one| one.behind(at, None));
        let carried: BTreeMap<u64, Carried<'h>> = all.map(|one| (one.operation.id, one)).collect();
        Start { initial: None, carried: carried.into_values().collect(), doubtful: None }
    }

    fn undecided(&self, reason: Reason, report: &mut Report) {
        let key = self.problem.key.clone();
        let operations = self.problem.certain.len() + self.problem.unsure.len();
        report.undecided.push(linearizability::Undecided { key, operations, reason });
    }

    /// The problem, if the piece began in `start`.
    fn begun_in(&self, start: &Start<'h>) -> Problem {
        let mut problem = Problem { initial: start.initial, ..self.problem.clone() };
        for one in &start.carried {
            let operation = one.known_at(self.piece.crash);
            if let Some((_, writes, value)) = linearizability::single(&operation) {
                problem.add(&operation, writes, value);
            }
        }
        problem.finish();
        problem
    }

    /// The writes that may still take effect if the crash left `kept`; `None`: nobody knows what.
    fn open(&self, start: &Start<'h>, kept: Option<Value>) -> Vec<Carried<'h>> {
        let Some(crash) = self.piece.crash else { return Vec::new() };
        let keeps_read = matches!(self.piece.model, Persistency::Synch | Persistency::Renf);
        let came = Came { writers: self.piece.writers, kept, read: self.read, keeps_read };
        let all = start.carried.iter().chain(self.writes);
        let open = all.filter(|one| !came.has(one.operation));
        open.filter_map(|one| one.behind(crash.at, kept)).collect()
    }

    /// Adds what the crash leaves if it recovers as `problem` says, once for each set of writes of
    /// unknown outcome that must have taken effect before it: these do not come again.
    fn add_behind(
        &self,
        start: &Start<'h>,
        problem: &Problem,
        doubtful: Option<usize>,
        left: &mut Starts<'h>,
    ) {
        let kept = problem.recovered.as_ref().map(|recovered| recovered.value);
        let open = self.open(start, kept);
        for spent in self.spent(problem, &open) {
            let unspent = open.iter().filter(|one| !spent.contains(&one.operation.id));
            let carried = unspent.copied().collect();
            left.add(Start { carried, ..behind(kept, doubtful) });
        }
    }

    /// The smallest sets of `open` writes without which nothing explains the piece, by their ids.
    /// More than [`OPEN_MAX`] are not told apart, nor what the search does not decide: none is
    /// taken for spent.
    fn spent(&self, problem: &Problem, open: &[Carried<'h>]) -> Vec<BTreeSet<u64>> {
        let open: BTreeSet<u64> = open.iter().map(|one| one.operation.id).collect();
        let unsure = problem.unsure.iter().map(|op| op.id).filter(|id| open.contains(id));
        let unsure: Vec<u64> = unsure.collect();
        let is_right = |problem: &Problem| {
            let bound = self.piece.bound.at_most(OPEN_STATES_MAX);
            !matches!(linearizability::decide(problem, bound), Decision::Wrong(_))
        };
        let mut without = problem.clone();
        without.unsure.retain(|op| !unsure.contains(&op.id));
        if unsure.is_empty() || unsure.len() > OPEN_MAX || is_right(&without) {
            return vec![BTreeSet::new()];
        }
        let mut sets: Vec<BTreeSet<u64>> = (0..1_u32 << unsure.len())
            .map(|bits| {
                let chosen = unsure.iter().enumerate().filter(|(at, _)| bits >> at & 1 == 1);
                chosen.map(|(_, id)| *id).collect()
            })
            .collect();
        sets.sort_by_key(BTreeSet::len);
        let mut smallest: Vec<BTreeSet<u64>> = Vec::new();
        for spent in sets {
            if smallest.iter().any(|less| less.is_subset(&spent)) {
                continue;
            }
            let mut with = problem.clone();
            for op in &mut with.unsure {
                // What the crash has lost may come again.
                op.after_recovery = unsure.contains(&op.id) && !spent.contains(&op.id);
            }
            if is_right(&with) {
                smallest.push(spent);
            }
        }
        smallest
    }

    /// Adds every state that a crash may have left at which nobody looked: one that an operation
    /// found or put, behind all that the model protects. A put of unknown outcome that nobody has
    /// read is carried on instead, which says the same; a deletion is not the same, since versions
    /// may begin anew behind a crash that leaves no record.
    fn leave(
        &self,
        start: &Start<'h>,
        mut problem: Problem,
        after: Vec<usize>,
        doubtful: Option<usize>,
        left: &mut Starts<'h>,
    ) {
        let anything = after.is_empty();
        match problem.initial {
            Some(value) if anything => {
                problem.recovered = Some(Recovered { value, after: Vec::new() });
                self.add_behind(start, &problem, doubtful, left);
            }
            None if anything && !reads_initial(&problem) => {
                left.add(Start { carried: self.open(start, None), ..behind(None, doubtful) });
            }
            _ => {}
        }
        for (value, certain) in last_values(&problem, &after) {
            let mut doubtful = doubtful;
            // If nothing is protected, the crash may have come behind any operation that took
            // effect.
            problem.recovered = Some(Recovered { value, after: after.clone() });
            if !(anything && certain) {
                match linearizability::decide(&problem, self.piece.bound) {
                    Decision::Linearizable => {}
                    Decision::Undecided { states } => doubtful = doubtful.or(Some(states)),
                    Decision::Wrong(_) => continue,
                }
            }
            self.add_behind(start, &problem, doubtful, left);
        }
    }

    fn name(&self, mut problem: Problem, found: Found) -> Violation {
        let Some(recovered) = problem.recovered.take() else {
            return self.wrong_already(found);
        };
        if let Decision::Wrong(found) = linearizability::decide(&problem, self.piece.bound) {
            return self.wrong_already(found);
        }
        let protected = recovered.after.iter().map(|at| problem.certain[*at].id).collect();
        let value = recovered.value;
        problem.recovered = Some(Recovered { after: Vec::new(), ..recovered });
        let decision = linearizability::decide(&problem, self.piece.bound);
        let (anomaly, ids) = match decision {
            Decision::Linearizable => (Anomaly::Lost, protected),
            _ => self.origin(&problem, &value),
        };
        self.piece.violation(&problem.key, anomaly, ids)
    }

    fn wrong_already(&self, found: Found) -> Violation {
        let key = &self.problem.key;
        let ids = linearizability::violation(key, found).operations;
        self.piece.violation(key, Anomaly::NotLinearizable(found.anomaly), ids)
    }

    /// Where a recovered value that nothing in this piece explains comes from.
    fn origin(&self, problem: &Problem, value: &Value) -> (Anomaly, Vec<u64>) {
        if let Some(op) = problem.failed.iter().find(|op| op.value.may_be_version(value)) {
            return (Anomaly::Refused, vec![op.id]);
        }
        let own: BTreeSet<u64> =
            problem.certain.iter().chain(&problem.unsure).map(|op| op.id).collect();
        let older = self.piece.earlier.operations.iter().filter(|operation| {
            let before = self.piece.number > 0 && !own.contains(&operation.id);
            before && operation.end != End::Failed && operation.invoked <= self.piece.started()
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

    /// Positions of the certain operations that the recovered state must follow.
    fn protected(&self, problem: &Problem) -> Vec<usize> {
        let protects = |op: &linearizability::Op| match (self.piece.model, op.writes) {
            (Persistency::Strict, true) => true,
            (Persistency::Synch, _) => true,
            (Persistency::Renf, false) => true,
            (Persistency::Scope, true) => self.scopes.contains(&op.id),
            (Persistency::Strict | Persistency::Scope, false)
            | (Persistency::Renf, true)
            | (Persistency::Event, _) => false,
        };
        let certain = problem.certain.iter().enumerate();
        certain.filter(|(_, op)| protects(op)).map(|(at, _)| at).collect()
    }
}

/// A start from what a crash left; `None`: nobody knows what.
fn behind<'h>(kept: Option<Value>, doubtful: Option<usize>) -> Start<'h> {
    let initial = kept.map(|kept| match kept.is_absent() {
        // A new life of the record may have any version.
        true => Value::ABSENT,
        false => Value { version: Some(kept.version.unwrap_or(0)), ..kept },
    });
    Start { initial, carried: Vec::new(), doubtful }
}

/// Has a read returned what no operation put? That is what was there at the start, then.
fn reads_initial(problem: &Problem) -> bool {
    let writes = problem.certain.iter().filter(|op| op.writes).chain(&problem.unsure);
    let writes: Vec<Value> = writes.map(|op| op.value).collect();
    let of_none = |read: &Value| !writes.iter().any(|written| written.may_be_version(read));
    problem.certain.iter().any(|op| !op.writes && of_none(&op.value))
}

/// The values that the key may have at the end, behind the operations `after`: those of operations
/// that need not have come before the last of these. Of the others that one tells, if it read them.
fn last_values(problem: &Problem, after: &[usize]) -> BTreeMap<Value, bool> {
    let last = after.iter().map(|at| problem.certain[*at].invoked).max().unwrap_or(0);
    let writes = problem.certain.iter().filter(|op| op.writes).map(|op| op.value);
    let by_version: BTreeMap<u64, Value> =
        writes.filter_map(|value| Some((value.version?, value))).collect();
    // What was written says more than what was read of it.
    let told = |read: Value| {
        let written = read.version.and_then(|version| by_version.get(&version));
        written.filter(|written| written.may_be(&read)).copied().unwrap_or(read)
    };
    let late = problem.certain.iter().filter(|op| op.responded >= last);
    let late = late.map(|op| (if op.writes { op.value } else { told(op.value) }, true));
    let deleted = problem.unsure.iter().filter(|op| op.value.present != Some(true));
    let deleted = deleted.map(|_| (Value { version: None, ..Value::ABSENT }, false));
    // What is known for certain stays so.
    deleted.chain(late).collect()
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
