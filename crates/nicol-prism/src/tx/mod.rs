//! PRISM-TX (SOSP '21, section 8): serializable transactions whose clients execute, validate and
//! commit by chains of one-sided operations. There is one copy of each record.
//!
//! The figure is `Steps::commit_transaction` in `coordinator.rs`; the chains are in `chains.rs`.
//!
//! | step | at the server of each key | where |
//! |---|---|---|
//! | execution | READ the slot, and the item that it points to, as a GET of PRISM-KV | `execute.rs` |
//! | | TS := (clock, client), later than every RC | `clock.rs` |
//! | read validation | CAS: if RC\|TS > PW\|PR, PR := TS | `prepare.rs`, `prepare` |
//! | write validation | in the same chain, CAS: if TS > PW, PW := TS; then TS >= PR | `prepare.rs`; `checks.rs`: which checks share a chain |
//! | commit | CAS: if TS > C, C\|addr := TS\|item | `finish.rs`, `commit` |
//! | abort | once the write before it is there or given up: CAS: if TS > C, C := TS | `finish.rs`, `give_up` |
//! | afterwards | buffers that are not used any more are reported | `finish.rs`, `store.rs` |
//! | a client has died | the servers end its transactions | `recovery.rs` |
//!
//! Where it departs from the paper, each as a value of [`TxConfig`]: a transaction does not
//! conflict with its own reads (AMB-13), an abort waits for its turn before it raises C (AMB-14),
//! RC comes from C, read before the buffer (AMB-14b), and writes are staged with their check, so
//! that servers can end what a dead client leaves (AMB-14c). Both validations of the keys on one
//! server are one chain, so that a commit takes two round trips (AMB-53). A key without a record
//! gets a slot before it is read or written, since it is slots that have timestamps.
//!
//! It promises serializability, and not in the order of real time: clocks of clients may differ.

mod broken;
mod chains;
mod checks;
mod clock;
mod config;
mod coordinator;
mod execute;
mod finish;
mod layout;
mod messages;
mod node;
mod prepare;
mod recovery;
mod server;
mod start;
mod store;

#[doc(hidden)]
pub use broken::Sabotage;
pub use config::{Bump, OwnReads, Prepare, ReadVersion, Staging, TxConfig};
pub use coordinator::Coordinator;
pub use node::Node;
