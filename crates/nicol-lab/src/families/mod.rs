//! The families of systems. Each has its files here: its systems and their settings, its workloads,
//! its clients' operations and their checkers, and its experiments.

pub mod commit;
pub(crate) mod engine;
pub mod key_value;
pub(crate) mod minos;
pub mod offpath;
pub mod prism;
mod scheduling;
mod serving;

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
