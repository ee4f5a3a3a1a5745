//! File replication broken on purpose, for the checkers' negative tests. The steps ask [`Hooks`]
//! about what they decide, and know no fault by name.

/// Ways to break the protocol on purpose, so that a sweep can show that its checkers see it.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sabotage {
    None,
    /// A write is acknowledged when it is in the log.
    AcknowledgesEarly,
    /// A write can be read before it is replicated.
    PublishesEarly,
    /// A backup acknowledges without passing the chunk on.
    BreaksChain,
    /// A chunk that is published overwrites newer blocks.
    PublishesOld,
    /// Some chunks are written with a byte that is not theirs: backups refuse them, and they are
    /// written again. Harmless, as long as a backup compares what it finds with the CRC.
    CorruptsChunks,
    /// The same, and backups do not compare.
    TrustsChunks,
    /// A backup says that it has the files of a promoted head, and has not compared them.
    SkipsAlignment,
    /// A node that comes back counts as complete without copying the files.
    RejoinsEmpty,
}

/// Questions of the steps. Every answer is the protocol's, except the one that a planted fault
/// spoils.
#[derive(Clone, Copy, Debug)]
pub(super) struct Hooks(pub(super) Sabotage);

impl Hooks {
    fn is(self, fault: Sabotage) -> bool {
        self.0 == fault
    }

    /// Whether a write is acknowledged as soon as it is in the log.
    pub(super) fn acknowledges_early(self) -> bool {
        self.is(Sabotage::AcknowledgesEarly)
    }

    /// Whether a write can be read before it is replicated.
    pub(super) fn publishes_early(self) -> bool {
        self.is(Sabotage::AcknowledgesEarly) || self.is(Sabotage::PublishesEarly)
    }

    /// Whether publishing overwrites newer blocks.
    pub(super) fn overwrites_newer(self) -> bool {
        self.is(Sabotage::PublishesOld)
    }

    /// Whether a backup takes a chunk. `fits`: the CRC of the chunk is right.
    pub(super) fn accepts(self, fits: bool) -> bool {
        fits || self.is(Sabotage::TrustsChunks)
    }

    /// Whether a backup passes a chunk on along the chain.
    pub(super) fn passes_on(self) -> bool {
        !self.is(Sabotage::BreaksChain)
    }

    /// Whether some chunks are written with a wrong byte.
    pub(super) fn corrupts_chunks(self) -> bool {
        self.is(Sabotage::CorruptsChunks) || self.is(Sabotage::TrustsChunks)
    }

    /// Whether a node that comes back counts as one that has copied the files.
    pub(super) fn is_complete(self, complete: bool) -> bool {
        complete || self.is(Sabotage::RejoinsEmpty)
    }

    /// Whether a node counts as aligned with a new head before it has compared.
    pub(super) fn aligns_at_once(self, complete: bool) -> bool {
        self.is(Sabotage::RejoinsEmpty) || complete && self.is(Sabotage::SkipsAlignment)
    }
}
