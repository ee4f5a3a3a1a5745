//! ABDLOCK broken on purpose, for the checkers' negative tests: a client before the true one, which
//! does its operations wrongly (`front.rs`). The steps know nothing of it.

pub(super) mod front;

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// Before it takes a lock, a client takes it away from whoever has it.
    NoLocks,
    /// A GET only reads, without locks.
    GetsWithoutLocks,
    /// Phases wait for f replicas.
    SmallQuorum,
    /// A client releases its locks before its WRITEs are done.
    UnlocksFirst,
    /// A PUT does not exceed the timestamp that it has read.
    ReusesTimestamps,
    /// A client that gives an attempt up keeps the locks that it has got.
    KeepsLocks,
}
