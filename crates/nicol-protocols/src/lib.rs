//! Every protocol of the field, written once against `nicol_core::fabric::Fabric`: a folder per
//! family, a folder per system, and the kit that they share.
//!
//! `AMB-nn` is an entry of `docs/ambiguities.md`: a case that a paper leaves open, and its reading.
#![forbid(unsafe_code)]

pub mod commit;
pub mod engine;
mod kit;
pub mod minos;
pub mod offpath;
pub mod prism;
pub mod schedule;
pub mod steering;
