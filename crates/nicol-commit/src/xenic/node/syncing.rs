//! COMMITs that release their locks before they are durable at their primary. (decision 0058)

use std::sync::atomic::{AtomicU64, Ordering};

use nicol_core::view::View;

use crate::xenic::config::LocksUntil;

/// Those of one node.
#[derive(Debug)]
pub(in crate::xenic) struct Syncing {
    /// May COMMITs release their locks early?
    allowed: bool,
    under_way: AtomicU64,
}

impl Syncing {
    /// None. Without a backup of a shard nothing but its COMMITs tells what was committed there.
    pub(super) fn new(view: &View, locks_until: LocksUntil) -> Self {
        let backed_up = view.shard_ids().all(|shard| view.backups(shard).next().is_some());
        let allowed = backed_up && locks_until == LocksUntil::Backups;
        Self { allowed, under_way: AtomicU64::new(0) }
    }

    /// May a COMMIT release its locks before it is durable here, while no node is lost?
    pub(in crate::xenic) fn is_allowed(&self) -> bool {
        self.allowed
    }

    /// A COMMIT is about to release its locks. Call it before they are gone.
    pub(in crate::xenic) fn begin(&self) {
        self.under_way.fetch_add(1, Ordering::AcqRel);
    }

    /// It is durable.
    pub(in crate::xenic) fn end(&self) {
        self.under_way.fetch_sub(1, Ordering::AcqRel);
    }

    pub(super) fn is_none(&self) -> bool {
        self.under_way.load(Ordering::Acquire) == 0
    }
}
