//! PRISM-KV broken on purpose, for the checkers' negative tests. The steps ask [`Hooks`] about what
//! they decide, and know no fault by name.

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    /// None.
    None,
    /// A GET takes what its first slot holds for its key's.
    TrustsSlots,
    /// A search ends at the first slot.
    ProbesOnce,
    /// A PUT whose CAS has failed is acknowledged.
    IgnoresFailedSwaps,
    /// A DELETE empties its slot, which others are found behind.
    EmptiesSlots,
    /// Replaced buffers are not reported.
    KeepsOldBuffers,
    /// What a failed PUT has allocated is not reported. AMB-12
    KeepsNewBuffers,
    /// The CAS runs whether or not there was a buffer.
    InstallsUnconditionally,
    /// A client reports a buffer before it replaces it, and the server believes it.
    PostsEarly,
    /// A server does not look for what clients have left that have died.
    ForgetsTheDead,
}

/// What the steps ask. Every answer is the protocol's, but for the one that a planted fault spoils.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hooks(pub(super) Sabotage);

impl Hooks {
    fn is(self, fault: Sabotage) -> bool {
        self.0 == fault
    }

    /// Is the item that a slot points to taken for its key's? `matches`: it has the key.
    pub(super) fn is_found(self, matches: bool) -> bool {
        matches || self.is(Sabotage::TrustsSlots)
    }

    /// How many slots a search probes.
    pub(super) fn probes(self, most: usize) -> usize {
        if self.is(Sabotage::ProbesOnce) { 1 } else { most }
    }

    /// Does a DELETE empty its slot, instead of leaving an item without a value?
    pub(super) fn empties_slots(self) -> bool {
        self.is(Sabotage::EmptiesSlots)
    }

    /// Is the CAS skipped if there was no buffer?
    pub(super) fn swaps_conditionally(self) -> bool {
        !self.is(Sabotage::InstallsUnconditionally)
    }

    /// Is a PUT whose CAS has failed acknowledged?
    pub(super) fn acknowledges_failed_swaps(self) -> bool {
        self.is(Sabotage::IgnoresFailedSwaps)
    }

    /// Does a client report the buffer that it is about to replace?
    pub(super) fn reports_early(self) -> bool {
        self.is(Sabotage::PostsEarly)
    }

    /// Does the server post reported buffers without looking at the pointer?
    pub(super) fn believes_reports(self) -> bool {
        self.is(Sabotage::PostsEarly)
    }

    /// Does a client report the buffer that it has replaced?
    pub(super) fn reports_replaced(self) -> bool {
        !self.is(Sabotage::KeepsOldBuffers)
    }

    /// Does a client report what a failed PUT has allocated? AMB-12
    pub(super) fn reports_allocated(self) -> bool {
        !self.is(Sabotage::KeepsNewBuffers)
    }

    /// Does a server look for what dead clients have left?
    pub(super) fn looks_after_the_dead(self) -> bool {
        !self.is(Sabotage::ForgetsTheDead)
    }
}
