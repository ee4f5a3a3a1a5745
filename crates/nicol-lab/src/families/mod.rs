//! The families of systems. Each has its files here: its systems and their settings, its workloads,
//! what its clients do and who judges them, its experiments.

pub mod commit;
mod engine;
pub mod key_value;
mod minos;
pub mod offpath;
pub mod prism;

use crate::experiments::Experiment;
use crate::system::System;

/// The systems of every family.
pub(crate) static SYSTEMS: &[&[System]] = &[
    commit::SYSTEMS,
    engine::SYSTEMS,
    prism::SYSTEMS,
    offpath::SYSTEMS,
    minos::SYSTEMS,
    #[cfg(test)]
    key_value::tests::SYSTEMS,
];

/// The experiments of every family, in the order of the papers.
pub(crate) fn experiments() -> impl Iterator<Item = &'static Experiment> {
    commit::experiments::all()
        .chain(prism::experiments::all())
        .chain(minos::experiments::all())
        .chain(offpath::experiments::all())
        .chain(engine::experiments::all())
}
