//! How much a SoC has to do, by core: what tells A2 + A3 that it takes no more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Chunks of a core of the SoC, at most: one in each stage of its way, which is fetched,
/// compressed, written to the next SoC, or acknowledged along the chain. With all four no stage
/// waits for a chunk; a further one would wait for it.
const CHUNKS_OF_A_CORE: u32 = 4;

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
    fn a_core_takes_a_chunk_for_each_stage_and_another_one_when_one_is_done() {
        let load = SocLoad::new(2);
        let mut taken: Vec<AtSoc> = (0..CHUNKS_OF_A_CORE).filter_map(|_| load.take(1)).collect();
        assert_eq!(taken.len(), CHUNKS_OF_A_CORE as usize);
        assert!(load.take(1).is_none(), "it is saturated");
        let _of_the_other = load.take(0).unwrap();
        drop(taken.pop());
        assert!(load.take(1).is_some());
    }
}
