//! The executor of one engine: pooled tasks, no allocation per task in the steady state, no
//! wakers but its own. Both worlds run protocol code on it.

mod at_once;
mod join;
mod quorum;
mod signal;
mod tasks;

pub use at_once::at_once;
pub use join::{JoinAll, join_all};
pub use quorum::{Detached, JoinQuorum, join_quorum};
pub use signal::{Signal, SignalWait};
pub use tasks::{Executor, Observer, TaskRef};
