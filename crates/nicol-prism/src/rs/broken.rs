//! PRISM-RS broken on purpose, for the checkers' negative tests. Services before the server spoil
//! what it is told. Of the rest the steps ask [`Hooks`], and know no fault by name.

pub(super) mod daemon;
pub(super) mod rejoin;
pub(super) mod server;

use nicol_core::memory::Compare;

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// A GET does not write back what it has read.
    SkipsWriteBack,
    /// Phases wait for f replicas.
    SmallQuorum,
    /// Replicas take what they are sent, however old.
    SwapsAlways,
    /// A PUT does not exceed the timestamp that it has read.
    ReusesTimestamps,
    /// Reports of the buffers that clients have replaced are lost.
    KeepsOldBuffers,
    /// A replica that has come back serves before it has copied anything.
    RejoinsEmpty,
    /// A replica does not look for what clients have left that have died.
    ForgetsTheDead,
    /// A client counts what a replica has acknowledged in a life that is over.
    CountsTheDead,
    /// A replica lets another one rejoin without taking the key back under which clients write.
    SkipsFence,
}

/// Questions of the steps. Every answer is the protocol's, except the one that a planted fault
/// spoils.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hooks(pub(super) Sabotage);

impl Hooks {
    fn is(self, fault: Sabotage) -> bool {
        self.0 == fault
    }

    /// Whether a GET writes back what it has read. `needed`: not all of its quorum is known to have
    /// it.
    pub(super) fn writes_back(self, needed: bool) -> bool {
        needed && !self.is(Sabotage::SkipsWriteBack)
    }

    /// The timestamp of a PUT that has read `found`, by an engine whose last one was `last`.
    pub(super) fn timestamp(self, found: u64, last: u64) -> u64 {
        if self.is(Sabotage::ReusesTimestamps) { found.max(1) } else { found.max(last) + 1 }
    }

    /// The number of replicas that a phase waits for.
    pub(super) fn needed(self, majority: usize) -> usize {
        if self.is(Sabotage::SmallQuorum) { (majority - 1).max(1) } else { majority }
    }

    /// The comparison of the CAS that writes a block, and the bits of the tag that it compares:
    /// only a later tag is written.
    pub(super) fn swap_if(self) -> (Compare, u64) {
        if self.is(Sabotage::SwapsAlways) {
            // Nothing is compared, and nothing equals nothing.
            (Compare::Equal, 0)
        } else {
            (Compare::Greater, u64::MAX)
        }
    }

    /// Whether a replica that comes back copies its blocks before it serves.
    pub(super) fn copies(self) -> bool {
        !self.is(Sabotage::RejoinsEmpty)
    }

    /// Whether an acknowledgement of a replica is void. `is_over`: the life that sent it is known
    /// to be over.
    pub(super) fn voids(self, is_over: bool) -> bool {
        is_over && !self.is(Sabotage::CountsTheDead)
    }
}
