//! The doorbells that an engine's tasks wait for.

use std::cell::RefCell;
use std::sync::Arc;

use super::completions::{Completion, Token};
use super::{World, site::Site};
use crate::fabric::HasDoorbell;

struct Watch {
    doorbell: Arc<dyn HasDoorbell>,
    seen: u64,
    token: Token,
}

impl Watch {
    fn has_rung(&self) -> bool {
        self.doorbell.doorbell().rings() > self.seen
    }
}

/// The doorbells that are watched: none at most engines.
#[derive(Default)]
pub(super) struct Watches(RefCell<Vec<Watch>>);

impl Watches {
    /// Resolves once `doorbell` has rung more than `seen` times.
    pub(super) fn watch<W: World>(
        &self,
        site: &Site<W>,
        doorbell: &Arc<dyn HasDoorbell>,
        seen: u64,
    ) -> Completion {
        let (token, completion) = site.completions().open();
        let watch = Watch { doorbell: doorbell.clone(), seen, token };
        if watch.has_rung() {
            site.wake(token);
        } else {
            site.world().watch(doorbell);
            self.0.borrow_mut().push(watch);
        }
        completion
    }

    /// True if one of them has rung since it was watched.
    pub(super) fn have_rung(&self) -> bool {
        self.0.borrow().iter().any(Watch::has_rung)
    }

    /// Wakes the tasks whose doorbells have rung; true if there was one.
    pub(super) fn poll<W: World>(&self, site: &Site<W>) -> bool {
        let mut progress = false;
        let mut watches = self.0.borrow_mut();
        // Most engines watch none.
        if watches.is_empty() {
            return false;
        }
        watches.retain(|watch| {
            let rung = watch.has_rung();
            if rung {
                site.wake(watch.token);
                progress = true;
            }
            !rung
        });
        progress
    }
}
