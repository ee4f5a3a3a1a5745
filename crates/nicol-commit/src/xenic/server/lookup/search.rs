//! The search of the host table for a key that the NIC's index does not know: a few DMA reads, one
//! after the other. [Xenic21 4.1.3]
//!
//! A search reads the hinted slots, the rest up to D_m, the overflow pages that the index knows,
//! and the segment's header, until one of them shows the record or proves that there is none.

use nicol_core::fabric::{Fabric, FabricError};
use nicol_core::ids::{Key, Version};
use nicol_store::host_table::{
    BlockRef, Home, HostTable, PAGE_SLOTS, PageRef, SegmentHeader, SlotHash, SlotView, StoredValue,
};
use nicol_store::nic_index::Hint;

use super::stats::Count;
use super::{Batch, Lookups};
use crate::messages::Found;

/// A search for one key, and how far it has come.
#[derive(Clone, Copy)]
pub(super) struct Search {
    /// The key's position in the batch.
    position: usize,
    key: Key,
    /// What the index knew before the search.
    hint: Hint,
    /// Where the search began, and how many slots its first read takes.
    home: Home,
    slots: u64,
    reading: Reading,
}

/// What a search is reading.
#[derive(Clone, Copy)]
enum Reading {
    /// The hinted slots.
    Hinted,
    /// The slots behind them, up to D_m.
    Rest,
    /// An overflow page of a chain that `header` told of, or else the hint.
    Page { page: PageRef, header: Option<SegmentHeader> },
    /// The segment's header. `before`: as it was before the pages that it told of were read.
    Header { before: Option<SegmentHeader> },
    /// The value of a record found that is out of line.
    Block { block: BlockRef, version: Version, displacement: u16 },
}

/// What a read has led to.
enum Step {
    /// The search reads on.
    Read(Reading),
    /// The record, its value appended to the batch's values.
    Found { version: Version, value: (u32, u32), displacement: u16 },
    /// There is no such record.
    Absent,
    /// The host was moving or replacing what was read, or the table has grown: begin again.
    Retry,
    /// Not found, but it may have moved past the reads: begin again, with the header known now.
    Unproven,
}

impl<F: Fabric> Lookups<F> {
    /// Begins to search for a key that the index does not know.
    pub(super) fn begin_search(&self, batch: &mut Batch<F>, position: usize, key: Key, hint: Hint) {
        let slots = self.hinted_slots(hint.displacement);
        self.search_from_home(batch, position, key, hint, slots);
    }

    fn search_from_home(
        &self,
        batch: &mut Batch<F>,
        position: usize,
        key: Key,
        hint: Hint,
        slots: u64,
    ) {
        // Where the key is in a table that has doubled as far as the NIC knows.
        let home = self.node.table_of(key).home(SlotHash::of(key), self.node.index_of(key).known());
        self.submit(batch, Search { position, key, hint, home, slots, reading: Reading::Hinted });
    }

    /// Ends every search. All are under way together: one that must read on goes to the end of the
    /// queue, so that its next read shares a vector with the others'. [Xenic21 4.3.1]
    pub(super) async fn search_all(&self, batch: &mut Batch<F>) -> Result<(), FabricError> {
        while let Some((search, read)) = batch.searches.pop_front() {
            let bytes = read.await?;
            match self.examine(&search, bytes.as_ref(), &mut batch.values)? {
                Step::Read(reading) => self.submit(batch, Search { reading, ..search }),
                end => self.end_search(search, end, batch),
            }
        }
        Ok(())
    }

    /// Entries of the first DMA.
    fn hinted_slots(&self, displacement: u16) -> u64 {
        let config = self.node.config();
        let limit = config.displacement_max;
        u64::from(config.first_read.entries(displacement, config.slack, limit))
    }

    /// D_m.
    fn probe_length(&self) -> u64 {
        u64::from(self.node.config().displacement_max)
    }

