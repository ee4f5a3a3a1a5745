//! Growth: segments are split in two one at a time, while readers continue.

use std::sync::atomic::Ordering;

use super::address::{Progress, SlotHash};
use super::read::header;
use super::writer::{Position, Writer};
use super::{HEADER_BYTES, HostTable, SEGMENT_SLOTS};
use crate::access::store;

/// What [`HostTable::advance`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Advance {
    /// Segments split.
    pub segments: u64,
    /// Records examined; about half of them moved.
    pub records: u64,
}

impl HostTable {
    /// Splits up to `segments` segments of a table that is doubling, or must begin to.
    ///
    /// A doubling keeps up with inserts if one segment is split per insert: a segment holds about
    /// 14 records, so the doubling ends before the load has risen by a tenth. Cost: one atomic load
    /// if there is nothing to do; else about [`SEGMENT_SLOTS`] reads and half as many moves per
    /// segment, and sometimes a new region of 1/64 of the table. Readers that find nothing in the
    /// segment wait until it is split; other readers are not affected. Stops when memory is used
    /// up.
    #[inline]
    pub fn advance(&self, segments: u64) -> Advance {
        if self.growing.load(Ordering::Relaxed) { self.grow(segments) } else { Advance::default() }
    }

    fn grow(&self, segments: u64) -> Advance {
        let mut done = Advance::default();
        let writer = &mut *self.writer();
        while done.segments < segments && self.growing.load(Ordering::Relaxed) {
            if !self.may_split() {
                break;
            }
            done.records += self.split(writer);
            done.segments += 1;
            // Whole rounds: half-way, segments that are not yet split are fuller than the average.
            let under_way = self.progress().split() != 0 || self.is_loaded();
            self.growing.store(under_way, Ordering::Relaxed);
        }
        done
    }

    /// Splits the next segment.
    fn split(&self, writer: &mut Writer) -> u64 {
        let now = self.progress();
        let next = now.next(self.geometry.segments());
        let (chunk, local) = self.geometry.locate(now.split());
        let (twin_chunk, twin) = self.geometry.locate(self.segments());
        if self.slots.get(twin_chunk).is_none() {
            let size = self.geometry.chunk_bytes(twin_chunk);
            self.slots.add(twin_chunk, size);
            self.add_memory(size);
        }
        let first = local * SEGMENT_SLOTS;
        let last = first + SEGMENT_SLOTS + self.geometry.probe_length() - 2;
        let touched = self.moved_segments(chunk, first, last);
        self.bump_moves(chunk, touched.clone());
        let (gone, mut records) = self.move_slots(writer, now, next, (chunk, first, last));
        records += self.move_overflow(writer, now, next, (chunk, local));
        self.close_gaps(writer, chunk, first, gone);
        self.pull_overflow_in(writer, chunk, local);
        self.release_empty_pages(writer, chunk, local);
        let level = u64::from(now.level()) + 1;
        let floor = self.header(chunk, local).floor;
        store(self.chunk(twin_chunk), twin * HEADER_BYTES + header::FLOOR, floor.0);
        store(self.chunk(twin_chunk), twin * HEADER_BYTES + header::LEVEL, level);
        store(self.chunk(chunk), local * HEADER_BYTES + header::LEVEL, level);
        // Before the counters are even: a reader that sees them even sees the new level.
        self.progress.store(next.word(), Ordering::Release);
        self.bump_moves(chunk, touched);
        records
    }

    /// Copies the objects that leave the segment from its slots; returns which ones, as bits from
    /// `first` on, and how many records of the segment there were.
    fn move_slots(
        &self,
        writer: &mut Writer,
        now: Progress,
        next: Progress,
        (chunk, first, last): (u32, u64, u64),
    ) -> (u128, u64) {
        let (mut gone, mut records) = (0, 0);
        for slot in first..=last {
            let position = Position::Slot { chunk, slot };
            let Some(key) = self.key_of(position) else { continue };
            let hash = SlotHash::of(key);
            if self.geometry.home(hash, now).segment != now.split() {
                continue;
            }
            records += 1;
            let home = self.geometry.home(hash, next);
            if home.segment != now.split() {
                let (region, offset) = self.at(position);
                writer.image.take(region, offset);
                self.insert(writer, home);
                gone |= 1 << (slot - first);
            }
        }
        (gone, records)
    }

    /// The same for its overflow pages, which are cleared at once.
    fn move_overflow(
        &self,
        writer: &mut Writer,
        now: Progress,
        next: Progress,
        (chunk, local): (u32, u64),
    ) -> u64 {
        let mut records = 0;
        for position in self.overflow_of(chunk, local) {
            let Some(key) = self.key_of(position) else { continue };
            records += 1;
            let home = self.geometry.home(SlotHash::of(key), next);
            if home.segment != now.split() {
                let (region, offset) = self.at(position);
                writer.image.take(region, offset);
                self.insert(writer, home);
                self.clear_overflow(writer, position);
            }
        }
        records
    }

    /// Puts overflow objects into slots that have become free.
    fn pull_overflow_in(&self, writer: &mut Writer, chunk: u32, local: u64) {
        for position in self.overflow_of(chunk, local) {
            let Some(key) = self.key_of(position) else { continue };
            let home = self.home_now(SlotHash::of(key));
            // One that leaves was cleared; home_now is still that of the old level.
            if let Some(free) = self.free_slot(home) {
                let (region, offset) = self.at(position);
                writer.image.take(region, offset);
                self.insert_before(writer, home, free);
                self.clear_overflow(writer, position);
            }
        }
    }
}
