//! Engines that run transactions on the many cores of one node, over records that all of them
//! share.
//!
//! | a transaction | where |
//! |---|---|
//! | is interactive: it reads, writes and scans while its procedure runs | `transaction.rs` |
//! | finds records by hash or along a tree, at memory that is freed by epochs | `nicol_store::multicore`, `worker.rs` |
//! | reads, locks, validates and installs as its engine's protocol says | a [`Protocol`]: `silo.rs` and `tictoc.rs` over `optimistic.rs`, `two_phase_locking.rs`, `cicada.rs` |
//! | is logged, and durable with its epoch, if that is asked for | `group_commit.rs`, [`recovery`] |
//! | of a workload that declares its keys is one procedure of these | `coordinator.rs` |
//!
//! Clients are on the cores themselves, or send requests to a server, which
//! [schedules](nicol_schedule) them.
//!
//! Each look at a record is an access point
//! ([`access`](nicol_core::fabric::SharedMemory::access)): there the cores of a simulated node
//! interleave, and live it is nothing. Steps do not await it themselves: `access.rs` does.
#![forbid(unsafe_code)]

mod access;
mod broken;
mod cicada;
mod config;
mod coordinator;
mod group_commit;
mod halt;
mod log;
mod node;
mod optimistic;
mod record_form;
pub mod recovery;
mod sets;
mod silo;
mod start;
mod tictoc;
mod transaction;
mod two_phase_locking;
mod worker;

#[doc(hidden)]
pub use broken::Sabotage;
pub use cicada::Cicada;
pub use config::{EngineConfig, Waiting};
pub use coordinator::{Coordinator, ROUNDS_MAX, Submitter};
pub use halt::Halt;
pub use log::Committed;
pub use node::Node;
pub use record_form::RecordForm;
pub use sets::Sets;
pub use silo::Silo;
pub use tictoc::TicToc;
pub use transaction::Transaction;
pub use two_phase_locking::TwoPhaseLocking;
pub use worker::{Absence, Protocol, Worker};
