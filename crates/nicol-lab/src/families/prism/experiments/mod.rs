//! The figures of PRISM's paper, a file to a group.

mod closed_loop;
mod interface;
mod key_values;
mod load;
mod registers;
mod transactions;

use crate::experiments::Experiment;

/// The testbed of the microbenchmarks, and that of the applications. [PRISM21 4.3, 5]
const DIRECT: &str = "connectx5-25g";
const SWITCHED: &str = "connectx5-40g";

/// Every experiment, in the order of the paper.
pub(crate) fn all() -> impl Iterator<Item = &'static Experiment> {
    let groups: [&[Experiment]; 4] =
        [&interface::ALL, &key_values::ALL, &registers::ALL, &transactions::ALL];
    groups.into_iter().flatten()
}
