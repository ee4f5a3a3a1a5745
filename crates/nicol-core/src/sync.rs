//! Where a doorbell has its atomics and locks from: the standard library. `nicol-rt/tests/loom`
//! compiles the same file with loom's.

pub(crate) use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError, atomic};
