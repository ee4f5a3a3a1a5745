//! Checkers: they see histories and nothing else.
#![forbid(unsafe_code)]

pub mod durability;
pub mod history_file;
pub mod linearizability;
mod scans;
pub mod serializability;
