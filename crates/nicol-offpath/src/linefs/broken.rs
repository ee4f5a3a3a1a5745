//! File replication broken on purpose, for the checkers' negative tests. A service before a
//! backup's own spoils the chunks that come (`server.rs`); faults stand before a log (`log.rs`) and
//! before a node that learns a view (`views.rs`). Of the rest the steps ask [`Hooks`], and know no
//! fault by name.

pub(super) mod log;
pub(super) mod server;
pub(super) mod views;

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
    /// Some chunks arrive with a byte that is not theirs: backups refuse them, and they are written
    /// again. Harmless, as long as a backup compares what it finds with the CRC.
    CorruptsChunks,
    /// The same, and the CRC is that of the wrong bytes.
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
    /// Whether publishing overwrites newer blocks.
    pub(super) fn overwrites_newer(self) -> bool {
        self.0 == Sabotage::PublishesOld
    }
}
