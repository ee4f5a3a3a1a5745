//! The laboratory: systems in worlds under workloads, measured and judged.
#![forbid(unsafe_code)]

pub mod bench;
pub mod experiments;
mod live;
pub mod memory;
mod parallel;
pub mod report;
pub mod settings;
pub mod shrink;
mod simulated;
pub mod sweep;
pub mod systems;
pub mod workloads;
