//! Nicol's applications as a library: what the binary is made of.
#![forbid(unsafe_code)]

pub mod resp;
