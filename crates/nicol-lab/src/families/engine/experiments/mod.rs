//! The figures of AlNiCo's paper, a file to a group.

mod about;
mod contention;
mod run;
mod series;

use crate::experiments::Experiment;
pub(crate) use about::about;

/// Every experiment, in the order of the paper.
pub(crate) fn all() -> impl Iterator<Item = &'static Experiment> {
    let groups: [&[Experiment]; 3] = [&contention::OVERALL, &series::ALL, &contention::FURTHER];
    groups.into_iter().flatten()
}
