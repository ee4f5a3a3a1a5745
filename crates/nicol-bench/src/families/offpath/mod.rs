//! Off-path SmartNICs (OSDI '23): the paths of a card, alone and together, and the systems of the
//! case studies.

mod drtm_kv;
mod linefs;

pub use linefs::ALTERNATIVES;

use crate::system::System;

/// The systems of the family.
pub(crate) static SYSTEMS: &[System] = &{
    let [rnic, a1, a2, a3, a4, a5, both] = drtm_kv::SYSTEMS;
    let [one, two, three, two_and_three] = linefs::SYSTEMS;
    [rnic, a1, a2, a3, a4, a5, both, one, two, three, two_and_three]
};
