//! What a recovery that is broken on purpose finds on its medium.

use nicol_core::engine::Revival;

use super::Sabotage;
use crate::log::{Logged, QUEUE_LABEL};
use crate::node::Node;
use crate::recovery;

/// Applies what the medium of a node has kept, as far as a planted fault finds it.
pub(crate) fn apply(node: &Node, revival: &Revival<'_>) {
    let sabotage = node.config().sabotage;
    let finds_queue = match sabotage {
        Sabotage::LosesQueue => false,
        Sabotage::LosesQueueWithNic => !node.keeps_memory(),
        _ => true,
    };
    let found = revival.medium.iter().filter(|write| finds_queue || write.label & QUEUE_LABEL == 0);
    if sabotage != Sabotage::Resurrects {
        return recovery::apply_medium(node, found);
    }
    for write in found.rev().filter(|write| write.intact) {
        let Ok(Logged::Update { key, ts, value }) = Logged::parse(&write.bytes) else { continue };
        node.store().change(key, |record| {
            record.update(ts, value.map(Into::into));
            record.durable_ts = record.durable_ts.max(ts);
        });
    }
}
