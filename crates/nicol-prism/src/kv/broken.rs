//! PRISM-KV broken on purpose, for the checkers' negative tests: a client before the true one,
//! which does its operations wrongly (`front.rs`), and services before the server, which spoil what
//! is reported to it (`server.rs`). Of the rest the steps ask [`Hooks`], and know no fault by name.

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
    /// The CAS runs whether or not there was a buffer.
    InstallsUnconditionally,
    /// A server posts the buffer that has replaced a reported one, too.
    PostsEarly,
    /// A server does not look for what clients have left that have died.
    ForgetsTheDead,
}

/// Questions of the steps. Every answer is the protocol's, except the one that a planted fault
/// spoils.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hooks(pub(super) Sabotage);

impl Hooks {
    fn is(self, fault: Sabotage) -> bool {
        self.0 == fault
    }

    /// Whether the CAS runs only if a buffer was allocated.
    pub(super) fn swaps_conditionally(self) -> bool {
        !self.is(Sabotage::InstallsUnconditionally)
    }
}
