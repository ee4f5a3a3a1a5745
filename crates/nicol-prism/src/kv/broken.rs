//! PRISM-KV broken on purpose, for the checkers' negative tests: a client before the true one,
//! which does its operations wrongly (`front.rs`), services before the server, which spoil what is
//! reported to it (`server.rs`), and its daemon (`daemon.rs`). The steps know nothing of it.

pub(super) mod daemon;
pub(super) mod front;
pub(super) mod server;

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// A GET takes what its first slot holds for its key's.
    TrustsSlots,
    /// A search ends at the first slot.
    ProbesOnce,
    /// A PUT whose CAS has failed is acknowledged.
    IgnoresFailedSwaps,
    /// A DELETE empties its slot, which others are found behind.
    EmptiesSlots,
    /// Reports of replaced buffers are lost.
    KeepsOldBuffers,
    /// Reports of buffers that the reporter has filled itself are lost: what a failed PUT has
    /// allocated is among them. AMB-12
    KeepsNewBuffers,
    /// The CAS of a PUT that has found no buffer runs all the same, and empties the slot.
    InstallsUnconditionally,
    /// A server posts the buffer that has replaced a reported one, too.
    PostsEarly,
    /// A server does not look for what clients have left that have died.
    ForgetsTheDead,
}
