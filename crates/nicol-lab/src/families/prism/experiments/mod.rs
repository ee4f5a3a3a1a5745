//! The figures of PRISM's paper, a file to a group.

mod load;
mod registers;

use crate::experiments::Experiment;

/// Every experiment, in the order of the paper.
pub(crate) fn all() -> impl Iterator<Item = &'static Experiment> {
    registers::ALL.iter()
}
