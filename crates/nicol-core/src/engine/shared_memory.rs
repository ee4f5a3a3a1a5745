//! [`SharedMemory`] for engines.

use std::sync::Arc;

use super::completions::Waits;
use super::{Engine, Wake, Watch, World};
use crate::fabric::{HasDoorbell, Local, SharedMemory};

impl<W: World> SharedMemory for Engine<W> {
    type Access = W::Access;
    const ACCESS_POINTS: bool = W::ACCESS_POINTS;

    fn access(&self) -> W::Access {
        self.0.world.access(|| self.yield_now())
    }

    fn within_access(&self) -> W::Access {
        self.0.world.within_access(|| self.yield_now())
    }

    fn caught_up(&self) -> Wake {
        if self.0.world.is_ahead() {
            return self.yield_now();
        }
        Wake(Waits::Ready)
    }

    fn wait_for_doorbell(&self, doorbell: &Arc<dyn HasDoorbell>, seen: u64) -> Wake {
        let (token, completion) = self.0.completions.open();
        if doorbell.doorbell().rings() > seen {
            self.0.wake(token);
        } else {
            self.0.world.watch(doorbell);
            self.0.watches.borrow_mut().push(Watch { doorbell: doorbell.clone(), seen, token });
        }
        Wake(Waits::Event(completion))
    }
}
