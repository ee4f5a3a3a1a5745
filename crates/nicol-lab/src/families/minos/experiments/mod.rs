//! The figures of MINOS' paper. [MINOS24 IV, VIII]

mod about;
mod comparisons;
mod load;
mod sensitivity;

use crate::experiments::Experiment;
pub(crate) use about::about;

/// Table II, and Table III.
const CLUSTER: &str = "minos-b-cluster";
const SMARTNIC: &str = "minos-snic";

/// Every experiment, in the order of the paper.
pub(crate) fn all() -> impl Iterator<Item = &'static Experiment> {
    let groups: [&[Experiment]; 2] = [&comparisons::ALL, &sensitivity::ALL];
    groups.into_iter().flatten()
}
