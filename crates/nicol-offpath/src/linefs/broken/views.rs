//! What stands before a node that learns a view.

use nicol_core::view::View;

use super::Sabotage;
use crate::linefs::config::LineFsConfig;
use crate::linefs::standing::State;

/// Lets a node learn a view: by a planted fault it then takes files for there that are not.
pub(in crate::linefs) fn learn(state: &mut State, view: &View, config: &LineFsConfig) {
    state.learn(view);
    match config.sabotage {
        Sabotage::RejoinsEmpty => state.pretend_aligned(true),
        Sabotage::SkipsAlignment => state.pretend_aligned(false),
        _ => {}
    }
}