    /// Submits what `search` reads next.
    fn submit(&self, batch: &mut Batch<F>, search: Search) {
        let (table, Search { home, slots, .. }) = (self.node.table_of(search.key), search);
        let (count, span, objects) = match search.reading {
            Reading::Hinted => (None, table.slots_span(home, 0, slots), slots),
            Reading::Rest => {
                let rest = self.probe_length() - slots;
                (Some(Count::SecondReads), table.slots_span(home, slots, rest), rest)
            }
            Reading::Page { page, .. } => {
                (Some(Count::OverflowReads), table.page_span(page), PAGE_SLOTS)
            }
            Reading::Header { .. } => (Some(Count::HeaderReads), table.header_span(home), 0),
            Reading::Block { block, .. } => (None, table.block_span(block), 1),
        };
        if let Some(count) = count {
            self.counters().add(count, 1);
        }
        self.counters().add(Count::Reads, 1);
        self.counters().add(Count::Objects, objects);
        self.counters().add(Count::Bytes, span.len as u64);
        let read = self.fabric.dma_read(&span.region, span.offset, span.len);
        batch.searches.push_back((search, read));
    }

    /// Takes what a read has brought.
    fn examine(
        &self,
        search: &Search,
        bytes: &[u8],
        values: &mut Vec<u8>,
    ) -> Result<Step, FabricError> {
        let key = search.key;
        Ok(match search.reading {
            Reading::Hinted => {
                let step = self.scan_slots(bytes, key, values, |position| position);
                let found = matches!(step, Some(Step::Found { .. }));
                self.counters().add(Count::FirstReads, u64::from(found));
                step.unwrap_or_else(|| {
                    if search.slots < self.probe_length() {
                        // [Xenic21 4.1.3] The second, adjacent read.
                        Step::Read(Reading::Rest)
                    } else {
                        after_slots(search)
                    }
                })
            }
            Reading::Rest => {
                let behind = search.slots as u16;
                let step = self.scan_slots(bytes, key, values, |position| behind + position);
                step.unwrap_or_else(|| after_slots(search))
            }
            Reading::Page { header, .. } => {
                // d_i = D_m says that overflow may hold the segment's objects.
                let overflowed = self.probe_length() as u16 - 1;
                let step = self.scan_slots(bytes, key, values, |_| overflowed);
                step.unwrap_or_else(|| match HostTable::parse_page_link(bytes) {
                    Some(page) => Step::Read(Reading::Page { page, header }),
                    None => after_pages(search, header),
                })
            }
            Reading::Header { before } => self.prove_absence(search, bytes, before)?,
            Reading::Block { block, version, displacement } => {
                match HostTable::parse_block(bytes, key, version, block.len) {
                    Some(value) => {
                        Step::Found { version, value: append(values, value), displacement }
                    }
                    None => Step::Retry,
                }
            }
        })
    }

    /// Looks for `key` among slots, of which `displacement` tells how far each is from the key's
    /// home. `None`: it is not there.
    fn scan_slots(
        &self,
        bytes: &[u8],
        key: Key,
        values: &mut Vec<u8>,
        displacement: impl Fn(u16) -> u16,
    ) -> Option<Step> {
        let mut torn = false;
        for (position, slot) in self.node.table_of(key).parse_slots(bytes).enumerate() {
            match slot {
                SlotView::Torn => torn = true,
                SlotView::Record { key: found, version, stored } if found == key => {
                    let displacement = displacement(position as u16);
                    return Some(match stored {
                        StoredValue::Inline(value) => {
                            Step::Found { version, value: append(values, value), displacement }
                        }
                        // A single-object read follows the pointer.
                        StoredValue::OutOfLine(block) => {
                            Step::Read(Reading::Block { block, version, displacement })
                        }
                    });
                }
                SlotView::Empty | SlotView::Record { .. } => {}
            }
        }
        self.counters().add(Count::Torn, u64::from(torn));
        // AMB-03: in place of an abort of the host's hardware transaction.
        torn.then_some(Step::Retry)
    }

