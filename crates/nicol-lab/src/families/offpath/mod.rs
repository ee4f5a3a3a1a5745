//! Off-path SmartNICs (OSDI '23): the paths of a card, alone and together, and the systems of the case
//! studies.

mod drtm_kv;
pub(crate) mod experiments;

use crate::system::System;

/// The systems of the family.
pub(crate) static SYSTEMS: &[System] = &drtm_kv::SYSTEMS;
