//! The figures and tables of Xenic's paper, a file to a group.

mod ablations;
pub(crate) mod benchmarks;
mod components;
pub(crate) mod figure8;
mod lookups;
pub(crate) mod study;
mod threads;

use crate::experiments::Experiment;

/// The profile of systems that run on an on-path SmartNIC.
const ON_PATH: &str = "liquidio3";
/// The profile of systems that use verbs.
const VERBS: &str = "connectx5";

/// Every experiment, in the order of the paper.
pub(crate) fn all() -> impl Iterator<Item = &'static Experiment> {
    let groups: [&[Experiment]; 5] =
        [&lookups::ALL, &components::ALL, &figure8::ALL, &threads::ALL, &ablations::ALL];
    groups.into_iter().flatten()
}
