//! PRISM-TX broken on purpose, for the checkers' negative tests: a coordinator before the true one,
//! which spoils what a step hands to the next (`front.rs`), a service before the server, which
//! spoils what it is told (`server.rs`), and the plan that a client begins with (`choices.rs`). Of
//! the rest the steps ask [`Hooks`], and know no fault by name.

pub(super) mod choices;
pub(super) mod front;
pub(super) mod server;

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// Reads are validated against what is there when they are validated, not against what was
    /// read. [PRISM21 8.2]
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
    /// The outcome is told, and the writes are never installed.
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
    /// Whether a server that ends a dead client's transaction asks the others.
    pub(super) fn asks_others(self) -> bool {
        self.0 != Sabotage::RecoversAlone
    }
}
