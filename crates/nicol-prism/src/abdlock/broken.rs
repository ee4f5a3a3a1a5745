//! ABDLOCK broken on purpose, for the checkers' negative tests. The steps ask [`Hooks`] about what
//! they decide, and know no fault by name.

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// A client takes any answer to its CAS for the lock.
    NoLocks,
    /// A GET only reads, without locks.
    GetsWithoutLocks,
    /// Phases wait for f replicas.
    SmallQuorum,
    /// Locks are released before the WRITEs.
    UnlocksFirst,
    /// A PUT does not exceed the timestamp that it has read.
    ReusesTimestamps,
    /// A client whose attempt to lock has failed keeps what it has got.
    KeepsLocks,
}

/// Questions of the steps. Every answer is the protocol's, except the one that a planted fault
/// spoils.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hooks(pub(super) Sabotage);

impl Hooks {
    fn is(self, fault: Sabotage) -> bool {
        self.0 == fault
    }

    /// The number of replicas that a phase waits for.
    pub(super) fn needed(self, majority: usize) -> usize {
        if self.is(Sabotage::SmallQuorum) { (majority - 1).max(1) } else { majority }
    }

    /// Whether an operation locks and writes. In the protocol every one does.
    pub(super) fn locks(self, is_put: bool) -> bool {
        is_put || !self.is(Sabotage::GetsWithoutLocks)
    }

    /// Whether a CAS that found this word has taken the lock.
    pub(super) fn acquired(self, found: Option<u64>) -> bool {
        found == Some(0) || self.is(Sabotage::NoLocks)
    }

    /// Whether a client releases locks that it has acquired in vain.
    pub(super) fn releases_in_vain(self) -> bool {
        !self.is(Sabotage::KeepsLocks)
    }

    /// Whether locks are released before the WRITEs.
    pub(super) fn unlocks_first(self) -> bool {
        self.is(Sabotage::UnlocksFirst)
    }

    /// The timestamp of a PUT that has read `found`, by an engine whose last one was `last`.
    pub(super) fn timestamp(self, found: u64, last: u64) -> u64 {
        if self.is(Sabotage::ReusesTimestamps) { found.max(1) } else { found.max(last) + 1 }
    }
}
