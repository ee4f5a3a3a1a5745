//! The laboratory: systems in worlds under workloads, measured and judged.
//!
//! The harness (everything but [`families`]) knows no family of systems: a system of the registry
//! ([`systems`]) brings functions, and a family implements `family::Family`.
#![forbid(unsafe_code)]

pub mod befell;
pub mod bench;
pub mod binding;
mod built;
mod bursts;
mod cluster;
mod command_line;
mod config;
pub mod decisions;
pub mod experiments;
pub mod families;
mod family;
pub mod figures;
mod hardware;
mod judge;
mod kept;
mod live;
mod measured;
pub mod memory;
pub mod milestones;
pub mod museum;
mod observer;
mod parallel;
mod reader;
mod recovered;
pub mod refused;
pub mod replay;
pub mod report;
mod runner;
pub mod settings;
pub mod shrink;
mod simulated;
pub mod store;
mod summary;
pub mod sweep;
mod system;
pub mod systems;
pub mod toll;
pub mod trace;
mod window;
pub mod workloads;
