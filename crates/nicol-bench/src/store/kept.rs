//! What a store's keeper and its runs share: the cluster that they pause, and what they have done.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

/// A cluster that can be made to begin nothing new for a moment.
pub(crate) trait Pausable: Send + Sync {
    /// Begin no further transaction, or go on.
    fn pause(&self, paused: bool);

    /// Refuse transactions that write, or take them again.
    fn refuse_writes(&self, refused: bool);

    /// Whether nothing is under way, and everything that was logged is applied.
    fn is_quiet(&self) -> bool;
}

/// Counters and times of the keeper so far.
#[derive(Clone, Debug, Default)]
pub struct Kept {
    /// Times that the tables were saved while serving.
    pub saves: u64,
    /// The failure of the last attempt, if it failed.
    pub failure: Option<String>,
    pub under_way: bool,
    /// The time at which the tables were saved last.
    pub saved_at: Option<SystemTime>,
    /// The time that the last save took.
    pub took: Duration,
    /// The time for which nothing was begun because of the last save.
    pub paused: Duration,
    /// The time for which nothing was begun, all times together, because the logs had again grown
    /// beyond the limit while the tables were being saved.
    pub held: Duration,
    /// Bytes of the tables that were saved last, in one of their two files.
    pub table_bytes: u64,
    /// Bytes in the current logs.
    pub log_bytes: u64,
    /// Whether writes are refused, because the disk of a log is full.
    pub full: bool,
}

/// The counters, also after a thread that had them has panicked.
pub(super) fn lock(kept: &Mutex<Kept>) -> MutexGuard<'_, Kept> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}
