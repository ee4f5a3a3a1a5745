//! Replication of files by an off-path SmartNIC as LineFS does it (OSDI '23, section 5.1; LineFS,
//! SOSP '21), and the study's alternatives to it.
//!
//! A file is a row of blocks; a block is a record. The host appends writes to a log in its
//! persistent memory, and what has gathered there leaves as a chunk. A write is acknowledged when
//! its chunk is persistent on the primary and on every backup of the view; only then is it
//! published, so that a read never sees what a crash may take back.
//!
//! | step | what | where |
//! |---|---|---|
//! | log | the host appends to its log and seals a chunk | `log.rs` |
//! | A1 | the SoC READs the chunk of its host (3), compresses it, and writes it to the next SoC (2) | `soc.rs`, `submit` |
//! | A2 | the same, but fetches the chunk by DMA (3*) | `soc.rs`, `submit` |
//! | A3 | the host writes the chunk to the next host (1), as it is | `log.rs`, `replicate` |
//! | chain | a backup passes the chunk on to the next one before it unpacks and persists it | `backup.rs` |
//! | acknowledge | the last backup first, each after what it waits for; then the log's slot is free | `member.rs`, `pass_on` |
//! | change of view | the next of the chain is promoted; a node that comes back copies the files and is the last | `standing.rs`, `align.rs` |
//!
//! With A2 + A3 the SoC comes first, and the host replicates what it has no space for
//! (`saturation.rs`, decision 0091); or a share of all chunks goes either way.
//!
//! The primary gives each write of a block a version, and publishing skips older ones, since chunks
//! of several logs overtake each other (AMB-37). (Decision 0044)
//!
//! DEVIATION: on a backup the file index is written by the side that persists the chunk, the SoC
//! with A1 and A2; LineFS publishes by DMA later, and also frees its log then.

mod align;
mod backup;
mod broken;
mod busy;
mod chain;
mod client;
mod compress;
mod config;
mod files;
mod layout;
mod log;
mod member;
mod memory;
mod messages;
mod node;
mod saturation;
mod soc;
mod standing;
mod start;

#[doc(hidden)]
pub use broken::Sabotage;
pub use client::Client;
pub use compress::{Cost, Packed, pack, unpack};
pub use config::{Alternative, HostLoad, LineFsConfig};
pub use layout::payload_max;
pub use node::Node;
