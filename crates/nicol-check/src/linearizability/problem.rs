//! One key's operations, as the deciders see them.

use std::collections::BTreeSet;

use nicol_core::history::{Action, Effect, End, Found, Initial, Key, Operation, Read, Write};

/// The time of a response that never came.
pub(crate) const NEVER: u64 = u64::MAX;

/// The content of a register, as far as it is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Value {
    /// True if there is a record. `None`: a client does not know what it wrote.
    pub(crate) present: Option<bool>,
    pub(crate) digest: Option<u64>,
    pub(crate) version: Option<u64>,
}

impl Value {
    pub(crate) const ABSENT: Self = Self { present: Some(false), digest: None, version: Some(0) };

    fn written(write: &Write) -> Self {
        let (present, digest) = match write.effect {
            Effect::Put { digest } => (Some(true), digest),
            Effect::Delete => (Some(false), None),
            Effect::Unknown => (None, None),
        };
        Self { present, digest, version: write.version }
    }

    const fn found(found: Found) -> Self {
        Self { present: Some(found.present), digest: found.digest, version: found.version }
    }

    pub(crate) const fn read(read: &Read) -> Self {
        Self { present: Some(read.present), digest: read.digest, version: read.version }
    }

    /// True if the record is absent for certain.
    pub(crate) fn is_absent(&self) -> bool {
        self.present == Some(false)
    }

    /// True if all that a read may tell of it is known, but for its version.
    pub(crate) fn is_exact(&self) -> bool {
        self.is_absent() || self.present.is_some() && self.digest.is_some()
    }

    /// Could a read of what this wrote have returned `read`, by presence and digest?
    pub(crate) fn may_be(&self, read: &Self) -> bool {
        let agree = |one: Option<u64>, other: Option<u64>| match (one, other) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        self.present.is_none_or(|present| Some(present) == read.present)
            && (read.is_absent() || agree(self.digest, read.digest))
    }

    /// [`Value::may_be`], and the versions agree where both are known.
    pub(crate) fn may_be_version(&self, read: &Self) -> bool {
        let versions = match (self.version, read.version) {
            (Some(own), Some(read)) => own == read,
            _ => true,
        };
        self.may_be(read) && (versions || read.is_absent())
    }
}

/// An operation on the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Op {
    /// Its id in the history.
    pub(crate) id: u64,
    pub(crate) client: u32,
    pub(crate) sequence: u64,
    pub(crate) invoked: u64,
    /// [`NEVER`] if it may take effect at any time after its invocation.
    pub(crate) responded: u64,
    pub(crate) writes: bool,
    /// The value written or read.
    pub(crate) value: Value,
    /// May it, of unknown outcome, take effect only behind the recovered state?
    pub(crate) after_recovery: bool,
}

/// The state that recovery found, and what must have taken effect before it.
#[derive(Clone, Debug)]
pub(crate) struct Recovered {
    pub(crate) value: Value,
    /// Positions in [`Problem::certain`].
    pub(crate) after: Vec<usize>,
}

/// One key's part of a history.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    pub(crate) key: Key,
    /// The value before the first operation; `None` if nobody has said.
    pub(crate) initial: Option<Value>,
    /// Operations that took effect, by invocation.
    pub(crate) certain: Vec<Op>,
    /// For each certain operation, the one before it of the same client.
    pub(crate) previous: Vec<Option<usize>>,
    /// Writes that took effect once after their invocation, or never.
    pub(crate) unsure: Vec<Op>,
    /// Writes that took no effect.
    pub(crate) failed: Vec<Op>,
    pub(crate) recovered: Option<Recovered>,
}

impl Problem {
    pub(crate) fn new(key: Key, initial: Option<Value>) -> Self {
        Self {
            key,
            initial,
            certain: Vec::new(),
            previous: Vec::new(),
            unsure: Vec::new(),
            failed: Vec::new(),
            recovered: None,
        }
    }

