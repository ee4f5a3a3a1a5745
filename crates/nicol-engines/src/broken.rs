//! The engines broken on purpose, for the checkers' negative tests. Where it can show, a fault is
//! planted before the step: in what a transaction begins with, in its sets when it is going to
//! commit or abort, or in what a core begins with (`broken/choices.rs`). Elsewhere steps ask
//! [`Hooks`] about what they decide; none knows a fault by name. A worker keeps them: in a protocol
//! that is whole a question is one comparison with what the worker has at hand.

pub(super) mod choices;

use super::sets::Sets;

/// Ways to break a protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// What was read is not validated; in an engine with locks, reads take none.
    SkipsValidation,
    /// The same, and a read does not look either whether value and word are of one instant.
    TearsReads,
    /// Whether somebody else has locked what was read is not looked at; in an engine with locks,
    /// whether somebody holds the lock that a transaction wants.
    IgnoresLocks,
    /// Scans forget the versions of the leaves that they have read.
    ForgetsLeaves,
    /// Cores announce an epoch, and in an engine with several versions a horizon, that is yet to
    /// come, and so protect nothing.
    WrongEpoch,
    /// What is taken out of an index is freed at once.
    FreesEarly,
    /// Everybody who finds a lock waits, whatever its age.
    AlwaysWaits,
    /// Read timestamps are not moved on by those who rely on them.
    ForgetsReaders,
    /// Snapshots are taken whatever their client has seen.
    ForgetsSeen,
    /// What is locked for an aborted transaction stays locked.
    KeepsLocks,
    /// Transactions are answered before their epoch is durable.
    AcknowledgesEarly,
    /// Logs are said to be complete up to an epoch that has not ended.
    ClaimsEarly,
}

/// Spoils what the client of a snapshot has seen, before it begins.
#[inline]
pub(super) fn before_begin(Hooks(sabotage): Hooks, since: &mut Option<u64>) {
    if sabotage == Sabotage::ForgetsSeen {
        since.iter_mut().for_each(|since| *since = 0);
    }
}

/// Spoils the sets of a transaction before it commits: what they lack it does not validate.
#[inline]
pub(super) fn before_commit(Hooks(sabotage): Hooks, sets: &mut Sets) {
    match sabotage {
        Sabotage::SkipsValidation | Sabotage::TearsReads => sets.reads.clear(),
        Sabotage::ForgetsLeaves => sets.forget_leaves(),
        _ => {}
    }
}

/// Spoils the sets of a transaction before it lets go of what it holds: what they lack stays.
#[inline]
pub(super) fn before_abort(Hooks(sabotage): Hooks, sets: &mut Sets) {
    if sabotage == Sabotage::KeepsLocks {
        sets.locks.clear();
        sets.writes.clear();
    }
}

/// Questions of the steps. Every answer is the protocol's, but for the one that a fault spoils.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hooks(pub(super) Sabotage);

impl Hooks {
    fn is(self, fault: Sabotage) -> bool {
        self.0 == fault
    }

    /// Of a protocol that is whole.
    pub(super) const NONE: Self = Self(Sabotage::None);

    /// Does an optimistic read look at the record's word again when it has the value?
    #[inline]
    pub(super) fn looks_again(self) -> bool {
        !self.is(Sabotage::TearsReads)
    }

    /// Does a read take a lock, in an engine with locks?
    #[inline]
    pub(super) fn locks_reads(self) -> bool {
        !self.is(Sabotage::SkipsValidation)
    }

    /// Does a transaction heed that a record is `locked` by somebody else, or a version pending?
    #[inline]
    pub(super) fn heeds(self, locked: bool) -> bool {
        locked && !self.is(Sabotage::IgnoresLocks)
    }

    /// Does a core announce the epoch that it is in?
    #[inline]
    pub(super) fn announces_epochs(self) -> bool {
        !self.is(Sabotage::WrongEpoch)
    }

    /// True if records that leave an index are freed at once.
    #[inline]
    pub(super) fn frees_at_once(self) -> bool {
        self.is(Sabotage::FreesEarly)
    }

    /// Up to which timestamp nobody can see what was overwritten, by what cores have announced.
    #[inline]
    pub(super) fn horizon(self, announced: u64) -> u64 {
        let protects = !self.is(Sabotage::FreesEarly) && !self.is(Sabotage::WrongEpoch);
        if protects { announced } else { u64::MAX }
    }

    /// Does a transaction move the read timestamps of what it relies on?
    #[inline]
    pub(super) fn moves_read_timestamps(self) -> bool {
        !self.is(Sabotage::ForgetsReaders)
    }

    /// Up to which epoch a core says that its log is complete, which it is up to `complete`.
    /// `now`: the present one.
    #[inline]
    pub(super) fn claims(self, now: u64, complete: u64) -> u64 {
        if self.is(Sabotage::ClaimsEarly) { now } else { complete }
    }
}