    /// Proves that a key is absent which was not found where the hint said: a record that moved to
    /// the left or away while we read may have been missed, and then the segment's header says so,
    /// or its move counter is no longer what it was before the reads. Also finds overflow pages
    /// that the index does not know; then the header is read once more behind them.
    fn prove_absence(
        &self,
        search: &Search,
        bytes: &[u8],
        before: Option<SegmentHeader>,
    ) -> Result<Step, FabricError> {
        let Some(header) = HostTable::parse_header(bytes) else {
            return Err(FabricError::Malformed);
        };
        let (table, index) = (self.node.table_of(search.key), self.node.index_of(search.key));
        let (home, hash) = (search.home, SlotHash::of(search.key));
        // The host may have split the segment: the next try begins where the key is then.
        index.follow(table.geometry().progress_of(home.segment, header.level));
        index.learn_header(hash, home.segment, &header);
        let proves = table.proves(hash, home, &header);
        Ok(match (before, header.overflow) {
            (Some(before), _) if proves && header.moves == before.moves => Step::Absent,
            (Some(_), _) => Step::Unproven,
            (None, _) if !proves => Step::Retry,
            (None, Some(page)) if search.hint.overflow != Some(page) => {
                Step::Read(Reading::Page { page, header: Some(header) })
            }
            (None, _) if searched_since(search, &header) => Step::Absent,
            (None, _) => Step::Unproven,
        })
    }

    /// Takes the end of a search: what was found counts if nothing was installed meanwhile.
    fn end_search(&self, search: Search, end: Step, batch: &mut Batch<F>) {
        let Search { position, key, hint, mut slots, .. } = search;
        let (index, hash) = (self.node.index_of(key), SlotHash::of(key));
        // After the DMA the world has moved: what was installed meanwhile is in the index.
        let now = match self.in_index(key, &mut batch.values) {
            Ok(found) => return batch.set(position, found),
            Err(now) => now,
        };
        if now.epoch == hint.epoch {
            match end {
                Step::Read(_) => panic!("a search that reads on has not ended"),
                Step::Retry => {}
                Step::Unproven => slots = self.probe_length(),
                Step::Found { version, value, displacement } => {
                    let bytes = &batch.values[value.0 as usize..(value.0 + value.1) as usize];
                    index.learn(hash, key, now.epoch, version, Some((bytes, displacement)));
                    return batch.set(position, Found { version, value: Some(value) });
                }
                Step::Absent => {
                    let version = index.floor(hash);
                    index.learn(hash, key, now.epoch, version, None);
                    return batch.set(position, Found { version, value: None });
                }
            }
        }
        self.counters().add(Count::Retries, 1);
        self.search_from_home(batch, position, key, now, slots);
    }
}

/// Where a search goes on that has found nothing in the slots. [Xenic21 4.1.3] d_i = D_m: the
/// segment's overflow page instead, if its address is known.
fn after_slots(search: &Search) -> Step {
    Step::Read(match search.hint.overflow {
        Some(page) => Reading::Page { page, header: None },
        None => Reading::Header { before: None },
    })
}

/// Where a search goes on that has found nothing in overflow pages, of which `header` told.
fn after_pages(search: &Search, header: Option<SegmentHeader>) -> Step {
    match header {
        Some(header) if !searched_since(search, &header) => Step::Unproven,
        before => Step::Read(Reading::Header { before }),
    }
}

/// Has nothing moved to the left or away between the miss and `header`?
fn searched_since(search: &Search, header: &SegmentHeader) -> bool {
    search.hint.seen == Some((search.home.segment, header.moves))
}

/// Appends a value to those of a batch; where it is.
fn append(values: &mut Vec<u8>, value: &[u8]) -> (u32, u32) {
    let start = values.len() as u32;
    nicol_core::wire::append(values, value);
    (start, value.len() as u32)
}
