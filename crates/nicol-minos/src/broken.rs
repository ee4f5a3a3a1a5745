//! MINOS broken on purpose, for the checkers' negative tests. What spoils messages stands before
//! the server (`broken/server.rs`); what reads wrongly, before the client (`broken/front.rs`); what
//! spoils a recovery, before the log that it reads (`broken/medium.rs`). Of the rest the steps ask
//! [`Hooks`], and know no fault by name.

pub(super) mod choices;
pub(super) mod front;
pub(super) mod medium;
pub(super) mod server;

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// Reads do not wait for the read lock.
    ReadsThroughLocks,
    /// The coordinator validates a follower as soon as that acknowledges.
    ReleasesEarly,
    /// The coordinator takes one follower's ACK for that of another one, too.
    ForgetsFollower,
    /// A node applies an update over a newer one.
    AppliesObsolete,
    /// An obsolete write is acknowledged without waiting for what made it so.
    SkipsSpins,
    /// A write is acknowledged before it is durable, where the model promises that it is.
    AcksBeforePersist,
    /// A recovery reads no entry of the dFIFO.
    LosesQueue,
    /// A recovery applies its log in any order, and checks no update for obsoleteness.
    Resurrects,
    /// Nobody takes part in a replay of what a dead coordinator has left.
    DropsReplays,
    /// The dFIFO is lost when its NIC crashes alone.
    LosesQueueWithNic,
    /// The vFIFO is still there when its NIC has crashed.
    KeepsVolatileQueue,
    /// A host whose NIC has crashed goes on serving reads.
    ServesAlone,
    /// A replay has a timestamp of its own at the others, as a new write of the old value would.
    ReplaysAsNew,
}

/// Questions of the steps. Every answer is the protocol's, except the one that a planted fault
/// spoils.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hooks(pub(super) Sabotage);

impl Hooks {
    fn is(self, fault: Sabotage) -> bool {
        self.0 == fault
    }

    /// Whether an obsolete write waits for the write that made it so.
    pub(super) fn spins(self) -> bool {
        !self.is(Sabotage::SkipsSpins)
    }

    /// Whether a step goes on before the medium has what the step should make durable.
    pub(super) fn promises_early(self) -> bool {
        self.is(Sabotage::AcksBeforePersist)
    }

    /// Whether the vFIFO outlives its NIC.
    pub(super) fn keeps_volatile_queue(self) -> bool {
        self.is(Sabotage::KeepsVolatileQueue)
    }
}
