//! What a system declares that is broken on purpose.

use nicol_core::view::Halves;

use super::Sabotage;
use crate::config::MinosConfig;

/// The sides of a node that serve without the other.
pub(crate) const fn halves(config: &MinosConfig) -> Halves {
    match config.sabotage {
        Sabotage::ServesAlone => Halves::Apart,
        _ => Halves::Paired,
    }
}
