//! Every protocol of the field, written once against `nicol_core::fabric::Fabric`: a folder per
//! family, a folder per system, and the kit that they share.
//!
//! `AMB-nn` is an entry of `docs/research/ambiguities.md`: a case that a paper leaves open, and its
//! reading.
#![forbid(unsafe_code)]

pub mod commit;
pub mod engine;
mod kit;
pub mod minos;
pub mod offpath;
pub mod prism;
pub mod read_back {
    //! What is read back of logs, whichever family's: of each key the newest write, and how much
    //! was found.

    pub use crate::kit::{Counts, EachWrite, Recovered};
}
pub mod schedule;
pub mod steering;
