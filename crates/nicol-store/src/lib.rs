//! Nicol's data structures, without async code and I/O. Memory that a NIC reads is
//! `nicol_core::memory`.
//!
//! `AMB-nn` is an entry of `docs/research/ambiguities.md`: a case that a paper leaves open, and its
//! reading.
#![deny(unsafe_code)]

mod access;
pub mod address_cache;
pub mod btree;
mod digest;
#[cfg_attr(
    target_arch = "x86_64",
    expect(unsafe_code, reason = "vector instructions that only some machines have")
)]
pub mod feature_counters;
pub mod high_water;
pub mod host_table;
pub mod lookup_cost;
pub mod multicore;
pub mod nic_index;
pub mod ordered;
pub mod remote_table;
mod tombstones;
