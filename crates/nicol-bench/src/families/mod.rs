//! The families of systems. Each has its files here: its systems and their settings, its workloads,
//! its clients' operations and their checkers.

pub mod commit;
mod engine;
mod minos;
pub mod offpath;
pub mod prism;
mod scheduling;
mod serving;

pub use scheduling::SCHEDULERS;

use crate::system::System;

/// The systems of every family.
pub(crate) static SYSTEMS: &[&[System]] =
    &[commit::SYSTEMS, engine::SYSTEMS, prism::SYSTEMS, offpath::SYSTEMS, minos::SYSTEMS];
