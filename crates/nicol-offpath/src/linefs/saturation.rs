//! How much a SoC has to do, by core: what tells A2 + A3 that it takes no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Chunks of a core of the SoC, at most: one that it works on, and one that is fetched meanwhile.
/// With both the core never waits for a chunk; a further one would wait for it.
const CHUNKS_OF_A_CORE: u32 = 2;

/// By core, the chunks of this node's log that it has and that are not acknowledged.
#[derive(Clone, Debug)]
pub(super) struct SocLoad(Arc<[AtomicU32]>);

/// A chunk that counts at a core of the SoC, until it is dropped.
#[must_use = "the core has the chunk until this is dropped"]
#[derive(Debug)]
pub(super) struct AtSoc {
    load: SocLoad,
    core: usize,
}

impl SocLoad {
    /// Of so many cores.
    pub(super) fn new(cores: usize) -> Self {
        Self((0..cores).map(|_| AtomicU32::new(0)).collect())
    }

    /// Gives a core a chunk; `None` if it is saturated.
    pub(super) fn take(&self, core: u8) -> Option<AtSoc> {
        let core = usize::from(core);
        let more = |has| (has < CHUNKS_OF_A_CORE).then_some(has + 1);
        let order = (Ordering::Relaxed, Ordering::Relaxed);
        self.0[core].fetch_update(order.0, order.1, more).ok()?;
        Some(AtSoc { load: self.clone(), core })
    }
}

impl Drop for AtSoc {
    fn drop(&mut self) {
        self.load.0[self.core].fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_core_takes_two_chunks_and_another_one_when_one_is_done() {
        let load = SocLoad::new(2);
        let (first, second) = (load.take(1), load.take(1));
        assert!(first.is_some() && second.is_some());
        assert!(load.take(1).is_none(), "it is saturated");
        let _of_the_other = load.take(0).unwrap();
        drop(first);
        assert!(load.take(1).is_some());
    }
}
