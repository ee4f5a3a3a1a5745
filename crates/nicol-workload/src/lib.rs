//! Workloads and the client driver.
//!
//! A workload of transactions implements [`nicol_core::workload::Workload`]: it loads records,
//! draws transactions from a seeded stream, supplies their execution logic as pure functions, and
//! audits the final state. A [`key_value::KeyValueWorkload`] does the same with single operations.
//! The [`driver`] runs clients against a system of any family and records what they saw.
#![forbid(unsafe_code)]

pub mod chooser;
pub mod churn;
mod counter;
pub mod driver;
pub mod key_value;
mod mix;
mod placement;
pub mod retwis;
pub mod smallbank;
pub mod tatp;
pub mod tpcc;
pub mod ycsb;
pub mod ycsb_t;
pub mod zipf;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;
