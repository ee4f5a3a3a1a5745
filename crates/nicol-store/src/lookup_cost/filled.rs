//! Tables filled with records, with lookups by their owner and by remote readers.

use nicol_core::ids::{Key, Version};
use nicol_core::memory::Region;
use nicol_core::units::Bytes;

use super::{LookupCost, SLACK, Structure, Tally, keys, slots_for};
use crate::address_cache::AddressCache;
use crate::host_table::{
    self, Growth, Home, HostTable, PageRef, Progress, SEGMENT_SLOTS, SlotHash, SlotView,
};
use crate::nic_index::{FirstRead, HomesPerHint};
use crate::remote_table::{Design, Geometry, RemoteTable, Reread, Step, TableConfig};

/// Cached addresses per record: two, so that few sets overflow.
const ADDRESSES_PER_RECORD: usize = 2;

/// A table that holds [`keys`], and a remote reader's hints or addresses.
pub struct Filled {
    structure: Structure,
    records: u64,
    seed: u64,
    table: Table,
    /// The bytes that were read last.
    bytes: Vec<u8>,
}

enum Table {
    Robinhood(Hinted),
    Remote(RemoteTable),
    Cached(RemoteTable, AddressCache),
}

pub(super) fn config(design: Design, slots: u64, inline: usize) -> TableConfig {
    TableConfig { design, slots, overflow_slots: slots / 2 + 64, inline, heap: Bytes(0) }
}

impl Filled {
    /// A table at 90 % of its slots, with `records` values of `value_bytes` bytes in their slots.
    /// The remote reader has no hints yet.
    ///
    /// # Panics
    /// If `structure` has no table (Robinhood without a limit), `records` is 0, or a slot does not
    /// take `value_bytes` bytes.
    pub fn new(structure: Structure, records: u64, value_bytes: usize, seed: u64) -> Self {
        assert!(records > 0, "something is looked up");
        let slots = slots_for(records);
        let value = vec![0x6e; value_bytes];
        let remote = |design| {
            let geometry = Geometry::new(config(design, slots, value_bytes.max(8)));
            let table = RemoteTable::new(geometry, records);
            keys(records, seed).for_each(|key| table.load(key, &value));
            table
        };
        let table = match structure {
            Structure::Robinhood {
                displacement_max: Some(probe_length),
                homes_per_hint,
                first_read,
            } => {
                let geometry = host_table::Geometry::new(slots, probe_length, value_bytes.max(8));
                let table = HostTable::new(geometry, records, Growth::Off);
                keys(records, seed).for_each(|key| table.load(key, &value));
                let hints = Vec::new();
                Table::Robinhood(Hinted { table, probe_length, homes_per_hint, first_read, hints })
            }
            Structure::Robinhood { displacement_max: None, .. } => {
                panic!("no table has runs without a limit")
            }
            Structure::Remote(design) => Table::Remote(remote(design)),
            Structure::Cached(design) => Table::Cached(remote(design), AddressCache::new(0)),
        };
        Self { structure, records, seed, table, bytes: Vec::new() }
    }

    /// Teaches the reader hints or addresses by looking every key up once.
    pub fn teach(&mut self) {
        match &mut self.table {
            Table::Robinhood(hinted) => {
                let shared = u64::from(hinted.homes_per_hint.get());
                hinted.hints = vec![0; (hinted.table.geometry().slots() / shared) as usize];
            }
            Table::Remote(_) => return,
            Table::Cached(_, addresses) => {
                *addresses = AddressCache::new(self.records as usize * ADDRESSES_PER_RECORD);
            }
        }
        let mut unread = Tally::default();
        keys(self.records, self.seed).for_each(|key| self.remote(key, &mut unread));
    }

    /// Counts what the reader's lookups of all keys cost.
    pub fn cost(&mut self) -> LookupCost {
        let mut tally = Tally::default();
        keys(self.records, self.seed).for_each(|key| self.remote(key, &mut tally));
        let overflowed = match &self.table {
            Table::Robinhood(hinted) => hinted.table.overflowed(),
            Table::Remote(table) | Table::Cached(table, _) => table.overflowed(),
        };
        tally.cost(self.structure, self.records, overflowed)
    }

    /// The owner's lookup of a key that was loaded; its value is appended to `into`.
    ///
    /// # Panics
    /// If the table does not have it.
    pub fn look_up_locally(&self, key: Key, into: &mut Vec<u8>) {
        let present = match &self.table {
            Table::Robinhood(hinted) => hinted.table.get(key, into).present,
            Table::Remote(table) | Table::Cached(table, _) => {
                table.get(key, into).is_ok_and(|found| found.present)
            }
        };
        assert!(present, "a loaded key is found");
    }

    /// A remote lookup of a loaded key, by DMA or by READs.
    ///
    /// # Panics
    /// If the table does not have it, or [`Filled::teach`] was not called.
    pub fn look_up_remotely(&mut self, key: Key) {
        self.remote(key, &mut Tally::default());
    }

