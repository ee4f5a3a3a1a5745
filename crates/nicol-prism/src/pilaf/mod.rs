//! Pilaf (USENIX ATC '13), as PRISM's paper describes and compares with it (section 6): clients GET
//! by two one-sided READs, and the server's CPU executes PUTs that come as RPCs.
//!
//! | step | what | where |
//! |---|---|---|
//! | GET 1 | READ an entry of the hash table, and verify it by its CRC | `client.rs`, `read_entry` |
//! | GET 2 | READ the extent that it points to, and verify it by the entry's CRC of it | `client.rs`, `read_extent` |
//! | GET 3 | verify the key, else probe the next entry | `client.rs`, `get_bytes` |
//! | PUT | an RPC: write a new extent, then the entry, then free the old extent | `server.rs` |
//!
//! A READ beside a PUT may see half of it: entries and extents verify themselves, and a GET that
//! finds one torn reads again. With [`Reads::Chains`] READs go to whatever executes chains at the
//! server, which is PRISM's software in its testbeds: `pilaf-software`.

mod broken;
mod client;
mod config;
mod layout;
mod messages;
mod node;
mod server;
mod start;
mod table;

#[doc(hidden)]
pub use broken::Sabotage;
pub use client::Client;
pub use config::{Index, PilafConfig, Reads};
pub use node::Node;
