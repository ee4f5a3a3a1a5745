//! Nicol's shared vocabulary: what every other crate must agree on.
//!
//! Protocol code is written against [`fabric::Fabric`]; the two worlds (`nicol-sim`, `nicol-rt`)
//! implement the narrower [`engine::World`] under one shared [`engine::Engine`].
#![deny(unsafe_code)]

pub mod chain;
pub mod commit;
pub mod engine;
pub mod exec;
pub mod fabric;
pub mod faults;
pub mod history;
pub mod ids;
pub mod interactive;
pub mod key_value;
pub mod medium;
pub mod memory;
pub mod names;
pub mod records;
pub mod rng;
pub mod serving;
pub mod steering;
mod sync;
pub mod system;
pub mod trace;
pub mod txn;
pub mod units;
pub mod view;
pub mod wire;
pub mod workload;
