//! The families of systems. Each has its files here: its systems and their settings, its workloads,
//! what its clients do and who judges them, its experiments.

pub mod commit;

use crate::experiments::Experiment;
use crate::system::System;

/// The systems of every family.
pub(crate) static SYSTEMS: &[&[System]] = &[commit::SYSTEMS];

/// The experiments of every family, in the order of the papers.
pub(crate) fn experiments() -> impl Iterator<Item = &'static Experiment> {
    commit::experiments::all()
}
