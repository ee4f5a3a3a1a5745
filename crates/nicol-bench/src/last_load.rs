//! The shards that a run has loaded, kept for later runs that load the same.

use std::any::Any;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nicol_core::system::{SystemNode, TooSmall};

/// The shards of the last load. Runs that load the same get copies which share their pages until
/// they write there: the records are made once, and a run has memory of its own for what it
/// changes. What is loaded next takes their place. (decision 0113)
#[derive(Default)]
pub struct LastLoad {
    last: Mutex<Option<Box<dyn Any + Send>>>,
    loads: AtomicU64,
}

/// Loaded shards, and all that their content depends on.
struct Load<S> {
    of: String,
    shards: Vec<S>,
}

impl LastLoad {
    /// The shards of nodes `N` that are loaded by `load`, or copies of those that are kept if they
    /// are of the same. `of` says all that their content depends on.
    ///
    /// # Errors
    /// Those of `load`.
    pub(crate) fn shards<N: SystemNode>(
        &self,
        of: &str,
        load: impl FnOnce() -> Result<Vec<N::Shard>, TooSmall>,
    ) -> Result<Vec<N::Shard>, TooSmall> {
        let mut kept = self.last();
        let same = |load: &&Load<N::Shard>| load.of == of;
        let last = kept.as_ref().and_then(|kept| kept.downcast_ref::<Load<N::Shard>>());
        if let Some(copies) = last.filter(same).and_then(|load| copies::<N>(&load.shards)) {
            return Ok(copies);
        }
        // Its memory goes before the next takes any.
        *kept = None;
        self.loads.fetch_add(1, Ordering::Relaxed);
        let shards = load()?;
        let Some(copies) = copies::<N>(&shards) else { return Ok(shards) };
        *kept = Some(Box::new(Load { of: of.to_owned(), shards }));
        Ok(copies)
    }

    /// Gives their memory back, but for what runs still share.
    pub fn clear(&self) {
        *self.last() = None;
    }

    /// How often records were loaded, and not shared.
    pub fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    fn last(&self) -> MutexGuard<'_, Option<Box<dyn Any + Send>>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Copies that share pages; `None` if the system of these nodes makes none.
fn copies<N: SystemNode>(shards: &[N::Shard]) -> Option<Vec<N::Shard>> {
    shards.iter().map(N::share).collect()
}

/// Says nothing of what is kept: results do not depend on it.
impl fmt::Debug for LastLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LastLoad")
    }
}
