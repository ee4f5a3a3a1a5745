//! Where the parker, the ready sets and the mailboxes have their atomics, locks and threads from:
//! the standard library. `tests/loom` compiles the same files with loom's.

pub(crate) use std::sync::{Mutex, OnceLock, PoisonError, atomic};
pub(crate) use std::thread;
