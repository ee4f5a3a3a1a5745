//! The systems of PRISM (SOSP '21): everything that clients do to a server is a chain of one-sided
//! operations ([`nicol_core::chain`]).
//!
//! What they share: `pool` holds a server's buffers, `recycling` is the daemon that recycles them,
//! `servers` has a client engine's handles of the servers, `messages` the few messages between
//! them, `tag` the versions of replicated registers, and [`Verbs`] the plain verbs of the
//! baselines.
#![forbid(unsafe_code)]

pub mod abdlock;
mod broken;
pub mod kv;
mod messages;
pub mod pilaf;
mod pool;
mod recycling;
pub mod rs;
mod servers;
mod tag;
pub mod tx;
mod verbs;

pub use recycling::{Reclaim, Recycling};
pub use verbs::Verbs;

/// The reading of the paper that a system follows, where two differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faithful {
    /// As the paper prints it.
    Paper,
    /// As docs/research/ambiguities.md resolves it.
    Fixed,
}
