//! The step of a table's growth: one segment is split in two, while readers continue.

use std::sync::atomic::Ordering;

use super::address::{Home, Progress, SlotHash};
use super::read::header;
use super::writer::{Position, Writer};
use super::{HEADER_BYTES, HostTable, SEGMENT_SLOTS};
use crate::access::store;

/// The split of one segment: the table before and after, and where the segment stands.
pub(super) struct Split<'t> {
    table: &'t HostTable,
    now: Progress,
    next: Progress,
    chunk: u32,
    /// The segment's number in its chunk.
    local: u64,
}

impl<'t> Split<'t> {
    /// The split of the segment whose turn it is.
    pub(super) fn next(table: &'t HostTable) -> Self {
        let now = table.progress();
        let next = now.next(table.geometry.segments());
        let (chunk, local) = table.geometry.locate(now.split());
        Self { table, now, next, chunk, local }
    }

    /// Carries it out; returns how many records were examined, of which about half moved.
    pub(super) fn run(&self, writer: &mut Writer) -> u64 {
        let &Self { table, now, next, chunk, local } = self;
        let (twin_chunk, twin) = self.twin();
        let first = local * SEGMENT_SLOTS;
        let last = first + SEGMENT_SLOTS + table.geometry.probe_length() - 2;
        let touched = table.moved_segments(chunk, first, last);
        table.bump_moves(chunk, touched.clone());
        let (gone, mut records) = self.move_slots(writer, first, last);
        records += self.move_overflow(writer);
        table.close_gaps(writer, chunk, first, gone);
        self.pull_overflow_in(writer);
        table.release_empty_pages(writer, chunk, local);
        let level = u64::from(now.level()) + 1;
        let floor = table.header(chunk, local).floor;
        store(table.chunk(twin_chunk), twin * HEADER_BYTES + header::FLOOR, floor.0);
        store(table.chunk(twin_chunk), twin * HEADER_BYTES + header::LEVEL, level);
        store(table.chunk(chunk), local * HEADER_BYTES + header::LEVEL, level);
        // Before the counters are even: a reader that sees them even sees the new level.
        table.progress.store(next.word(), Ordering::Release);
        table.bump_moves(chunk, touched);
        records
    }

    /// The chunk and number of the segment that is new, in memory that exists.
    fn twin(&self) -> (u32, u64) {
        let table = self.table;
        let (chunk, local) = table.geometry.locate(table.segments());
        if table.slots.get(chunk).is_none() {
            let size = table.geometry.chunk_bytes(chunk);
            table.slots.add(chunk, size);
            table.count_memory(0, size);
        }
        (chunk, local)
    }

    /// True if a key's home was in this segment before the split.
    fn is_from_here(&self, hash: SlotHash) -> bool {
        self.table.geometry.home(hash, self.now).segment == self.now.split()
    }

    /// The home of a key of this segment, if it leaves.
    fn new_home(&self, hash: SlotHash) -> Option<Home> {
        let home = self.table.geometry.home(hash, self.next);
        (home.segment != self.now.split()).then_some(home)
    }

    /// Copies the objects that leave the segment from its slots; returns which ones, as bits from
    /// `first` on, and how many records of the segment there were.
    fn move_slots(&self, writer: &mut Writer, first: u64, last: u64) -> (u128, u64) {
        let (mut gone, mut records) = (0, 0);
        for slot in first..=last {
            let position = Position::Slot { chunk: self.chunk, slot };
            let Some(key) = self.table.key_of(position) else { continue };
            let hash = SlotHash::of(key);
            if !self.is_from_here(hash) {
                continue;
            }
            records += 1;
            if let Some(home) = self.new_home(hash) {
                self.take(writer, position);
                self.table.insert(writer, home);
                gone |= 1 << (slot - first);
            }
        }
        (gone, records)
    }

    /// The same for its overflow pages, which are cleared at once.
    fn move_overflow(&self, writer: &mut Writer) -> u64 {
        let mut records = 0;
        for position in self.table.overflow_of(self.chunk, self.local) {
            let Some(key) = self.table.key_of(position) else { continue };
            records += 1;
            if let Some(home) = self.new_home(SlotHash::of(key)) {
                self.take(writer, position);
                self.table.insert(writer, home);
                self.table.clear_overflow(writer, position);
            }
        }
        records
    }

    /// Puts overflow objects into slots that have become free.
    fn pull_overflow_in(&self, writer: &mut Writer) {
        for position in self.table.overflow_of(self.chunk, self.local) {
            let Some(key) = self.table.key_of(position) else { continue };
            // One that leaves was cleared; those that stay have the home that they had.
            let home = self.table.home_now(SlotHash::of(key));
            if let Some(free) = self.table.free_slot(home) {
                self.take(writer, position);
                self.table.insert_before(writer, home, free);
                self.table.clear_overflow(writer, position);
            }
        }
    }

    /// Takes the object at a position into the writer's image.
    fn take(&self, writer: &mut Writer, position: Position) {
        let (region, offset) = self.table.at(position);
        writer.image.take(region, offset);
    }
}
