//! The `commit` family: distributed, replicated, serializable transactions.

pub mod xenic;
