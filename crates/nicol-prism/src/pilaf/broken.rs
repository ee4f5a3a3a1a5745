//! Pilaf broken on purpose, for the checkers' negative tests: a client before the true one, which
//! does its GETs wrongly (`front.rs`), and a service before the server, which spoils PUTs and
//! DELETEs (`server.rs`). The steps know nothing of it.

pub(super) mod front;
pub(super) mod server;

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// A GET takes what its first entry points to for its key's.
    TrustsEntries,
    /// A search ends at the first entry.
    ProbesOnce,
    /// A PUT is acknowledged before it is made.
    AcknowledgesEarly,
    /// Some PUTs are acknowledged and not made.
    LosesPuts,
    /// A PUT takes an extent that nobody gets back.
    KeepsExtents,
    /// A DELETE makes its entry look unused, so that searches end there.
    EmptiesEntries,
}
