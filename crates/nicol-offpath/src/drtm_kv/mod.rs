//! DrTM-KV on an off-path SmartNIC (OSDI '23, section 5.2): a disaggregated key-value store whose
//! gets take one of five ways, or two of them together.
//!
//! | step | what | where |
//! |---|---|---|
//! | A1 | READ a bucket of the host, then the value of the host | `client.rs`, `get_by_reads` |
//! | A2 | ask the SoC, which reads bucket and value of the host by DMA | `server.rs`, `get` |
//! | A3 | ask the SoC, which has the index, and reads the value of the host by DMA | `server.rs`, `get` |
//! | A4 | READ a bucket of the SoC, then the value of the host | `client.rs`, `get_by_reads` |
//! | A5 | ask the SoC, which has values of some keys, and else tells the value's address: READ it | `server.rs`, `get`; `client.rs`, `get_by_asking` |
//! | A5 by READ | READ a bucket of the SoC, then the value there if the bucket names one, else of the host | `client.rs`, `get_by_reads` |
//!
//! The index is a hash table of buckets of 64 bytes; a full bucket is continued by a chain of
//! further ones [OffPath23 5.2]. A value is kept with its key, version and CRC in an extent of the
//! host's memory; a bucket's entry names extent and version in one word. So a reader sees whether
//! what it has is what the entry meant: an extent that has been used again, or half of one, is read
//! again from the index on.
//!
//! DEVIATION: the paper measures gets. Puts of records that exist are here besides: the SoC writes
//! a new extent by DMA, takes the key out of the cache, changes the entry's one word, and then
//! caches the new value if it had cached the old one. In this order a value that a READ may still
//! find old is never in the cache. Where the index has copies the old value is made unreadable
//! before the first copy changes (decision 0053). Without an off-path card (`rnic`) software on
//! host cores does the same.

mod broken;
mod client;
mod config;
mod layout;
mod messages;
mod node;
mod pace;
mod server;
mod start;
mod table;

#[doc(hidden)]
pub use broken::Sabotage;
pub use client::Client;
pub use config::{Alternative, Asking, COPIES_MAX, DrtmKvConfig, KeptBy};
pub use node::Node;
