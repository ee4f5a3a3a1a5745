//! The RDMA baselines of Xenic, as one engine with a choice of primitive per phase, which is how
//! DrTM+H was made from its ancestors [Xenic21 2.2.2, 5.1; DrTM+H, OSDI '18].
//!
//! Optimistic concurrency control with primary-backup replication, run by host engines: they
//! coordinate, they serve the others' messages, and they apply the logs. The NIC only moves bytes.
//! Locks and versions live in the header words of the primary's table, in host memory. They are
//! taken by one-sided CAS and by the owner's CPU alike: the words of a region are atomic to both
//! in either world, which real ConnectX NICs do not promise (there, the owner would lock through
//! its own NIC, or wrap its accesses in HTM as DrTM+R does).
//!
//! The figure is `Steps::commit_transaction` in `coordinator`; which system chooses which primitive
//! is a table in `config`.
//!
//! | step | choices | code |
//! |---|---|---|
//! | READ | one-sided READs along the structure or to a cached address; or one RPC per primary that also locks the write set | `coordinator::execute`, `coordinator::reads` |
//! | execution logic | on the coordinator; may add keys, then READ repeats | `coordinator` |
//! | 1 LOCK at the version read | RPC, or one-sided CAS; written keys before commit, or every key when it is read | `coordinator::lock` |
//! | 2 VALIDATE what is not locked | one-sided READ of the header, or RPC | `coordinator::validate` |
//! | with it, RESERVE for values that take a block | RPC | `coordinator::reserve` |
//! | 3 LOG at every backup | one-sided WRITE into a ring of the backup, or RPC | `coordinator::log` |
//! | 4 COMMIT at the primaries | RPC, or one-sided WRITE and unlock | `coordinator::finish` |
//! | 5 apply the logs | the backups' host workers | `worker`; a second round that truncates them (AMB-44): `log_acks` |
//!
//! | beside the steps | code |
//! |---|---|
//! | what an owner's CPU does to its records, for its own coordinator and for others' | `owner` |
//! | the requests that it serves | `server` |
//! | every RPC, and its answer: a SEND, or a one-sided WRITE into a message log that the target polls | `rpc`, `message_log` |
//! | verbs, and the handles that they need | `reach`, `rings` |
//! | what a crash takes and leaves | `losses` |
//! | what is broken on purpose for the checkers' sake | `broken` |
//!
//! What holds in all of them:
//!
//! - Keys of the coordinator's own shard are read, locked and installed in local memory.
//! - The records of ordered tables stand in B+ trees, at the primary and at the backups, and their
//!   locks beside them, in their node's memory: other nodes read, lock, validate and commit them by
//!   RPC, whatever the system's primitives. A local transaction may scan its own node's trees,
//!   under range versions that its validation checks, as on Xenic: `ordered`, `replica`.
//! - Absent keys (AMB-36) are validated by their home's bucket version; a key that is absent, or
//!   that is deleted, is locked and committed by its owner, since only the owner may place records.
//! - The fabric promises no order between verbs, so that a one-sided commit unlocks only when its
//!   WRITE has been acknowledged.
//! - A verb that failed was executed once or never. Before the first LOG it aborts the
//!   transaction; afterwards, and when a lock is given back, what happened is read from the
//!   target's memory and the verb is posted again if it did not.

mod broken;
mod config;
mod coordinator;
mod host;
mod local_log;
mod log_acks;
mod message_log;
mod messages;
mod node;
mod owner;
mod reach;
mod replica;
mod rings;
mod rpc;
mod server;
mod shape;
mod start;
mod worker;

pub use config::{
    Execution, LockKeys, Locking, LogContent, Primitive, RdmaOccConfig, SYSTEMS, Transport,
    ValidateKeys, Validation, Verbs,
};
pub use coordinator::Coordinator;
pub use node::Node;

/// Execution rounds that one transaction may take.
pub const ROUNDS_MAX: usize = 64;
/// Transactions that one engine may have open, those included that only have something to tidy up;
/// beyond it they abort.
const OPEN_MAX: usize = 8_192;
