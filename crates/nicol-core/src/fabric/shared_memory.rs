//! Memory that other engines of the node change as well.

use std::future::Future;
use std::sync::Arc;

use super::Local;
use crate::memory::{Doorbell, Region};

/// Memory that other engines of the node, DMAs and one-sided operations change as well.
///
/// Contract: a poll round of the simulator happens at one instant of the shared memory, and what
/// the round costs moves only this engine's clock. So between two awaits no other engine changes
/// anything. In the live world others change memory at any time. Code that is correct there, and
/// awaits [`SharedMemory::access`] before each access that others may interleave with, meets the
/// same interleavings in the simulator.
pub trait SharedMemory: Local {
    /// Resolves when this engine may make its next access: see [`SharedMemory::access`].
    type Access: Future<Output = ()> + Unpin + 'static;

    /// True if other engines come in between at [`SharedMemory::access`]. In the live world they
    /// come at any time, and a point is nothing: a loop that would stop at one for each record need
    /// not.
    const ACCESS_POINTS: bool;

    /// A scheduling point before an access to shared memory. In the simulator this charges what the
    /// profile gives for taking a cache line from another core (`work.access`), and resolves once
    /// that time has passed, so that other engines' rounds come in between. In the live world it is
    /// ready at once, and compiles to nothing (decision 0013).
    fn access(&self) -> Self::Access;

    /// A scheduling point within an access, between two parts of a record that others may change
    /// one after the other: the engine sees what others did until the time charged to this core. It
    /// charges nothing. In the live world it is ready at once, and compiles to nothing.
    fn within_access(&self) -> Self::Access;

    /// Waits until the world's time reaches the time charged to this core, so that the engine sees
    /// what others did until then. A transaction that begins with shared memory awaits this first;
    /// otherwise it might read what was overwritten before it began. Ready at once in the live
    /// world.
    fn caught_up(&self) -> Self::Wake;

    /// Resolves once `doorbell` has rung more often than `seen` times.
    fn wait_for_doorbell(&self, doorbell: &Arc<dyn HasDoorbell>, seen: u64) -> Self::Wake;
}

/// Something with a doorbell that an engine may watch.
pub trait HasDoorbell: Send + Sync + 'static {
    fn doorbell(&self) -> &Doorbell;
}

impl HasDoorbell for Region {
    fn doorbell(&self) -> &Doorbell {
        Self::doorbell(self)
    }
}

impl HasDoorbell for Doorbell {
    fn doorbell(&self) -> &Doorbell {
        self
    }
}
