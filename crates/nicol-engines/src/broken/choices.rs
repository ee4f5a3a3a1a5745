//! What a core begins with that is broken on purpose.

use super::Sabotage;
use crate::config::{EngineConfig, Waiting};

/// The reaction to a locked record.
pub(crate) fn waiting(config: &EngineConfig) -> Waiting {
    match config.sabotage {
        Sabotage::AlwaysWaits => Waiting::Always,
        _ => config.waiting,
    }
}

/// The epoch up to which a core takes its transactions for durable before it has looked.
pub(crate) fn durable_from_the_start(config: &EngineConfig) -> u64 {
    if config.sabotage == Sabotage::AcknowledgesEarly { u64::MAX } else { 0 }
}
