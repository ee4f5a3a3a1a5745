//! File replication broken on purpose, for the checkers' negative tests. A service before a
//! backup's own spoils the chunks that come (`server.rs`); here is what stands before a log and
//! before a node that learns a view. Of the rest the steps ask [`Hooks`], and know no fault by name.

pub(super) mod server;

use std::rc::Rc;

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, Version};
use nicol_core::key_value::Failure;
use nicol_core::view::View;

use super::config::LineFsConfig;
use super::layout::Record;
use super::log::Log;
use super::standing::State;

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

/// Lets a node learn a view: by a planted fault it then takes files for there that are not.
pub(super) fn learn(state: &mut State, view: &View, config: &LineFsConfig) {
    state.learn(view);
    match config.sabotage {
        Sabotage::RejoinsEmpty => state.pretend_aligned(true),
        Sabotage::SkipsAlignment => state.pretend_aligned(false),
        _ => {}
    }
}

/// Appends a write to a log: by a planted fault it is readable, or acknowledged, before it is
/// replicated.
pub(super) async fn append<F: Fabric>(
    log: &Rc<Log<F>>,
    key: Key,
    value: Option<&[u8]>,
) -> Result<Version, Failure> {
    let node = &log.member.node;
    let sabotage = node.config().sabotage;
    if !matches!(sabotage, Sabotage::AcknowledgesEarly | Sabotage::PublishesEarly) {
        return log.append(key, value).await;
    }
    let accepted = log.accept(key, value).await?;
    let Version(version) = accepted.version();
    node.state().publish(&[Record { key, version, value }]);
    match sabotage {
        Sabotage::AcknowledgesEarly => Ok(accepted.version()),
        _ => accepted.held().await,
    }
}
