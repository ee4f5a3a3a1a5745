//! PRISM-RS broken on purpose, for the checkers' negative tests: a client before the true one,
//! which does its operations wrongly (`front.rs`), services before the server, which spoil what it
//! is told and tells (`server.rs`), and how a replica comes back (`daemon.rs`, `rejoin.rs`). The
//! steps know nothing of it.

pub(super) mod daemon;
pub(super) mod front;
pub(super) mod rejoin;
pub(super) mod server;

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// A GET does not write back what it has read.
    SkipsWriteBack,
    /// Phases wait for f replicas.
    SmallQuorum,
    /// A client takes the tags away from replicas before it writes: they take what they are sent,
    /// however old.
    SwapsAlways,
    /// A PUT does not exceed the timestamp that it has read.
    ReusesTimestamps,
    /// Reports of the buffers that clients have replaced are lost.
    KeepsOldBuffers,
    /// A replica that has come back serves before it has copied anything.
    RejoinsEmpty,
    /// A replica does not look for what clients have left that have died.
    ForgetsTheDead,
    /// Replicas do not tell that others have come back: a client counts what those have
    /// acknowledged in a life that is over.
    CountsTheDead,
    /// A replica lets another one rejoin without taking the key back under which clients write.
    SkipsFence,
}
