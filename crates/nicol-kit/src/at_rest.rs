//! Is a node at rest? While it has anything to do, it is not settled.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Something that a node has to do.
#[derive(Debug)]
#[must_use = "it ends when it is dropped"]
pub struct Open(Arc<AtomicU64>);

impl Open {
    /// One more of those that `open` counts.
    pub fn begin(open: &Arc<AtomicU64>) -> Self {
        open.fetch_add(1, Ordering::Relaxed);
        Self(open.clone())
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
