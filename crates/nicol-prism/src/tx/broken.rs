//! PRISM-TX broken on purpose, for the checkers' negative tests. The steps ask [`Hooks`] about what
//! they decide, and know no fault by name.

use nicol_core::memory::Compare;
use nicol_core::txn::Abort;

use crate::tag::Tag;

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// A read validation that has failed is taken for one that was not needed. [PRISM21 8.2]
    TrustsFailedReads,
    /// A transaction whose write check has failed commits.
    CommitsUnchecked,
    /// Two transactions of an engine may have one timestamp.
    ReusesTimestamps,
    /// An abort leaves C as it is.
    NeverBumps,
    /// Replaced buffers are not reported.
    KeepsOldBuffers,
    /// A server ends a dead client's transaction by what it holds of it itself: it commits unless
    /// one of these writes has failed.
    RecoversAlone,
    /// The outcome is told, and the writes are given up, before they are installed.
    ForgetsInstalls,
    /// A write is installed over a later one.
    InstallsAlways,
    /// Writes are checked and staged before it is known that the reads of other servers are valid:
    /// servers commit a dead client's transaction that was about to abort. AMB-53
    LeavesReadsUnguarded,
}

/// Questions of the steps. Every answer is the protocol's, except the one that a planted fault
/// spoils.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hooks(pub(super) Sabotage);

impl Hooks {
    fn is(self, fault: Sabotage) -> bool {
        self.0 == fault
    }

    /// Whether a read is still current that a validation found to be `current`.
    pub(super) fn is_current(self, current: bool) -> bool {
        current || self.is(Sabotage::TrustsFailedReads)
    }

    /// Why a transaction whose write checks ended so aborts, if it does.
    pub(super) fn refusal(self, refused: Option<Abort>) -> Option<Abort> {
        refused.filter(|_| !self.is(Sabotage::CommitsUnchecked))
    }

    /// Whether reads that no write of their server follows are validated before any write is
    /// staged.
    pub(super) fn guards_reads(self) -> bool {
        !self.is(Sabotage::LeavesReadsUnguarded)
    }

    /// The time of a new timestamp, at `now`, by an engine whose last one was at `last`.
    pub(super) fn time(self, now: u64, last: u64) -> u64 {
        if self.is(Sabotage::ReusesTimestamps) { now | 0xff } else { now.max(last + 1) }
    }

    /// Whether the writes of a transaction are installed before its outcome is told.
    pub(super) fn installs(self) -> bool {
        !self.is(Sabotage::ForgetsInstalls)
    }

    /// The comparison of the CAS that installs a write: only if TS > C.
    pub(super) fn install_if(self) -> (Compare, [u64; 2]) {
        if self.is(Sabotage::InstallsAlways) {
            // Nothing is compared, and nothing equals nothing.
            (Compare::Equal, [0, 0])
        } else {
            (Compare::Greater, [u64::MAX, 0])
        }
    }

    /// The write after which an aborted one raises C, if it does.
    pub(super) fn bump(self, after: Option<Tag>) -> Option<Tag> {
        after.filter(|_| !self.is(Sabotage::NeverBumps))
    }

    /// Whether a client reports the buffer that it has replaced.
    pub(super) fn reports_replaced(self) -> bool {
        !self.is(Sabotage::KeepsOldBuffers)
    }

    /// Whether a server that ends a dead client's transaction asks the others.
    pub(super) fn asks_others(self) -> bool {
        !self.is(Sabotage::RecoversAlone)
    }
}
