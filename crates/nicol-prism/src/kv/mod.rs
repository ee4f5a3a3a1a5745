//! PRISM-KV (SOSP '21, section 6): a key-value store whose clients GET, PUT and DELETE by chains of
//! one-sided operations. Keys and values are byte strings; there is one copy of each record.
//!
//! | step | what | where |
//! |---|---|---|
//! | GET 1 | READ a slot of the hash index with the indirect bit set | `client.rs`, `get_item` |
//! | GET 2 | verify the key, else probe the next slot | `client.rs`, `get_item` |
//! | PUT 1 | determine the slot, as a GET does | `client.rs`, `find_slot` |
//! | PUT 2 | ALLOCATE the new version, its address redirected | `install.rs`, `chain` |
//! | PUT 3 | CAS the slot to it, conditional | `install.rs`, `chain` |
//! | PUT 4 | tell the server that the old version's buffer is free | `client.rs`, `report_replaced` |
//!
//! Where the slots of deleted keys are used again, a key without a slot gets one from the server's
//! CPU (`claim.rs`, `slots.rs`), and PUT 2 and 3 then replace what that has put there.
//!
//! A server for clients from elsewhere runs procedures over one record (`procedure.rs`).
//!
//! PUT 2 and 3 are one chain, and one round trip. The server's CPU (`server.rs`) fills free lists
//! and takes buffers back.
//!
//! What the paper leaves open: AMB-09 (two operands of the CAS), AMB-12 (what a failed chain has
//! allocated), AMB-40 (when the chain has a WRITE), AMB-48 (which slots a deleted key leaves).

mod broken;
mod bytes;
mod claim;
mod client;
mod config;
mod install;
mod layout;
pub(crate) mod name;
mod node;
mod procedure;
mod server;
mod slots;
mod start;
mod store;

#[doc(hidden)]
pub use broken::Sabotage;
pub use bytes::{BytesFailure, Unfit};
pub use client::Client;
pub use config::{Hash, ITEM_BYTES_MAX, KvConfig, Operands};
pub use layout::{DeletedSlots, Reuse, Slots};
pub use node::Node;
