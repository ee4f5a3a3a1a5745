//! Lookups on the NIC: its index first, the host table by DMA on a miss. [Xenic21 4.1]

use std::cell::RefCell;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, FabricError, Work};
use nicol_core::ids::{Key, Version};
use nicol_store::host_table::{
    BlockRef, Home, HostTable, PAGE_SLOTS, PageRef, Place, SegmentHeader, SlotHash, SlotView, Span,
};
use nicol_store::nic_index::{Hint, IndexLookup};

use super::lookup_stats::{Count, LookupCounters};
use super::node::Node;
use super::ordered::Asked;
use crate::commit::messages::Found;

/// Spare batches kept for reuse.
const SPARE_MAX: usize = 1_024;

/// The lookups of one message, in buffers that are reused.
pub(super) struct Batch<F: Fabric> {
    found: Vec<Found>,
    /// The values found, one behind the other.
    pub(super) values: Vec<u8>,
    misses: Vec<Miss<F>>,
    /// Keys of ordered tables that the host must be asked for.
    pub(super) asked: Vec<Asked>,
}

impl<F: Fabric> Batch<F> {
    pub(super) fn set(&mut self, position: usize, found: Found) {
        self.found[position] = found;
    }

    /// What was found, in the order of the keys.
    pub(super) fn iter(&self) -> impl Iterator<Item = Found> + Clone {
        self.found.iter().copied()
    }
}

/// A key that the index does not know, with the first DMA read on its way.
struct Miss<F: Fabric> {
    position: usize,
    key: Key,
    /// What the index knew before the read.
    hint: Hint,
    /// Where the read began, and how many slots it took.
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
    /// The host was moving or replacing what was read, or the table has grown: try again.
    Retry,
    /// Not found, but it may have moved past the reads: try again, with the header known now.
    Unproven,
}

/// Looks keys up for one NIC engine.
pub(super) struct Lookups<F: Fabric> {
    pub(super) fabric: F,
    node: Arc<Node>,
    core: u8,
    spare: RefCell<Vec<Batch<F>>>,
}

impl<F: Fabric> Lookups<F> {
    pub(super) fn new(fabric: F, node: Arc<Node>) -> Self {
        let core = fabric.here().core;
        Self { fabric, node, core, spare: RefCell::default() }
    }

    pub(super) fn batch(&self) -> Batch<F> {
        self.spare.borrow_mut().pop().unwrap_or_else(|| Batch {
            found: Vec::new(),
            values: Vec::new(),
            misses: Vec::new(),
            asked: Vec::new(),
        })
    }

