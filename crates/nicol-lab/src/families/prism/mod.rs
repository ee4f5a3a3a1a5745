//! The systems of PRISM.

pub(crate) mod experiments;
mod registers;

use crate::system::System;

/// The systems of the family.
pub(crate) static SYSTEMS: &[System] =
    &[registers::PRISM_RS, registers::ABDLOCK, registers::ABDLOCK_SOFTWARE];
