//! Lookups on the NIC: its index first, the host table by DMA on a miss. [Xenic21 4.1]

mod search;
pub(in crate::xenic) mod stats;
mod trees;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, FabricError, Work};
use nicol_core::ids::{Key, Version};
use nicol_store::host_table::SlotHash;
use nicol_store::nic_index::{Hint, IndexLookup};

use crate::messages::Found;
use crate::xenic::node::Node;
use search::Search;
use stats::{Count, LookupCounters};
use trees::Asked;

/// Spare batches kept for reuse.
const SPARE_MAX: usize = 1_024;

/// The lookups of one message, in buffers that are reused.
pub(in crate::xenic) struct Batch<F: Fabric> {
    found: Vec<Found>,
    /// The values found, one behind the other.
    pub(in crate::xenic) values: Vec<u8>,
    /// Searches of the host table, each with the read that it waits for.
    searches: VecDeque<(Search, F::Completion)>,
    /// Keys of ordered tables that the host must be asked for.
    asked: Vec<Asked>,
}

impl<F: Fabric> Batch<F> {
    fn set(&mut self, position: usize, found: Found) {
        self.found[position] = found;
    }

    /// What was found, in the order of the keys.
    pub(in crate::xenic) fn iter(&self) -> impl Iterator<Item = Found> + Clone {
        self.found.iter().copied()
    }
}

/// Looks keys up for one NIC engine.
pub(in crate::xenic) struct Lookups<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    core: u8,
    spare: RefCell<Vec<Batch<F>>>,
}

impl<F: Fabric> Lookups<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>) -> Self {
        let core = fabric.here().core;
        Self { fabric, node, core, spare: RefCell::default() }
    }

    /// An empty batch; see [`Lookups::give_back`].
    pub(in crate::xenic) fn batch(&self) -> Batch<F> {
        self.spare.borrow_mut().pop().unwrap_or_else(|| Batch {
            found: Vec::new(),
            values: Vec::new(),
            searches: VecDeque::new(),
            asked: Vec::new(),
        })
    }

    pub(in crate::xenic) fn give_back(&self, mut batch: Batch<F>) {
        batch.found.clear();
        batch.values.clear();
        batch.searches.clear();
        batch.asked.clear();
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(batch);
        }
    }

    /// Reads every key; the DMA reads of all misses go out side by side. What is returned was
    /// current at some instant of this call.
    pub(in crate::xenic) async fn read_all(
        &self,
        keys: impl Iterator<Item = Key>,
        batch: &mut Batch<F>,
    ) -> Result<(), FabricError> {
        for (position, key) in keys.enumerate() {
            self.fabric.work(Work::IndexLookup);
            self.counters().add(Count::Lookups, 1);
            let found = match self.in_index(key, &mut batch.values) {
                Err(hint) if key.is_ordered() => self.confirm_absent(key, hint.epoch).ok_or(hint),
                found => found,
            };
            if let Ok(found) = found {
                self.counters().add(Count::Hits, 1);
                self.counters().add(Count::NegativeHits, u64::from(found.value.is_none()));
            }
            batch.found.push(found.unwrap_or(Found { version: Version(0), value: None }));
            match found {
                Ok(_) => {}
                Err(hint) if key.is_ordered() => {
                    self.counters().add(Count::Asked, 1);
                    batch.asked.push(Asked { position, key, epoch: hint.epoch });
                }
                Err(hint) => self.begin_search(batch, position, key, hint),
            }
        }
        // Mostly the index knows every key.
        if !batch.searches.is_empty() {
            self.search_all(batch).await?;
        }
        if !batch.asked.is_empty() {
            self.ask_host(batch).await?;
        }
        Ok(())
    }

    /// The index's answer, or the hint of a miss.
    fn in_index(&self, key: Key, values: &mut Vec<u8>) -> Result<Found, Hint> {
        let start = values.len() as u32;
        match self.node.index_of(key).lookup(SlotHash::of(key), key, values) {
            IndexLookup::Hit { version, present } => {
                let value = present.then_some((start, values.len() as u32 - start));
                Ok(Found { version, value })
            }
            IndexLookup::Miss(hint) => Err(hint),
        }
    }

    fn counters(&self) -> &LookupCounters {
        self.node.lookup_counters(self.core)
    }
}
