//! [`SharedMemory`] for engines.

use std::sync::Arc;

use super::completions::Waits;
use super::{Engine, Wake, World};
use crate::fabric::{HasDoorbell, Local, SharedMemory};

impl<W: World> SharedMemory for Engine<W> {
    type Access = W::Access;
    const ACCESS_POINTS: bool = W::ACCESS_POINTS;

    fn access(&self) -> W::Access {
        self.world().access(|| self.yield_now())
    }

    fn within_access(&self) -> W::Access {
        self.world().within_access(|| self.yield_now())
    }

    fn caught_up(&self) -> Wake {
        if self.world().is_ahead() {
            return self.yield_now();
        }
        Wake(Waits::Ready)
    }

    fn wait_for_doorbell(&self, doorbell: &Arc<dyn HasDoorbell>, seen: u64) -> Wake {
        Wake(Waits::Event(self.0.watches.watch(self.site(), doorbell, seen)))
    }
}
