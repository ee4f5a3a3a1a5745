//! Lookups on the NIC: its index first, the host table by DMA on a miss. [Xenic21 4.1]

use std::cell::RefCell;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, FabricError, Work};
use nicol_core::ids::{Key, Version};
use nicol_store::host_table::{
    BlockRef, Home, HostTable, PageRef, Place, SlotHash, SlotView, Span,
};
use nicol_store::nic_index::IndexLookup;

use super::node::Node;
use crate::commit::messages::Found;

/// Spare batches kept for reuse.
const SPARE_MAX: usize = 1_024;

/// The lookups of one message, in buffers that are reused.
pub(super) struct Batch<F: Fabric> {
    found: Vec<Found>,
    /// The values found, one behind the other.
    pub(super) values: Vec<u8>,
    misses: Vec<Miss<F>>,
}

impl<F: Fabric> Batch<F> {
    /// What was found, in the order of the keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = Found> + Clone {
        self.found.iter().copied()
    }
}

/// A key that the index does not know, with the first DMA read on its way.
struct Miss<F: Fabric> {
    position: usize,
    key: Key,
    epoch: u64,
    /// Where the first read began, and how many slots it took.
    home: Home,
    slots: u64,
    read: F::Completion,
}

/// What a scan of slots found of a key.
enum Scan {
    /// The record, its value appended to the batch's values, and its place in the scan.
    Record { version: Version, value: (u32, u32), position: u16 },
    /// The record's value is out of line.
    OutOfLine { version: Version, block: BlockRef, position: u16 },
    /// A slot was being written.
    Torn,
    /// Not among these slots.
    Nothing,
}

/// How a search of the host table ended.
enum Search {
    Record {
        version: Version,
        value: (u32, u32),
        displacement: u16,
    },
    Absent,
    /// The host was moving or replacing what was read: try again.
    Retry,
}

/// Looks keys up for one NIC engine.
pub(super) struct Lookups<F: Fabric> {
    fabric: F,
    node: Arc<Node>,
    spare: RefCell<Vec<Batch<F>>>,
}

