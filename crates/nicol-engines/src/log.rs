//! The state of logs: what a core has gathered, and how far the cores of a node are durable. What
//! is done with it stands in `group_commit.rs`.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use nicol_core::exec::Signal;
use nicol_core::fabric::Fabric;
use nicol_core::memory::Region;
use nicol_core::units::Bytes;
use nicol_store::multicore::Line;

use super::recovery::CHUNK_HEADER;

/// Bytes of records that a core persists at a time, and of one transaction's writes at most.
pub(super) const CHUNK_BYTES: usize = 1 << 20;

/// Proof that a transaction has committed, in memory; its epoch is not yet durable, perhaps.
#[derive(Clone, Copy, Debug)]
#[must_use = "answer once it is durable"]
pub struct Committed {
    /// 0: nothing is logged.
    pub(super) epoch: u64,
}

/// The announcements of a node's cores to one another about their logs.
#[derive(Debug)]
pub(super) struct NodeLog {
    /// By core: all that it has committed up to this epoch is durable.
    pub(super) through: Box<[Line<AtomicU64>]>,
    /// The latest epoch for which somebody waits.
    pub(super) wanted: Line<AtomicU64>,
    /// The log device has failed: nothing becomes durable any more.
    pub(super) failed: AtomicBool,
}

impl NodeLog {
    pub(super) fn new(cores: usize) -> Self {
        let none = |_| Line(AtomicU64::new(0));
        Self {
            through: (0..cores).map(none).collect(),
            wanted: none(0),
            failed: AtomicBool::new(false),
        }
    }

    /// Everything that was committed up to this epoch is durable.
    pub(super) fn durable(&self) -> u64 {
        self.through.iter().map(|core| core.0.load(Ordering::Acquire)).min().unwrap_or_default()
    }

    /// Somebody waits for `epoch`.
    pub(super) fn want(&self, epoch: u64) {
        if self.wanted.0.load(Ordering::Relaxed) < epoch {
            self.wanted.0.fetch_max(epoch, Ordering::Relaxed);
        }
    }
}

/// The log of one core.
pub(super) struct CoreLog {
    /// From where the device takes a chunk.
    pub(super) region: Arc<Region>,
    /// Records that the device has not been given.
    pub(super) gathered: RefCell<Vec<u8>>,
    /// Those that it is being given.
    pub(super) sending: RefCell<Vec<u8>>,
    /// Transactions between their commit point and their record, by the parity of their epochs, of
    /// which there are two at most.
    committing: [Cell<u32>; 2],
    /// The durable epoch, as this core has seen it last.
    pub(super) seen: Cell<u64>,
    /// Notified when that, or the device's health, has changed.
    pub(super) moved: Signal,
}

impl CoreLog {
    /// An empty one, of a core that has seen that epoch `durable` is.
    pub(super) fn new<F: Fabric>(fabric: &F, durable: u64) -> Self {
        let size = Bytes((CHUNK_HEADER + CHUNK_BYTES) as u64);
        Self {
            region: Arc::new(Region::for_log(size, fabric.here().core.into())),
            gathered: RefCell::default(),
            sending: RefCell::default(),
            committing: Default::default(),
            seen: Cell::new(durable),
            moved: fabric.signal(),
        }
    }

    pub(super) fn committing(&self, epoch: u64) -> &Cell<u32> {
        &self.committing[(epoch & 1) as usize]
    }

    /// The epoch up to which what this core has gathered and persisted is all that it has
    /// committed, or will commit, if the present one is `now`.
    pub(super) fn complete(&self, now: u64) -> u64 {
        // Transactions that begin from now on are of this epoch or a later one. Of those under way
        // none is older than the one before.
        if self.committing(now - 1).get() == 0 { now - 1 } else { now.saturating_sub(2) }
    }
}
