//! The systems of PRISM.

mod registers;

use crate::system::System;

/// The systems of the family.
pub(crate) static SYSTEMS: &[System] = &[registers::PRISM_RS];
