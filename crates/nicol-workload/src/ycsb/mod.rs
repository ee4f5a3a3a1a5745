//! YCSB's core workloads A to F. [Cooper10, "Benchmarking Cloud Serving Systems with YCSB"]
//!
//! [`Generator`] draws key-value operations and knows no family: each family turns an [`Operation`]
//! into what its clients do. [`Transactions`] does so for the `commit` family, where every
//! operation is a transaction; [`crate::key_value`] for the families of single operations.
//!
//! | mix | operations | keys |
//! |---|---|---|
//! | A | 50 % reads, 50 % updates | Zipfian |
//! | B | 95 % reads, 5 % updates | Zipfian |
//! | C | reads | Zipfian |
//! | D | 95 % reads, 5 % inserts | the latest |
//! | E | 95 % scans of 1 to 100 records, 5 % inserts | Zipfian |
//! | F | 50 % reads, 50 % read-modify-writes | Zipfian |
//!
//! Deviations from YCSB: uniform and Zipfian keys are drawn from the loaded records only, and a
//! value is one field.

mod generator;
mod keys;
mod transactions;

pub use generator::{Generator, Mix, Operation, Popularity, SCAN_MAX, SKEW, YcsbConfig};
pub(crate) use keys::Scatter;
pub use keys::{KEY_BYTES, KeyForm, byte_key};
pub use transactions::{Transactions, TransactionsConfig};
