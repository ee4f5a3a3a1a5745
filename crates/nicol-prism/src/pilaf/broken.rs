//! Pilaf broken on purpose, for the checkers' negative tests. The steps ask [`Hooks`] about what
//! they decide, and know no fault by name; what a server is told is spoiled before it comes to the
//! true one (`broken/server.rs`).

pub(super) mod server;

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// A GET takes what an entry points to for its key's.
    TrustsEntries,
    /// A search ends at the first entry.
    ProbesOnce,
    /// A PUT is acknowledged before it is made.
    AcknowledgesEarly,
    /// Some PUTs are acknowledged and not made.
    LosesPuts,
    /// Replaced extents are not freed.
    KeepsExtents,
    /// A DELETE makes its entry look unused, so that searches end there.
    EmptiesEntries,
}

/// Questions of the steps. Every answer is the protocol's, except the one that a planted fault
/// spoils.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hooks(pub(super) Sabotage);

impl Hooks {
    fn is(self, fault: Sabotage) -> bool {
        self.0 == fault
    }

    /// Whether the item of an entry is taken for its key's. `matches`: it has the key.
    pub(super) fn is_found(self, matches: bool) -> bool {
        matches || self.is(Sabotage::TrustsEntries)
    }

    /// Whether a search goes on behind the first entry.
    pub(super) fn probes_on(self) -> bool {
        !self.is(Sabotage::ProbesOnce)
    }

    /// Whether a replaced extent is freed.
    pub(super) fn frees_replaced(self) -> bool {
        !self.is(Sabotage::KeepsExtents)
    }

    /// Whether a DELETE makes its entry look unused.
    pub(super) fn empties_entries(self) -> bool {
        self.is(Sabotage::EmptiesEntries)
    }
}
