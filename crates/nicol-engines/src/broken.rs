//! The engines broken on purpose, for the checkers' negative tests. The steps ask [`Hooks`] about
//! what they decide, and know no fault by name. A worker keeps them: in a protocol that is whole a
//! question is one comparison with what the worker has at hand.

/// Ways to break a protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
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

/// What the steps ask. Every answer is the protocol's, but for the one that a planted fault spoils.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hooks(pub(super) Sabotage);

impl Hooks {
    fn is(self, fault: Sabotage) -> bool {
        self.0 == fault
    }

    /// Of a protocol that is whole.
    pub(super) const NONE: Self = Self(Sabotage::None);

    /// Is what was read validated?
    #[inline]
    pub(super) fn validates(self) -> bool {
        !self.is(Sabotage::SkipsValidation) && !self.is(Sabotage::TearsReads)
    }

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

    /// Does a scan note the versions of the leaves that it has read?
    #[inline]
    pub(super) fn notes_leaves(self) -> bool {
        !self.is(Sabotage::ForgetsLeaves)
    }

    /// Does a core announce the epoch that it is in?
    #[inline]
    pub(super) fn announces_epochs(self) -> bool {
        !self.is(Sabotage::WrongEpoch)
    }

    /// Is what is taken out of an index freed at once?
    #[inline]
    pub(super) fn frees_at_once(self) -> bool {
        self.is(Sabotage::FreesEarly)
    }

    /// Before which epoch everything is over, if some core is still in `oldest`.
    #[inline]
    pub(super) fn over_before(self, oldest: u64) -> u64 {
        if self.is(Sabotage::FreesEarly) { u64::MAX } else { oldest }
    }

    /// Up to which timestamp nobody can see what was overwritten, by what cores have announced.
    #[inline]
    pub(super) fn horizon(self, announced: u64) -> u64 {
        let protects = !self.is(Sabotage::FreesEarly) && !self.is(Sabotage::WrongEpoch);
        if protects { announced } else { u64::MAX }
    }

    /// Does a transaction wait for a lock? `may`: its age lets it.
    #[inline]
    pub(super) fn waits(self, may: bool) -> bool {
        may || self.is(Sabotage::AlwaysWaits)
    }

    /// Does a transaction move the read timestamps of what it relies on?
    #[inline]
    pub(super) fn moves_read_timestamps(self) -> bool {
        !self.is(Sabotage::ForgetsReaders)
    }

    /// The earliest time of a snapshot whose client has seen what was written at `since`.
    #[inline]
    pub(super) fn heeds_seen(self, since: u64) -> u64 {
        if self.is(Sabotage::ForgetsSeen) { 0 } else { since }
    }

    /// Does an aborted transaction let go of what it has locked?
    #[inline]
    pub(super) fn unlocks_aborted(self) -> bool {
        !self.is(Sabotage::KeepsLocks)
    }

    /// Is a transaction answered only when its epoch is durable?
    #[inline]
    pub(super) fn awaits_durability(self) -> bool {
        !self.is(Sabotage::AcknowledgesEarly)
    }

    /// Up to which epoch a core says that its log is complete, which it is up to `complete`.
    /// `now`: the present one.
    #[inline]
    pub(super) fn claims(self, now: u64, complete: u64) -> u64 {
        if self.is(Sabotage::ClaimsEarly) { now } else { complete }
    }
}
