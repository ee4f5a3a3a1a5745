//! Every protocol of the field, written once against `nicol_core::fabric::Fabric`: a folder per
//! family, a folder per system, and the kit that they share.
#![forbid(unsafe_code)]

pub mod commit;
mod kit;