    fn remote(&mut self, key: Key, tally: &mut Tally) {
        let bytes = &mut self.bytes;
        match &mut self.table {
            Table::Robinhood(hinted) => hinted.lookup(key, tally, bytes),
            Table::Remote(table) => {
                walk(table, key, tally, bytes);
            }
            Table::Cached(table, addresses) => {
                if let Some(address) = addresses.get(key) {
                    if reread(table, key, address, tally, bytes) {
                        return;
                    }
                    addresses.forget(key);
                }
                let address = walk(table, key, tally, bytes);
                addresses.remember(key, address);
            }
        }
    }
}

/// Reads a range of a region as a remote reader does.
fn fetch(region: &Region, offset: u64, len: usize, into: &mut Vec<u8>) {
    into.resize(len, 0);
    if let Err(error) = region.read(offset, into) {
        panic!("a lookup reads inside the table: {error}");
    }
}

/// Walks to a key's record; returns its address.
fn walk(table: &RemoteTable, key: Key, tally: &mut Tally, bytes: &mut Vec<u8>) -> u64 {
    let mut walk = table.geometry().walk(key);
    loop {
        let span = walk.span();
        tally.read(walk.slots(), span.len);
        fetch(table.region(), span.offset, span.len, bytes);
        match walk.step(bytes) {
            Step::Next => {}
            Step::Found(record) => {
                assert!(record.header.version() == Version(1), "it was loaded once");
                return record.address;
            }
            Step::Absent(_) | Step::Torn(_) => panic!("a loaded key is found"),
        }
    }
}

/// Reads one slot; says whether the key's record is there.
fn reread(
    table: &RemoteTable,
    key: Key,
    address: u64,
    tally: &mut Tally,
    bytes: &mut Vec<u8>,
) -> bool {
    let span = table.geometry().record_span(address);
    tally.read(1, span.len);
    fetch(table.region(), span.offset, span.len, bytes);
    matches!(table.geometry().reread(key, address, bytes), Reread::Found(_))
}

/// A Robinhood table, with the NIC's lookups of keys that its index does not cache.
pub(super) struct Hinted {
    pub(super) table: HostTable,
    pub(super) probe_length: u16,
    pub(super) homes_per_hint: HomesPerHint,
    pub(super) first_read: FirstRead,
    /// d_i of each group of homes.
    pub(super) hints: Vec<u8>,
}

impl Hinted {
    /// The table does not grow.
    fn home(&self, key: Key) -> Home {
        self.table.home(SlotHash::of(key), Progress::default())
    }

    pub(super) fn lookup(&mut self, key: Key, tally: &mut Tally, bytes: &mut Vec<u8>) {
        let home = self.home(key);
        let group = self.homes_per_hint.group(SlotHash::of(key), self.table.geometry().segments());
        let groups = SEGMENT_SLOTS / u64::from(self.homes_per_hint.get());
        let hint = (home.segment * groups) as usize + group;
        let first = self.first_read.entries(self.hints[hint].into(), SLACK, self.probe_length);
        let mut slots = |from, to| self.slots(key, home, (from, to), tally, bytes);
        let near = slots(0, first);
        let far = || if first < self.probe_length { slots(first, self.probe_length) } else { None };
        let displacement = near.or_else(far).unwrap_or_else(|| {
            self.overflow(key, home, tally, bytes);
            // Says that overflow may hold the segment's objects, as the NIC's lookups do.
            self.probe_length - 1
        });
        self.hints[hint] = self.hints[hint].max(displacement as u8);
    }

    /// Reads the slots `from..to` behind the key's home; the displacement if the key is there.
    fn slots(
        &self,
        key: Key,
        home: Home,
        (from, to): (u16, u16),
        tally: &mut Tally,
        bytes: &mut Vec<u8>,
    ) -> Option<u16> {
        let count = u64::from(to - from);
        let span = self.table.slots_span(home, u64::from(from), count);
        tally.read(count, span.len);
        fetch(&span.region, span.offset, span.len, bytes);
        let found = self.table.parse_slots(bytes).position(|slot| holds(slot, key))?;
        Some(from + found as u16)
    }

    fn overflow(&self, key: Key, home: Home, tally: &mut Tally, bytes: &mut Vec<u8>) {
        // The index entry holds this address: reading it is no round trip.
        let header = self.table.header_span(home);
        fetch(&header.region, header.offset, header.len, bytes);
        let mut page = HostTable::parse_header(bytes).and_then(|header| header.overflow);
        loop {
            let Some(current) = page else { panic!("a loaded key is found") };
            if self.page(key, current, tally, bytes) {
                return;
            }
            page = HostTable::parse_page_link(bytes);
        }
    }

    fn page(&self, key: Key, page: PageRef, tally: &mut Tally, bytes: &mut Vec<u8>) -> bool {
        let span = self.table.page_span(page);
        fetch(&span.region, span.offset, span.len, bytes);
        tally.read(self.table.parse_slots(bytes).count() as u64, span.len);
        self.table.parse_slots(bytes).any(|slot| holds(slot, key))
    }
}

fn holds(slot: SlotView<'_>, key: Key) -> bool {
    matches!(slot, SlotView::Record { key: found, .. } if found == key)
}
