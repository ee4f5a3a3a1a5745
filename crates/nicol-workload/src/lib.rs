//! Workloads and the client driver.
//!
//! A workload implements [`nicol_core::workload::Workload`]: it loads records, draws transactions
//! from a seeded stream, supplies their execution logic as pure functions, and audits the final
//! state. The [`driver`] runs clients against any commit protocol and records what they saw.
#![forbid(unsafe_code)]

pub mod chooser;
pub mod churn;
mod counter;
pub mod driver;
mod mix;
mod placement;
pub mod retwis;
pub mod smallbank;
pub mod tpcc;
pub mod ycsb;
pub mod ycsb_t;
pub mod zipf;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
