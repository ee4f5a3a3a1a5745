//! The systems of PRISM's paper and those that it compares with: single operations of clients on
//! servers whose CPUs take little part; and PRISM-TX, which is of the commit family.

pub(crate) mod experiments;
mod key_values;
mod pilaf;
mod registers;
mod transactions;

use crate::system::System;

/// The systems of the family.
pub(crate) static SYSTEMS: &[System] = &[
    key_values::PRISM_KV,
    pilaf::PILAF,
    pilaf::PILAF_SOFTWARE,
    registers::PRISM_RS,
    registers::ABDLOCK,
    registers::ABDLOCK_SOFTWARE,
    transactions::PRISM_TX,
];
