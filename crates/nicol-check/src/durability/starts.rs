//! What a crash may leave of a key: a value, and writes that may still take effect.

use std::borrow::Cow;
use std::collections::BTreeMap;

use nicol_core::history::{Crash, End, History, Initial, Key, Operation};

use super::ReadValues;
use crate::linearizability::{self, Value};

/// States in which a key may be after crashes at which nobody looked at it. A key with more is
/// undecided.
pub(super) const STARTS_MAX: usize = 10_000;

/// Was `operation` acknowledged only after the crash, at which it was under way?
pub(super) fn is_under_way(operation: &Operation, at: u64) -> bool {
    operation.end == End::Ok && operation.responded.is_some_and(|responded| responded > at)
}

/// A write of an earlier piece, or of this one, that may take effect behind the next crash.
#[derive(Clone, Copy)]
pub(super) struct Carried<'h> {
    pub(super) operation: &'h Operation,
    /// True if it was acknowledged, although nobody knows any more whether it takes effect.
    unknown: bool,
}

impl<'h> Carried<'h> {
    pub(super) const fn new(operation: &'h Operation) -> Self {
        Self { operation, unknown: false }
    }

    /// All that is known of it at the crash.
    pub(super) fn known_at(&self, crash: Option<&Crash>) -> Cow<'h, Operation> {
        let under_way = crash.is_some_and(|crash| is_under_way(self.operation, crash.at));
        if self.unknown || under_way {
            Cow::Owned(Operation { end: End::Unknown, ..self.operation.clone() })
        } else {
            Cow::Borrowed(self.operation)
        }
    }

    /// The write, if it may take effect behind the crash at `at`, which left `kept`, although it
    /// did not come to light before: it is of unknown outcome, or was under way.
    pub(super) fn behind(self, at: u64, kept: Option<Value>) -> Option<Self> {
        let Self { operation, unknown } = self;
        if unknown || operation.end == End::Unknown || operation.responded.is_none() {
            return Some(self);
        }
        if !is_under_way(operation, at) {
            return None;
        }
        let (_, _, written) = linearizability::single(operation)?;
        // Only versions tell whether a newer write had replaced it before the crash.
        match written.version.zip(kept.and_then(|kept| kept.version)) {
            Some((own, kept)) if own < kept => None,
            Some(_) => Some(self),
            None => Some(Self { unknown: true, ..self }),
        }
    }
}

/// A state in which a key may be at the start of a piece.
#[derive(Clone)]
pub(super) struct Start<'h> {
    /// `None`: nobody knows.
    pub(super) initial: Option<Value>,
    /// Writes that may take effect in the piece or later.
    pub(super) carried: Vec<Carried<'h>>,
    /// The search that should tell whether the key may be in this state met its bound: after how
    /// many configurations.
    pub(super) doubtful: Option<usize>,
}

/// What tells two starts apart: the value, and of each write its id and whether it is unknown.
type Content = (Option<Value>, Vec<(u64, bool)>);

/// All of them, each once.
#[derive(Clone, Default)]
pub(super) struct Starts<'h> {
    by_content: BTreeMap<Content, Start<'h>>,
}

impl<'h> Starts<'h> {
    /// The loaded records, or not.
    pub(super) fn loaded(initial: Option<Value>) -> Self {
        Self::one(Start { initial, carried: Vec::new(), doubtful: None })
    }

    pub(super) fn one(start: Start<'h>) -> Self {
        let mut starts = Self::default();
        starts.add(start);
        starts
    }

    pub(super) fn add(&mut self, start: Start<'h>) {
        let carried = start.carried.iter().map(|one| (one.operation.id, one.unknown)).collect();
        let doubtful = start.doubtful;
        let known = self.by_content.entry((start.initial, carried)).or_insert(start);
        known.doubtful = known.doubtful.and(doubtful);
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Start<'h>> {
        self.by_content.values()
    }

    pub(super) fn len(&self) -> usize {
        self.by_content.len()
    }

    /// The writes that may still take effect, in one of the states at least.
    pub(super) fn carried(&self) -> impl Iterator<Item = &Carried<'h>> {
        self.iter().flat_map(|start| &start.carried)
    }
}

/// How many writes may have put a value, the load among them.
pub(super) type Writers<'h> = BTreeMap<(&'h Key, u64), usize>;

pub(super) fn writers(history: &History) -> Writers<'_> {
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

/// Which writes have come to light by a crash.
pub(super) struct Came<'a, 'h> {
    pub(super) writers: &'a Writers<'h>,
    /// The state that the crash left, if that is known.
    pub(super) kept: Option<Value>,
    /// The reads before the crash.
    pub(super) read: &'a ReadValues<'a>,
    /// Does the model keep what was read? What a crash lost may come again.
    pub(super) keeps_read: bool,
}

impl Came<'_, '_> {
    /// Has this write taken effect for certain, for good? Its version was recovered; or its value
    /// was, or was read and not lost, and no other write put that.
    pub(super) fn has(&self, operation: &Operation) -> bool {
        let Some((key, true, written)) = linearizability::single(operation) else { return false };
        let found = self.kept.filter(|found| written.may_be_version(found));
        if found.is_some_and(|found| found.version.is_some() && found.version == written.version) {
            return true;
        }
        written.digest.is_some_and(|digest| {
            self.writers.get(&(key, digest)) == Some(&1)
                && (found.is_some_and(|found| found.digest == Some(digest))
                    || self.read.get(&(key, digest)).is_some_and(|read| {
                        let versions = read.zip(self.kept.and_then(|kept| kept.version));
                        versions.map_or(self.keeps_read, |(read, kept)| read <= kept)
                    }))
        })
    }
}