    pub(super) fn give_back(&self, mut batch: Batch<F>) {
        batch.found.clear();
        batch.values.clear();
        batch.misses.clear();
        batch.asked.clear();
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
            self.counters().add(Count::Lookups, 1);
            let found = match self.in_index(key, &mut batch.values) {
                Ok(found) => {
                    self.counters().add(Count::Hits, 1);
                    self.counters().add(Count::NegativeHits, u64::from(found.value.is_none()));
                    found
                }
                Err(hint) if key.is_ordered() => {
                    batch.asked.push(Asked { position, key, epoch: hint.epoch });
                    Found { version: Version(0), value: None }
                }
                Err(hint) => {
                    let slots = self.first_read(hint.displacement);
                    let home = self.home(key);
                    let read = self.read_slots(home, 0, slots);
                    batch.misses.push(Miss { position, key, hint, home, slots, read });
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
        self.ask_host(batch).await
    }

    pub(super) fn node(&self) -> &Node {
        &self.node
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

    fn counters(&self) -> &LookupCounters {
        self.node.lookup_counters(self.core)
    }

    fn dma(&self, span: &Span, objects: u64) -> F::Completion {
        self.counters().add(Count::Reads, 1);
        self.counters().add(Count::Objects, objects);
        self.counters().add(Count::Bytes, span.len as u64);
        self.fabric.dma_read(&span.region, span.offset, span.len)
    }

    fn read_slots(&self, home: Home, from: u64, count: u64) -> F::Completion {
        self.dma(&self.node.primary().slots_span(home, from, count), count)
    }

    /// The index's answer, or the hint of a miss.
    pub(super) fn in_index(&self, key: Key, values: &mut Vec<u8>) -> Result<Found, Hint> {
        let start = values.len() as u32;
        match self.node.index().lookup(SlotHash::of(key), key, values) {
            IndexLookup::Hit { version, present } => {
                let value = present.then_some((start, values.len() as u32 - start));
                Ok(Found { version, value })
            }
            IndexLookup::Miss(hint) => Err(hint),
        }
    }

    /// Finishes the lookup of a key that the index missed.
    async fn resolve(&self, miss: Miss<F>, values: &mut Vec<u8>) -> Result<Found, FabricError> {
        let Miss { key, mut hint, mut home, mut slots, read, .. } = miss;
        let (index, hash) = (self.node.index(), SlotHash::of(key));
        let mut first = Some(read);
        loop {
            let search = self.search(key, home, slots, &hint, first.take(), values).await?;
            // After the DMA the world has moved: what was installed meanwhile is in the index.
            let now = match self.in_index(key, values) {
                Ok(found) => return Ok(found),
                Err(now) => now,
            };
            if now.epoch == hint.epoch {
                match search {
                    Search::Retry => {}
                    Search::Unproven => slots = u64::from(self.node.config().displacement_max),
                    Search::Record { version, value, displacement } => {
                        let bytes = &values[value.0 as usize..(value.0 + value.1) as usize];
                        index.learn(hash, key, now.epoch, version, Some((bytes, displacement)));
                        return Ok(Found { version, value: Some(value) });
                    }
                    Search::Absent => {
                        let version = index.floor(hash);
                        index.learn(hash, key, now.epoch, version, None);
                        return Ok(Found { version, value: None });
                    }
                }
            }
            self.counters().add(Count::Retries, 1);
            (hint, home) = (now, self.home(key));
        }
    }

    /// Searches the host table: the hinted slots, the rest up to D_m, then the overflow pages.
    async fn search(
        &self,
        key: Key,
        home: Home,
        slots: u64,
        hint: &Hint,
        first: Option<F::Completion>,
        values: &mut Vec<u8>,
    ) -> Result<Search, FabricError> {
        let read = first.unwrap_or_else(|| self.read_slots(home, 0, slots));
        let scan = self.scan(read.await?.as_ref(), key, values);
        self.counters().add(Count::FirstReads, u64::from(matches!(scan, Scan::Record { .. })));
        if !matches!(scan, Scan::Nothing) {
            return self.settle(scan, key, 0, values).await;
        }
        let reach = u64::from(self.node.config().displacement_max);
        if slots < reach {
            // [Xenic21 4.1.3] The second, adjacent read.
            self.counters().add(Count::SecondReads, 1);
            let rest = self.read_slots(home, slots, reach - slots).await?;
            let scan = self.scan(rest.as_ref(), key, values);
            if !matches!(scan, Scan::Nothing) {
                return self.settle(scan, key, slots as u16, values).await;
            }
        }
        // [Xenic21 4.1.3] d_i = D_m: the segment's overflow page instead, if its address is known.
        match self.search_pages(hint.overflow, key, values).await? {
            Some(search) => Ok(search),
            None => self.prove_absence(key, home, hint, values).await,
        }
    }

    /// Searches a chain of overflow pages; `None` if the key is not in it.
    async fn search_pages(
        &self,
        first: Option<PageRef>,
        key: Key,
        values: &mut Vec<u8>,
    ) -> Result<Option<Search>, FabricError> {
        let (mut page, reach) = (first, self.node.config().displacement_max);
        while let Some(current) = page {
            self.counters().add(Count::OverflowReads, 1);
            let bytes = self.dma(&self.node.primary().page_span(current), PAGE_SLOTS).await?;
            let scan = self.scan(bytes.as_ref(), key, values);
            if !matches!(scan, Scan::Nothing) {
                // d_i = D_m says that overflow may hold the segment's objects.
                let search = self.settle(scan, key, 0, values).await?;
                return Ok(Some(match search {
                    Search::Record { version, value, .. } => {
                        Search::Record { version, value, displacement: reach - 1 }
                    }
                    other => other,
                }));
            }
            page = HostTable::parse_page_link(bytes.as_ref());
        }
        Ok(None)
    }

    /// Proves that a key is absent which was not found where `hint` said: a record that moved to
    /// the left or away while we read may have been missed, and then the segment's header says so,
    /// or its move counter is no longer what it was before the reads. Also finds overflow pages that
    /// the index does not know.
    async fn prove_absence(
        &self,
        key: Key,
        home: Home,
        hint: &Hint,
        values: &mut Vec<u8>,
    ) -> Result<Search, FabricError> {
        let (table, hash) = (self.node.primary(), SlotHash::of(key));
        let header = self.read_header(key, home).await?;
        if !table.proves(hash, home, &header) {
            return Ok(Search::Retry);
        }
        let searched = hint.seen == Some((home.segment, header.moves));
        if header.overflow != hint.overflow {
            if let Some(search) = self.search_pages(header.overflow, key, values).await? {
                return Ok(search);
            }
            if header.overflow.is_some() && searched {
                let after = self.read_header(key, home).await?;
                let quiet = table.proves(hash, home, &after) && after.moves == header.moves;
                return Ok(if quiet { Search::Absent } else { Search::Unproven });
            }
        }
        Ok(if searched { Search::Absent } else { Search::Unproven })
    }

    /// Reads the header of `home`'s segment; the index learns from it.
    async fn read_header(&self, key: Key, home: Home) -> Result<SegmentHeader, FabricError> {
        let (table, index) = (self.node.primary(), self.node.index());
        self.counters().add(Count::HeaderReads, 1);
        let bytes = self.dma(&table.header_span(home), 0).await?;
        let Some(header) = HostTable::parse_header(bytes.as_ref()) else {
            return Err(FabricError::Malformed);
        };
        // The host may have split the segment: the next try begins where the key is then.
        index.follow(table.geometry().progress_of(home.segment, header.level));
        index.learn_header(SlotHash::of(key), home.segment, &header);
        Ok(header)
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
                let bytes = self.dma(&self.node.primary().block_span(block), 1).await?;
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
