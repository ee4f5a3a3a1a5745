//! The figures and tables of Xenic's paper, a file to a group.

mod ablations;
mod about;
pub(crate) mod benchmarks;
mod components;
pub(crate) mod figure8;
mod lookups;
mod recovery;
pub(crate) mod study;
mod threads;

use crate::experiments::{Context, Experiment};
pub(crate) use about::about;

/// The profile of systems that run on an on-path SmartNIC.
const ON_PATH: &str = "liquidio3";
/// The profile of systems that use verbs.
const VERBS: &str = "connectx5";

/// Every experiment, in the order of the paper.
pub(crate) fn all() -> impl Iterator<Item = &'static Experiment> {
    let groups: [&[Experiment]; 6] = [
        &lookups::ALL,
        &components::ALL,
        &figure8::ALL,
        &threads::ALL,
        &ablations::ALL,
        &recovery::ALL,
    ];
    groups.into_iter().flatten()
}

/// The profile of the on-path SmartNIC, unless the options name another.
fn on_path<'c>(context: &Context<'c>) -> &'c str {
    context.options.profile.as_deref().unwrap_or(ON_PATH)
}
