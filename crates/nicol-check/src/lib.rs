//! Checkers: they see histories and nothing else.
#![forbid(unsafe_code)]

pub mod history_file;
pub mod serializability;
