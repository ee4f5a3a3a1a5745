//! PRISM-RS: replicated blocks, linearizable while no more than f of 2f + 1 replicas fail.
//! [PRISM21 7]
//!
//! A variant of multi-writer ABD: `client.rs` has GET and PUT as section 7.1 prints them,
//! `chains.rs` the chains of section 7.3 by which their phases reach the replicas.
//!
//! | phase | at each replica | file |
//! |---|---|---|
//! | read | an indirect READ of `tag`, value | `chains.rs` (`read`) |
//! | write | WRITE tag to tmp; ALLOCATE `tag`, value redirected behind it; CAS_GT of the metadata by tmp | `chains.rs` (`write`) |
//! | afterwards | the buffer that was replaced, or allocated in vain, is reported | `client.rs` (`collect`), `server.rs` |
//! | after a restart | copy every block from f + 1 others | `rejoin.rs` |
//!
//! Where it departs from the paper: a chain whose CAS fails says what it has allocated (AMB-12);
//! the clients of one engine share an id, so that timestamps may skip (`client.rs`, `next_tag`); a
//! GET may save its write phase, if it is told to (AMB-40); a replica that was lost may come back.

mod broken;
mod chains;
mod client;
mod config;
mod layout;
mod node;
mod rejoin;
mod replica;
mod server;
mod start;

#[doc(hidden)]
pub use broken::Sabotage;
pub use client::Client;
pub use config::{Blocks, RsConfig};
pub use node::Node;