impl<F: Fabric> Lookups<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>) -> Self {
        Self { fabric, node, spare: RefCell::default() }
    }

    pub(super) fn batch(&self) -> Batch<F> {
        self.spare.borrow_mut().pop().unwrap_or_else(|| Batch {
            found: Vec::new(),
            values: Vec::new(),
            misses: Vec::new(),
        })
    }

    pub(super) fn give_back(&self, mut batch: Batch<F>) {
        batch.found.clear();
        batch.values.clear();
        batch.misses.clear();
        let mut spare = self.spare.borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(batch);
        }
    }

    /// Reads every key; the first DMA reads of all misses go out together. What is returned was
    /// current at some instant of this call.
    pub(super) async fn read_all(
        &self,
        keys: impl Iterator<Item = Key>,
        batch: &mut Batch<F>,
    ) -> Result<(), FabricError> {
        for (position, key) in keys.enumerate() {
            self.fabric.work(Work::IndexLookup);
            let found = match self.in_index(key, &mut batch.values) {
                Ok(found) => found,
                Err((displacement, epoch)) => {
                    let slots = self.first_read(displacement);
                    let home = self.home(key);
                    let read = self.dma(&self.node.primary().slots_span(home, 0, slots));
                    batch.misses.push(Miss { position, key, epoch, home, slots, read });
                    Found { version: Version(0), value: None }
                }
            };
            batch.found.push(found);
        }
        let mut misses = std::mem::take(&mut batch.misses);
        for miss in misses.drain(..) {
            let position = miss.position;
            batch.found[position] = self.resolve(miss, &mut batch.values).await?;
        }
        batch.misses = misses;
        Ok(())
    }

    /// Where the key is in a table that has doubled as far as the NIC knows.
    fn home(&self, key: Key) -> Home {
        self.node.primary().home(SlotHash::of(key), self.node.index().known())
    }

    /// AMB-04: the first DMA reads d_i + k + 1 entries, D_m at most.
    fn first_read(&self, displacement: u16) -> u64 {
        let config = self.node.config();
        u64::from((displacement + config.slack + 1).min(config.displacement_max))
    }

    fn dma(&self, span: &Span) -> F::Completion {
        self.fabric.dma_read(&span.region, span.offset, span.len)
    }

    /// The index's answer, or the hint and epoch of a miss.
    fn in_index(&self, key: Key, values: &mut Vec<u8>) -> Result<Found, (u16, u64)> {
        let start = values.len() as u32;
        let segment = self.node.segment(key);
        match self.node.index().lookup(segment, key, values) {
            IndexLookup::Hit { version, present } => {
                let value = present.then_some((start, values.len() as u32 - start));
                Ok(Found { version, value })
            }
            IndexLookup::Miss { displacement, epoch } => Err((displacement, epoch)),
        }
    }

    /// Finishes the lookup of a key that the index missed.
    async fn resolve(&self, miss: Miss<F>, values: &mut Vec<u8>) -> Result<Found, FabricError> {
        let Miss { key, mut epoch, mut home, slots, read, .. } = miss;
        let segment = self.node.segment(key);
        let mut first = Some(read);
        loop {
            let search = self.search(key, home, slots, first.take(), values).await?;
            home = self.home(key);
            // After the DMA the world has moved: what was installed meanwhile is in the index.
            match self.in_index(key, values) {
                Ok(found) => return Ok(found),
                Err((_, now)) if now != epoch => {
                    epoch = now;
                    continue;
                }
                Err(_) => {}
            }
            match search {
                Search::Retry => {}
                Search::Record { version, value, displacement } => {
                    let bytes = &values[value.0 as usize..(value.0 + value.1) as usize];
                    let found = Some((bytes, displacement));
                    self.node.index().learn(segment, key, epoch, version, found);
                    return Ok(Found { version, value: Some(value) });
                }
                Search::Absent => {
                    let version = self.node.index().floor(segment);
                    self.node.index().learn(segment, key, epoch, version, None);
                    return Ok(Found { version, value: None });
                }
            }
        }
    }

    /// Searches the host table: the hinted slots, the rest up to D_m, then the overflow pages.
    async fn search(
        &self,
        key: Key,
        home: Home,
        slots: u64,
        first: Option<F::Completion>,
        values: &mut Vec<u8>,
    ) -> Result<Search, FabricError> {
        let table = self.node.primary();
        let read = first.unwrap_or_else(|| self.dma(&table.slots_span(home, 0, slots)));
        let scan = self.scan(read.await?.as_ref(), key, values);
        if !matches!(scan, Scan::Nothing) {
            return self.settle(scan, key, 0, values).await;
        }
        let reach = u64::from(self.node.config().displacement_max);
        if slots < reach {
            // [Xenic21 4.1.3] The second, adjacent read.
            let rest = self.dma(&table.slots_span(home, slots, reach - slots)).await?;
            let scan = self.scan(rest.as_ref(), key, values);
            if !matches!(scan, Scan::Nothing) {
                return self.settle(scan, key, slots as u16, values).await;
            }
        }
        self.search_overflow(key, home, values).await
    }

    /// Searches the overflow pages, and proves absence: a record that moved left while we read may
    /// have been missed, and then the segment's header has changed or says so.
    async fn search_overflow(
        &self,
        key: Key,
        home: Home,
        values: &mut Vec<u8>,
    ) -> Result<Search, FabricError> {
        let table = self.node.primary();
        let reach = self.node.config().displacement_max;
        let header_span = table.header_span(home);
        let before = self.dma(&header_span).await?;
        let Some(header) = HostTable::parse_header(before.as_ref()) else {
            return Err(FabricError::Malformed);
        };
        let whole = self.dma(&table.slots_span(home, 0, u64::from(reach))).await?;
        let scan = self.scan(whole.as_ref(), key, values);
        if !matches!(scan, Scan::Nothing) {
            return self.settle(scan, key, 0, values).await;
        }
        let mut page: Option<PageRef> = header.overflow;
        while let Some(current) = page {
            let bytes = self.dma(&table.page_span(current)).await?;
            let scan = self.scan(bytes.as_ref(), key, values);
            if !matches!(scan, Scan::Nothing) {
                // [Xenic21 4.1.3] d_i = D_m says that overflow may hold the segment's objects.
                let search = self.settle(scan, key, 0, values).await?;
                return Ok(match search {
                    Search::Record { version, value, .. } => {
                        Search::Record { version, value, displacement: reach - 1 }
                    }
                    other => other,
                });
            }
            page = HostTable::parse_page_link(bytes.as_ref());
        }
        let after = self.dma(&header_span).await?;
        // The host may have split the segment: the next try begins where the key is then.
        self.node.index().follow(table.geometry().progress_of(home.segment, header.level));
        let quiet = before.as_ref() == after.as_ref();
        let proven = quiet && table.proves(SlotHash::of(key), home, &header);
        Ok(if proven { Search::Absent } else { Search::Retry })
    }

    fn scan(&self, bytes: &[u8], key: Key, values: &mut Vec<u8>) -> Scan {
        let mut torn = false;
        for (position, slot) in self.node.primary().parse_slots(bytes).enumerate() {
            let position = position as u16;
            match slot {
                SlotView::Torn => torn = true,
                SlotView::Record { key: found, version, place } if found == key => {
                    return match place {
                        Place::Inline(value) => {
                            let start = values.len() as u32;
                            values.extend_from_slice(value);
                            Scan::Record { version, value: (start, value.len() as u32), position }
                        }
                        Place::OutOfLine(block) => Scan::OutOfLine { version, block, position },
                    };
                }
                SlotView::Empty | SlotView::Record { .. } => {}
            }
        }
        if torn { Scan::Torn } else { Scan::Nothing }
    }

    /// Follows a scan's pointer, if the value is out of line, with a single-object read.
    async fn settle(
        &self,
        scan: Scan,
        key: Key,
        from: u16,
        values: &mut Vec<u8>,
    ) -> Result<Search, FabricError> {
        match scan {
            Scan::Record { version, value, position } => {
                Ok(Search::Record { version, value, displacement: from + position })
            }
            Scan::OutOfLine { version, block, position } => {
                let bytes = self.dma(&self.node.primary().block_span(block)).await?;
                let Some(value) = HostTable::parse_block(bytes.as_ref(), key, version, block.len)
                else {
                    return Ok(Search::Retry);
                };
                let start = values.len() as u32;
                values.extend_from_slice(value);
                let value = (start, value.len() as u32);
                Ok(Search::Record { version, value, displacement: from + position })
            }
            Scan::Torn => Ok(Search::Retry),
            Scan::Nothing => Ok(Search::Absent),
        }
    }
}
