//! Going over the whole table: every record, a digest, and the structure's invariants.

use std::collections::BTreeSet;

use nicol_core::ids::{Key, Version};

use super::address::SlotHash;
use super::layout::{SlotRead, read_slot};
use super::writer::{Position, Writer};
use super::{HostTable, PageRef, memory};
use crate::digest;

/// A record and where it stands.
#[derive(Clone, Copy, Debug)]
pub struct LocatedRecord<'a> {
    /// Its key.
    pub key: Key,
    /// Its version.
    pub version: Version,
    /// Its value.
    pub value: &'a [u8],
    /// Slots from its home; D_m for one in overflow.
    pub displacement: u16,
}

impl HostTable {
    /// The table's segments: chunk and number within it.
    fn all_segments(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..self.segments()).map(|segment| self.geometry.locate(segment))
    }

    /// Every position of every chunk and overflow page.
    fn all_positions(&self) -> impl Iterator<Item = Position> {
        let slots = self.slots.iter().flat_map(|(chunk, _)| {
            let slots = 0..self.geometry.chunk_slots(chunk);
            slots.map(move |slot| Position::Slot { chunk, slot })
        });
        slots.chain(self.all_segments().flat_map(|(chunk, local)| self.overflow_of(chunk, local)))
    }

    /// Calls `each` with every record, in the order of the table's memory.
    pub fn for_each(&self, each: &mut dyn FnMut(Key, Version, &[u8])) {
        self.each_position(|_, key, version, value| each(key, version, value));
    }

    /// Like `for_each`, with each record's location.
    pub fn for_each_located(&self, each: &mut dyn FnMut(LocatedRecord<'_>)) {
        self.each_position(|position, key, version, value| {
            let home = match position {
                Position::Slot { chunk, slot } => self.home_of(chunk, slot).map(|home| slot - home),
                Position::Overflow { .. } => None,
            };
            let displacement = home.map_or(self.geometry.displacement_max(), |slots| slots as u16);
            each(LocatedRecord { key, version, value, displacement });
        });
    }

    fn each_position(&self, mut each: impl FnMut(Position, Key, Version, &[u8])) {
        // The writer's mutex keeps the records in place, and whole.
        let writer = self.writer();
        let mut value = Vec::new();
        for position in self.all_positions() {
            value.clear();
            let (key, version, block) = match read_slot(self.slot(position), &mut value) {
                SlotRead::Record(key, version, block) => (key, version, block),
                SlotRead::Empty => continue,
                SlotRead::Torn => panic!("a record of a quiet table is whole"),
            };
            if let Some(block) = block {
                let found = memory::read_block(&self.heap, block, key, version, &mut value);
                assert!(found.is_some(), "a value of a quiet table is whole");
            }
            each(position, key, version, &value);
        }
        drop(writer);
    }

    /// A digest of all records that does not depend on their location.
    pub fn digest(&self) -> u64 {
        digest::of_records(|each| self.for_each(each))
    }

    /// Checks every structural invariant; for tests.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        let writer = &*self.writer();
        let mut counts = Counts::default();
        for (chunk, _) in self.slots.iter() {
            self.check_chunk(chunk, &mut counts);
        }
        let in_slots = counts.records;
        self.check_segments(writer, &mut counts);
        let Counts { records, blocks } = counts;
        assert!(records - in_slots == self.overflowed(), "overflowed records are counted");
        assert!(records == self.len(), "records are counted");
        assert!(blocks == writer.heap.in_use(), "a heap block belongs to one record");
        let bytes = self.slots.bytes() + self.pages.bytes() + self.heap.bytes();
        assert!(bytes == self.memory().0, "memory is counted");
        for (key, version) in writer.tombstones.iter() {
            let home = self.home_now(SlotHash::of(key));
            assert!(self.find(home, key).is_none(), "a deleted key is absent");
            let floor = self.header(home.chunk, home.local()).floor;
            assert!(floor >= version, "a floor is no lower than what was deleted");
        }
    }

    /// Robinhood order and the displacement limit, chunk by chunk.
    fn check_chunk(&self, chunk: u32, counts: &mut Counts) {
        let mut previous = None;
        for slot in 0..self.geometry.chunk_slots(chunk) {
            let home = self.home_of(chunk, slot);
            if let Some(home) = home {
                assert!(home <= slot, "no object stands before its home");
                assert!(
                    slot - home < self.geometry.probe_length(),
                    "no object is D_m from its home"
                );
                let order = previous.unwrap_or(slot);
                assert!(order <= home, "a run begins at home and is ordered by home");
                self.check_record(Position::Slot { chunk, slot }, counts);
            }
            previous = home;
        }
    }

    /// Headers and overflow pages.
    fn check_segments(&self, writer: &Writer, counts: &mut Counts) {
        let mut pages: BTreeSet<PageRef> = BTreeSet::new();
        let progress = self.progress();
        let whole = self.geometry.segments() << progress.level();
        for (segment, (chunk, local)) in self.all_segments().enumerate() {
            let header = self.header(chunk, local);
            assert!(header.moves.is_multiple_of(2), "no move is under way");
            let ahead = (segment as u64) < progress.split() || segment as u64 >= whole;
            assert!(header.level == progress.level() + u8::from(ahead), "a level is its segment's");
            for page in self.pages_of(chunk, local) {
                assert!(pages.insert(page), "a page is linked once");
            }
            let before = counts.records;
            for position in self.overflow_of(chunk, local) {
                let Some(key) = self.key_of(position) else { continue };
                let home = self.home_now(SlotHash::of(key));
                assert!(home.segment == segment as u64, "overflow belongs to its segment");
                self.check_record(position, counts);
            }
            let empty = counts.records == before;
            assert!(header.overflow.is_none() || !empty, "empty pages are released");
        }
        assert!(pages.len() as u64 == writer.pages.in_use(), "a page in use is linked");
    }

    fn check_record(&self, at: Position, counts: &mut Counts) {
        let Some(key) = self.key_of(at) else { return };
        let record = self.find(self.home_now(SlotHash::of(key)), key);
        assert!(record.is_some(), "a lookup finds every record");
        let Some(record) = record else { return };
        assert!(record.position == at, "a record stands in one place");
        counts.records += 1;
        counts.blocks += u64::from(record.block.is_some());
    }
}

/// What [`HostTable::check`] counts.
#[derive(Debug, Default)]
struct Counts {
    records: u64,
    blocks: u64,
}
