//! The executor of one engine: pooled tasks, no allocation per task in the steady state, no
//! wakers but its own. Both worlds run protocol code on it.

mod join;
mod quorum;
mod signal;
mod tasks;

pub use join::{JoinAll, join_all};
pub use quorum::{Detached, JoinQuorum, join_quorum};
pub use signal::{Signal, SignalWait};
pub use tasks::{Executor, Observer, TaskRef};
