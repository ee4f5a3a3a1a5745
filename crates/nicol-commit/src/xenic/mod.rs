//! Xenic: SmartNIC-accelerated distributed transactions [Xenic21, SOSP '21].
//!
//! Optimistic concurrency control with primary-backup replication, run by NIC engines: the locks
//! and the caching index live in NIC memory, the tables and the logs in host memory.
//!
//! | step | who | what | code |
//! |---|---|---|---|
//! | 1 | host coordinator | transaction id; state to the local NIC | `host` |
//! | 2 | coordinator NIC, primary NICs | EXECUTE: lock the write set, read everything | `coordinator`, `server` |
//! | 3 | host, or NIC if shipped | execution logic; further EXECUTE rounds | `host`, `coordinator` |
//! | 4 | coordinator NIC, primary NICs | VALIDATE what was read and not locked | `coordinator`, `server` |
//! | 5 | coordinator NIC, backup NICs | LOG: append to the host log by DMA | `coordinator`, `server` |
//! | 6 | coordinator NIC, primary NICs | COMMIT: log, install in the index, pin, unlock | `coordinator`, `server` |
//! | 7 | host workers | apply logs to the tables; log acks free space and unpin | `host::worker`, `host::log_acks` |
//!
//! The figure is `NicCoordinator::commit_transaction`. Three kinds of transaction take a shorter
//! way beside it:
//!
//! | which | how | code |
//! |---|---|---|
//! | one shard, or the local and one remote shard | executed by the primary NIC [4.2.3] | `coordinator::multi_hop`, `server::remote_execution` |
//! | local, writing | executed by the host on its own table [4.2.4] | `host::local`, `coordinator::local` |
//! | local, reading | the same, and the NIC only says whether it was current | `host::local`, `coordinator::local` |
//!
//! The records of ordered tables stand in B+ trees, at the primary and at the backups: a host that
//! executes a local transaction reads and scans them itself, each range under its version, and its
//! NIC says whether the ranges are current; a NIC asks its host (`server::lookup`, `host::trees`).
//!
//! With a scheduler (`scheduled`) a client's transaction is coordinated by the host engine that it
//! advises.
//!
//! Deviations from the paper are tagged where they stand. Of recovery [4.2.1] there is, if the
//! configuration prepares for it, what decides the transactions of a lost coordinator
//! (`recoverer`, `resolution`, `server::recovery`), and what has a backup lead a lost shard
//! (`node::inherited`). A node that comes back is given the records of its shards by those who lead
//! them (`copier`, `server::copying`, `host::copies`, `node::lives`). What a crash takes and leaves
//! stands in `losses`.

mod broken;
mod capacity;
mod config;
mod coordinator;
mod copier;
mod host;
mod messages;
mod nic;
mod node;
mod open_txn;
mod read_back;
mod recoverer;
mod replica;
mod resolution;
mod scheduled;
mod server;
mod start;

pub use config::{
    CombinedOps, ExecuteAt, Faithful, LocalRead, LocksUntil, LogAtPrimary, ROUNDS_MAX, Recovery,
    TABLE_MEMORY_MAX, XenicConfig,
};
pub use host::HostCoordinator;
pub use node::Node;
pub use scheduled::Submitter;
