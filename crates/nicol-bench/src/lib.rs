//! A system under a workload in a world, measured and judged; and stores that are served.
//!
//! The harness (everything but `families`) knows no family of systems: a system of the registry
//! (`systems`) brings functions, and a family implements `family::Family`.
//!
//! Every system is compiled here, in every world; what stands above is generic over none of them.
//! The harness' own tests are built without the families: those would be compiled a second time,
//! and take longer than all other test builds. The families' tests are in `tests/` and nicol-lab's.
#![forbid(unsafe_code)]
#![cfg_attr(
    test,
    allow(dead_code, unused_imports, reason = "the families use it, which no test build has")
)]

pub mod befell;
#[cfg(not(test))]
pub mod bench;
pub mod binding;
mod built;
mod bursts;
mod cluster;
pub mod config;
#[cfg(not(test))]
pub mod families;
mod family;
pub mod hardware;
mod judge;
pub mod key_value;
pub mod last_load;
mod live;
mod measured;
pub mod memory;
pub mod milestones;
mod observer;
mod parallel;
mod reader;
mod recovered;
pub mod refused;
pub mod report;
mod runner;
pub mod settings;
mod simulated;
pub mod store;
mod summary;
pub mod system;
#[cfg(not(test))]
pub mod systems;
pub mod toll;
pub mod trace;
mod window;
pub mod workloads;
