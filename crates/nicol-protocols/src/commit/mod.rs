//! The `commit` family: distributed, replicated, serializable transactions.

pub mod hybrid;
mod log;
mod messages;
pub mod xenic;

/// Ways to break the protocol on purpose, for the checkers' negative tests only: no command and no
/// configuration file reaches them.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// The protocol as it should be.
    None,
    /// VALIDATE is skipped.
    NoValidate,
    /// VALIDATE compares versions and ignores locks.
    ValidateIgnoresLocks,
    /// EXECUTE takes no locks.
    NoLocks,
    /// COMMIT unlocks before it installs.
    UnlockFirst,
    /// Locks are released when execution is done.
    EarlyUnlock,
    /// An aborted transaction installs its writes all the same.
    AbortInstalls,
    /// What was read of ordered tables is taken for current.
    IgnoresGuards,
}
