//! The choices of a system that is broken on purpose.

use crate::Sabotage;
use crate::xenic::config::XenicConfig;

/// The choices that are in force: a protocol that is broken on purpose is broken in the ordinary
/// steps, so that transactions must take them.
pub(in crate::xenic) fn in_force(config: XenicConfig) -> XenicConfig {
    let may = config.sabotage == Sabotage::None;
    let (multi_hop, local_paths) = (config.multi_hop && may, config.local_paths && may);
    XenicConfig { multi_hop, local_paths, ..config }
}
