//! MINOS: linearizable replication without a leader, with five persistency models, on the host
//! (MINOS-B) and offloaded to a SmartNIC (MINOS-O). [MINOS24 I]
//!
//! Every node holds every record, and any node starts a write. The node that does is its
//! coordinator: it invalidates the record at the others, its followers, with the new value, and
//! validates it when all have acknowledged. Reads are local; they wait while a write owns the
//! record's read lock.
//!
//! | figures | what | file |
//! |---|---|---|
//! | 1 | metadata, timestamps, Obsolete, Snatch | `record.rs`, `timestamp.rs` |
//! | 2 left, 3 i, iii, v, vii | MINOS-B, coordinator | `coordinator/mod.rs` (`client_write`) |
//! | 2 right, 3 ii, iv, vi, viii | MINOS-B, follower | `follower.rs` (`follow_on_host`, `validated`) |
//! | section III-A | the primitives on a record | `records.rs` |
//! | 3 | what the marked steps are in each model | `model.rs` |
//! | 3 vii, viii | the \[PERSIST\]sc transaction | `scope.rs` |
//! | 6, 8 lines 4 to 8 | MINOS-O, host | `coordinator/host.rs` |
//! | 8 lines 9 to 44 | MINOS-O, SmartNIC | `coordinator/offload.rs`, `follower.rs` (`follow_offloaded`) |
//! | section V-B4 | the log, the vFIFO and the dFIFO | `queues.rs`, `queue.rs` |
//! | section V-B3 | batching without offloading | `relay.rs` |
//! | section III-D | client-reads | `client.rs` |
//! | section III-E | changes of view, replay, recovery | `survivor.rs`, `recovery/` |
//! | | records of deleted keys are freed | `forget.rs`, `deletions.rs` |
//! | | what a server's front asks for | `procedure.rs` |
//! | | what a traced run tells of | `tags.rs` |
//!
//! Lines are those of figure 2; figure 8 has the same numbers. The figures' texts are reconstructed
//! from section III-B.
//!
//! Where it departs from the paper: timestamps are unique (AMB-15), global timestamps only grow and
//! a spin waits for the timestamp that made the write obsolete (AMB-16), a scope's end waits for
//! what superseded its writes (AMB-18), the vFIFO counts as volatile memory (AMB-19). Each of these
//! can be had as printed (`Errata`). A message that must arrive is a request where routes lose
//! messages, and one-way where they do not.
#![forbid(unsafe_code)]

mod broken;
mod client;
mod config;
mod coordinator;
mod deletions;
mod follower;
mod forget;
mod log;
mod member;
mod messages;
mod model;
mod node;
mod pcie_messages;
mod procedure;
mod queue;
mod queues;
mod received;
mod record;
mod records;
mod recovery;
mod relay;
mod scope;
mod send;
mod server;
mod start;
mod store;
mod survivor;
mod tags;
mod timestamp;
mod value;
mod views;
mod write;

pub use broken::Sabotage;
pub use client::Client;
pub use config::{Errata, Faithful, MinosConfig, WhenFull};
pub use model::{
    Await, CoordinatorStep, FollowerStep, Memory, ObsoleteStep, Spin, Step, Steps, Validation,
};
pub use node::{BREAKDOWN, Loaded, LoadedShard, Node};
pub use procedure::{OneRecord, logged_update};
pub use record::Metadata;
pub use store::Store;
pub use tags::{EVERY_KEY, Tag};
