//! MINOS broken on purpose, for the checkers' negative tests. The steps ask [`Hooks`] about what
//! they decide, and know no fault by name.

mod steps;

use nicol_core::ids::NodeId;
use nicol_core::view::Halves;

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
    None,
    /// Reads do not wait for the read lock.
    ReadsThroughLocks,
    /// A follower releases the read lock when it acknowledges, not when it is told.
    ReleasesEarly,
    /// The coordinator does not wait for one of its followers.
    ForgetsFollower,
    /// A node applies an update over a newer one.
    AppliesObsolete,
    /// An obsolete write is acknowledged without waiting for what made it so.
    SkipsSpins,
    /// What should be durable is acknowledged before it is.
    AcksBeforePersist,
    /// A recovery reads no entry of the dFIFO.
    LosesQueue,
    /// A recovery applies updates in any order, and checks none for obsoleteness.
    Resurrects,
    /// Nobody replays what a dead coordinator has left.
    DropsReplays,
    /// The dFIFO is lost when its NIC crashes alone.
    LosesQueueWithNic,
    /// The vFIFO is still there when its NIC has crashed.
    KeepsVolatileQueue,
    /// A host whose NIC has crashed goes on serving reads.
    ServesAlone,
    /// A replay takes a timestamp of its own, as a new write of the old value would.
    ReplaysAsNew,
}

/// What the steps ask. Every answer is the protocol's, but for the one that a planted fault spoils.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hooks(pub(super) Sabotage);

impl Hooks {
    fn is(self, fault: Sabotage) -> bool {
        self.0 == fault
    }

    /// May a client read a record? `free`: nobody has its read lock.
    pub(super) fn may_read(self, free: bool) -> bool {
        free || self.is(Sabotage::ReadsThroughLocks)
    }

    /// Does a host serve reads without its NIC?
    pub(super) fn reads_alone(self) -> bool {
        self.is(Sabotage::ServesAlone)
    }

    /// Does either half of a node serve without the other?
    pub(super) fn halves(self) -> Halves {
        if self.reads_alone() { Halves::Apart } else { Halves::Paired }
    }

    /// Of the followers that an INV goes to, those whose ACKs are waited for.
    pub(super) fn awaited(self, followers: &[NodeId]) -> &[NodeId] {
        let forgotten = usize::from(self.is(Sabotage::ForgetsFollower));
        &followers[..followers.len().saturating_sub(forgotten)]
    }

    /// Is an update left out? `obsolete`: a newer one is there.
    pub(super) fn is_obsolete(self, obsolete: bool) -> bool {
        obsolete && !self.is(Sabotage::AppliesObsolete)
    }

    /// Does an obsolete write wait for what made it so?
    pub(super) fn spins(self) -> bool {
        !self.is(Sabotage::SkipsSpins)
    }

    /// Does a follower release the read lock as soon as it acknowledges?
    pub(super) fn releases_early(self) -> bool {
        self.is(Sabotage::ReleasesEarly)
    }

    /// Does a step go on before the medium has what it should make durable?
    pub(super) fn promises_early(self) -> bool {
        self.is(Sabotage::AcksBeforePersist)
    }

    /// Does a recovery find the dFIFO? `memory_kept`: the host has lived on, without its NIC.
    pub(super) fn finds_queue(self, memory_kept: bool) -> bool {
        let lost = self.is(Sabotage::LosesQueueWithNic) && memory_kept;
        !lost && !self.is(Sabotage::LosesQueue)
    }

    /// Does a recovery apply an update? `newer`: it is newer than what is there.
    pub(super) fn recovers(self, newer: bool) -> bool {
        newer || self.is(Sabotage::Resurrects)
    }

    /// Does the vFIFO outlive its NIC?
    pub(super) fn keeps_volatile_queue(self) -> bool {
        self.is(Sabotage::KeepsVolatileQueue)
    }

    /// Does anybody replay what a dead coordinator has left?
    pub(super) fn replays(self) -> bool {
        !self.is(Sabotage::DropsReplays)
    }

    /// Does a replay take a timestamp of its own?
    pub(super) fn replays_as_new(self) -> bool {
        self.is(Sabotage::ReplaysAsNew)
    }
}
