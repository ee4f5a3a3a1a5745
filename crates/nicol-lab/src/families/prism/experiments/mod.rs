//! The figures of PRISM's paper, a file to a group.

mod about;
mod closed_loop;
mod executors;
mod interface;
mod key_values;
mod load;
mod registers;
mod steady;
mod testbed;
mod transactions;

use crate::experiments::Experiment;
pub(crate) use about::about;

/// The testbed of the microbenchmarks, and that of the applications. [PRISM21 4.3, 5]
const DIRECT: &str = "connectx5-25g";
const SWITCHED: &str = "connectx5-40g";

/// Every experiment: those of the paper in its order, then what goes beyond it.
pub(crate) fn all() -> impl Iterator<Item = &'static Experiment> {
    let groups: [&[Experiment]; 5] =
        [&interface::ALL, &key_values::ALL, &registers::ALL, &transactions::ALL, &executors::ALL];
    groups.into_iter().flatten()
}
