//! The `commit` family: distributed, replicated, serializable transactions.

mod messages;
pub mod xenic;
