//! What stands before a log.

use std::rc::Rc;

use nicol_core::fabric::Fabric;
use nicol_core::ids::{Key, Version};
use nicol_core::key_value::Failure;

use super::Sabotage;
use crate::linefs::layout::Record;
use crate::linefs::log::Log;

/// Appends a write to a log: by a planted fault it is readable, or acknowledged, before it is
/// replicated.
pub(in crate::linefs) async fn append<F: Fabric>(
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
