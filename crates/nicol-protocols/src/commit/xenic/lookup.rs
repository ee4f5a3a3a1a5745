//! Lookups on the NIC: its index first, the host table by DMA on a miss. [Xenic21 4.1]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::Arc;

use nicol_core::fabric::{Fabric, FabricError, Work};
use nicol_core::ids::{Key, Version};
use nicol_store::host_table::{
    BlockRef, Home, HostTable, PAGE_SLOTS, PageRef, SegmentHeader, SlotHash, SlotView, Span,
    StoredValue,
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
    misses: VecDeque<(Miss, F::Completion)>,
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

/// A key that the index does not know, and how far the search for it has come.
#[derive(Clone, Copy)]
struct Miss {
    position: usize,
    key: Key,
    /// What the index knew before the search.
    hint: Hint,
    /// Where the search began, and how many slots its first read takes.
    home: Home,
    slots: u64,
    at: At,
}

/// What a search is reading.
#[derive(Clone, Copy)]
enum At {
    /// The hinted slots.
    First,
    /// The slots behind them, up to D_m.
    Second,
    /// An overflow page of a chain that `header` told of, or else the hint.
    Page { page: PageRef, header: Option<SegmentHeader> },
    /// The segment's header. `before`: as it was before the pages that it told of were read.
    Header { before: Option<SegmentHeader> },
    /// The value of a record found that is out of line.
    Block { block: BlockRef, version: Version, displacement: u16 },
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

/// What a read of a search has led to.
enum Next {
    Read(At),
    Over(Search),
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
            misses: VecDeque::new(),
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

    /// Reads every key; the DMA reads of all misses go out side by side. What is returned was
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
                Err(hint) => {
                    let (home, slots) = (self.home(key), self.first_read(hint.displacement));
                    self.read(batch, Miss { position, key, hint, home, slots, at: At::First });
                }
            }
        }
        self.search_all(batch).await?;
        self.ask_host(batch).await
    }

    /// Searches the host table for every miss. All are under way together: one that must read on
    /// goes to the end of the queue, so that its next read shares a vector with the others'.
    /// [Xenic21 4.3.1]
    async fn search_all(&self, batch: &mut Batch<F>) -> Result<(), FabricError> {
        while let Some((miss, read)) = batch.misses.pop_front() {
            let bytes = read.await?;
            match self.look(&miss, bytes.as_ref(), &mut batch.values)? {
                Next::Read(at) => self.read(batch, Miss { at, ..miss }),
                Next::Over(search) => self.conclude(miss, search, batch),
            }
        }
        Ok(())
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

    pub(super) fn counters(&self) -> &LookupCounters {
        self.node.lookup_counters(self.core)
    }

    fn dma(&self, span: &Span, objects: u64) -> F::Completion {
        self.counters().add(Count::Reads, 1);
        self.counters().add(Count::Objects, objects);
        self.counters().add(Count::Bytes, span.len as u64);
        self.fabric.dma_read(&span.region, span.offset, span.len)
    }

    /// Submits what `miss` reads next.
    fn read(&self, batch: &mut Batch<F>, miss: Miss) {
        let (table, Miss { home, slots, .. }) = (self.node.primary(), miss);
        let (count, span, objects) = match miss.at {
            At::First => (None, table.slots_span(home, 0, slots), slots),
            At::Second => {
                let rest = self.probe_length() - slots;
                (Some(Count::SecondReads), table.slots_span(home, slots, rest), rest)
            }
            At::Page { page, .. } => {
                (Some(Count::OverflowReads), table.page_span(page), PAGE_SLOTS)
            }
            At::Header { .. } => (Some(Count::HeaderReads), table.header_span(home), 0),
            At::Block { block, .. } => (None, table.block_span(block), 1),
        };
        if let Some(count) = count {
            self.counters().add(count, 1);
        }
        let read = self.dma(&span, objects);
        batch.misses.push_back((miss, read));
    }

    /// D_m.
    fn probe_length(&self) -> u64 {
        u64::from(self.node.config().displacement_max)
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

    /// Takes the end of a search: what was found counts if nothing was installed meanwhile.
    fn conclude(&self, miss: Miss, search: Search, batch: &mut Batch<F>) {
        let Miss { position, key, hint, mut slots, .. } = miss;
        let (index, hash) = (self.node.index(), SlotHash::of(key));
        // After the DMA the world has moved: what was installed meanwhile is in the index.
        let now = match self.in_index(key, &mut batch.values) {
            Ok(found) => return batch.set(position, found),
            Err(now) => now,
        };
        if now.epoch == hint.epoch {
            match search {
                Search::Retry => {}
                Search::Unproven => slots = self.probe_length(),
                Search::Record { version, value, displacement } => {
                    let bytes = &batch.values[value.0 as usize..(value.0 + value.1) as usize];
                    index.learn(hash, key, now.epoch, version, Some((bytes, displacement)));
                    return batch.set(position, Found { version, value: Some(value) });
                }
                Search::Absent => {
                    let version = index.floor(hash);
                    index.learn(hash, key, now.epoch, version, None);
                    return batch.set(position, Found { version, value: None });
                }
            }
        }
        self.counters().add(Count::Retries, 1);
        let home = self.home(key);
        self.read(batch, Miss { position, key, hint: now, home, slots, at: At::First });
    }

    /// Takes what a read brought. A search reads the hinted slots, the rest up to D_m, the overflow
    /// pages that the index knows, and the segment's header.
    fn look(&self, miss: &Miss, bytes: &[u8], values: &mut Vec<u8>) -> Result<Next, FabricError> {
        Ok(match miss.at {
            At::First => {
                let scan = self.scan(bytes, miss.key, values);
                let found = matches!(scan, Scan::Record { .. });
                self.counters().add(Count::FirstReads, u64::from(found));
                settle(scan, |position| position).unwrap_or_else(|| {
                    if miss.slots < self.probe_length() {
                        // [Xenic21 4.1.3] The second, adjacent read.
                        Next::Read(At::Second)
                    } else {
                        after_slots(miss)
                    }
                })
            }
            At::Second => {
                settle(self.scan(bytes, miss.key, values), |position| miss.slots as u16 + position)
                    .unwrap_or_else(|| after_slots(miss))
            }
            At::Page { header, .. } => {
                // d_i = D_m says that overflow may hold the segment's objects.
                let overflowed = self.probe_length() as u16 - 1;
                settle(self.scan(bytes, miss.key, values), |_| overflowed).unwrap_or_else(|| {
                    match HostTable::parse_page_link(bytes) {
                        Some(page) => Next::Read(At::Page { page, header }),
                        None => after_pages(miss, header),
                    }
                })
            }
            At::Header { before } => self.prove_absence(miss, bytes, before)?,
            At::Block { block, version, displacement } => {
                Next::Over(match HostTable::parse_block(bytes, miss.key, version, block.len) {
                    Some(value) => {
                        let value = append(values, value);
                        Search::Record { version, value, displacement }
                    }
                    None => Search::Retry,
                })
            }
        })
    }

    /// Proves that a key is absent which was not found where the hint said: a record that moved to
    /// the left or away while we read may have been missed, and then the segment's header says so,
    /// or its move counter is no longer what it was before the reads. Also finds overflow pages
    /// that the index does not know; then the header is read once more behind them.
    fn prove_absence(
        &self,
        miss: &Miss,
        bytes: &[u8],
        before: Option<SegmentHeader>,
    ) -> Result<Next, FabricError> {
        let Some(header) = HostTable::parse_header(bytes) else {
            return Err(FabricError::Malformed);
        };
        let (table, index) = (self.node.primary(), self.node.index());
        let (home, hash) = (miss.home, SlotHash::of(miss.key));
        // The host may have split the segment: the next try begins where the key is then.
        index.follow(table.geometry().progress_of(home.segment, header.level));
        index.learn_header(hash, home.segment, &header);
        let proves = table.proves(hash, home, &header);
        Ok(match (before, header.overflow) {
            (Some(before), _) if proves && header.moves == before.moves => {
                Next::Over(Search::Absent)
            }
            (Some(_), _) => Next::Over(Search::Unproven),
            (None, _) if !proves => Next::Over(Search::Retry),
            (None, Some(page)) if miss.hint.overflow != Some(page) => {
                Next::Read(At::Page { page, header: Some(header) })
            }
            (None, _) if searched_since(miss, &header) => Next::Over(Search::Absent),
            (None, _) => Next::Over(Search::Unproven),
        })
    }

    fn scan(&self, bytes: &[u8], key: Key, values: &mut Vec<u8>) -> Scan {
        let mut torn = false;
        for (position, slot) in self.node.primary().parse_slots(bytes).enumerate() {
            let position = position as u16;
            match slot {
                SlotView::Torn => torn = true,
                SlotView::Record { key: found, version, stored } if found == key => {
                    return match stored {
                        StoredValue::Inline(value) => {
                            Scan::Record { version, value: append(values, value), position }
                        }
                        StoredValue::OutOfLine(block) => {
                            Scan::OutOfLine { version, block, position }
                        }
                    };
                }
                SlotView::Empty | SlotView::Record { .. } => {}
            }
        }
        self.counters().add(Count::Torn, u64::from(torn));
        if torn { Scan::Torn } else { Scan::Nothing }
    }
}

/// Where a search goes on that has found nothing in the slots. [Xenic21 4.1.3] d_i = D_m: the
/// segment's overflow page instead, if its address is known.
fn after_slots(miss: &Miss) -> Next {
    Next::Read(match miss.hint.overflow {
        Some(page) => At::Page { page, header: None },
        None => At::Header { before: None },
    })
}

/// Where a search goes on that has found nothing in overflow pages, of which `header` told.
fn after_pages(miss: &Miss, header: Option<SegmentHeader>) -> Next {
    match header {
        Some(header) if !searched_since(miss, &header) => Next::Over(Search::Unproven),
        before => Next::Read(At::Header { before }),
    }
}

/// Has nothing moved to the left or away between the miss and `header`?
fn searched_since(miss: &Miss, header: &SegmentHeader) -> bool {
    miss.hint.seen == Some((miss.home.segment, header.moves))
}

/// What a scan leads to, where `displacement` tells a position's; `None` if it found nothing.
fn settle(scan: Scan, displacement: impl Fn(u16) -> u16) -> Option<Next> {
    Some(match scan {
        Scan::Record { version, value, position } => {
            let displacement = displacement(position);
            Next::Over(Search::Record { version, value, displacement })
        }
        // A single-object read follows the pointer.
        Scan::OutOfLine { version, block, position } => {
            let displacement = displacement(position);
            Next::Read(At::Block { block, version, displacement })
        }
        // AMB-03: in place of an abort of the host's hardware transaction.
        Scan::Torn => Next::Over(Search::Retry),
        Scan::Nothing => return None,
    })
}

/// Appends a value to those of a batch; where it is.
fn append(values: &mut Vec<u8>, value: &[u8]) -> (u32, u32) {
    let start = values.len() as u32;
    values.extend_from_slice(value);
    (start, value.len() as u32)
}
