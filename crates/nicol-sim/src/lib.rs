//! The simulated world: an event kernel, hardware models, faults.
//!
//! [`SimCluster`] runs the engines of a cluster in virtual time, exactly repeatable from a seed.
//! Every cost is a number of a [`profile::Profile`]; throughput limits and batching emerge from
//! cores, links, queues and PCIe being occupied.
//!
//! `Cn.nn` is a row of `docs/research/calibration.md`, `AMB-nn` an entry of
//! `docs/research/ambiguities.md`.
#![forbid(unsafe_code)]

mod chain;
pub mod checks;
mod cluster;
mod doorbells;
mod frames;
mod hw;
mod in_flight;
pub mod kernel;
mod lives;
mod persists;
pub mod profile;
mod queue;
mod reach;
mod report;
mod shared;
mod slab;
mod state;
mod trace;
mod vectors;
mod verbs;
pub mod view_service;
mod world;

pub use cluster::{Completes, Held, HeldCompletion, RunEnd, SimCluster, SimConfig};
#[doc(hidden)]
pub use hw::PciePackets;
pub use lives::PCIE_DETECTION;
pub use nicol_core::engine::CrashSabotage;
pub use profile::{Profile, ProfileError};
pub use report::{SimReport, Spending, Utilization};
pub use world::SimWorld;
