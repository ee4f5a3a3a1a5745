//! Off-path SmartNICs (OSDI '23): the paths of a card, alone and together.

pub(crate) mod experiments;
