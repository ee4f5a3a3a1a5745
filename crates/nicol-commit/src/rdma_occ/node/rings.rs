//! The rings that other engines write in a node's memory, made when their writers first ask for
//! them: of many engines of a cluster few work with one node.

use std::sync::{Arc, OnceLock};

use nicol_core::units::Bytes;

use crate::log::LogMemory;

/// A ring for each host engine of the cluster that has asked for one, by the engine's index among
/// them.
#[derive(Debug)]
pub(super) struct Rings {
    size: Bytes,
    rings: Box<[OnceLock<Arc<LogMemory>>]>,
}

impl Rings {
    /// Rings of `size` bytes for so many engines.
    pub(super) fn new(engines: usize, size: Bytes) -> Self {
        Self { size, rings: (0..engines).map(|_| OnceLock::new()).collect() }
    }

    /// Are there none, for no engine?
    pub(super) fn is_empty(&self) -> bool {
        self.rings.is_empty()
    }

    /// The ring of the engine at `index`, made now if it is the first time.
    pub(super) fn of(&self, index: usize) -> &Arc<LogMemory> {
        self.rings[index].get_or_init(|| Arc::new(LogMemory::new(self.size)))
    }

    /// Those that there are, each with the index of its engine.
    pub(super) fn made(&self) -> impl Iterator<Item = (usize, &Arc<LogMemory>)> {
        self.rings.iter().enumerate().filter_map(|(index, ring)| Some((index, ring.get()?)))
    }
}