    /// Files an operation by how it ended.
    pub(crate) fn add(&mut self, operation: &Operation, writes: bool, value: Value) {
        let (end, responded) = match (operation.end, operation.responded) {
            (End::Ok, Some(at)) => (End::Ok, at),
            (End::Failed, _) => (End::Failed, NEVER),
            _ => (End::Unknown, NEVER),
        };
        let Operation { id, client, sequence, invoked, .. } = *operation;
        let after_recovery = false;
        let op = Op { id, client, sequence, invoked, responded, writes, value, after_recovery };
        match (end, writes) {
            (End::Ok, _) => self.certain.push(op),
            (End::Unknown, true) => self.unsure.push(op),
            (End::Failed, true) => self.failed.push(op),
            // A read that returned nothing says nothing.
            (_, false) => {}
        }
    }

    /// To be called once all operations are in.
    pub(crate) fn finish(&mut self) {
        self.certain.sort_by_key(|op| (op.invoked, op.client, op.sequence));
        self.unsure.sort_by_key(|op| (op.invoked, op.client, op.sequence));
        let mut last = std::collections::BTreeMap::new();
        let previous = |(number, op): (usize, &Op)| last.insert(op.client, number);
        self.previous = self.certain.iter().enumerate().map(previous).collect();
    }

    /// Does any operation tell a version? The load's alone says nothing of the order.
    pub(crate) fn tells_versions(&self) -> bool {
        let values = self.certain.iter().chain(&self.unsure).map(|op| &op.value);
        let recovered = self.recovered.iter().map(|recovered| &recovered.value);
        values.chain(recovered).any(|value| value.version.is_some())
    }

    /// Do some operations tell a version, and others that took effect none? Or some, or some values
    /// `recovered` after crashes, a digest, and others none? Absences that were read need not tell
    /// any.
    pub(crate) fn is_told_in_part(&self, recovered: &[Value]) -> bool {
        let values = || self.certain.iter().chain(&self.unsure).map(|op| &op.value);
        let present = |value: &&Value| value.present == Some(true);
        let digests = values().chain(recovered).filter(present);
        let digests: BTreeSet<bool> = digests.map(|value| value.digest.is_some()).collect();
        self.tells_versions() && self.leaves_out_versions() || digests.len() > 1
    }

    /// Does an operation that took effect, but for absences that were read, tell no version?
    pub(crate) fn leaves_out_versions(&self) -> bool {
        let mut certain = self.certain.iter().filter(|op| op.writes || !op.value.is_absent());
        certain.any(|op| op.value.version.is_none())
    }

    /// Must the certain operation `first` take effect before `then`, by real time or by the order
    /// of their client? `first` comes earlier in its client's order if the clients are the same.
    pub(crate) fn precedes(first: &Op, then: &Op) -> bool {
        first.responded < then.invoked
            || first.client == then.client
                && first.sequence < then.sequence
                && first.responded <= then.invoked
    }
}

/// The initial value of `key`.
pub(crate) fn initial(told: &Initial, key: &Key) -> Option<Value> {
    match told {
        Initial::Untold => None,
        Initial::Listed(loaded) => {
            let found = loaded.binary_search_by(|loaded| loaded.key.cmp(key)).ok();
            Some(found.map_or(Value::ABSENT, |place| Value {
                present: Some(true),
                digest: loaded[place].digest,
                version: Some(loaded[place].version),
            }))
        }
    }
}

/// What `operation` does to single keys: whether it writes, and the value. `None` for transactions
/// and scans, which are not operations on single keys.
pub(crate) fn single(operation: &Operation) -> Option<(&Key, bool, Value)> {
    const NOTHING: Found = Found { present: false, version: None, digest: None };
    match &operation.action {
        Action::Get { key, found } => Some((key, false, Value::found(found.unwrap_or(NOTHING)))),
        Action::Put { write, .. } | Action::Delete { write, .. } => {
            Some((&write.key, true, Value::written(write)))
        }
        Action::Txn(_) | Action::Scan(_) | Action::Persist { .. } => None,
    }
}
