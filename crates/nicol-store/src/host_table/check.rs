//! Going over the whole table: every record, and the structure's invariants.

use std::collections::BTreeSet;
use std::sync::MutexGuard;

use nicol_core::ids::{Key, Version};

use super::address::SlotHash;
use super::layout::{SlotRead, read_slot};
use super::writer::{Position, Writer};
use super::{HostTable, PageRef, heap};

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

/// A table at rest: the writer's mutex keeps its records in place, and whole.
pub(super) struct Audit<'t> {
    table: &'t HostTable,
    writer: MutexGuard<'t, Writer>,
}

impl<'t> Audit<'t> {
    /// Waits for the writer, and keeps it out until dropped.
    pub(super) fn of(table: &'t HostTable) -> Self {
        Self { table, writer: table.writer() }
    }

    /// Calls `each` with every record and its location, in the order of the table's memory.
    pub(super) fn each_located(&self, mut each: impl FnMut(LocatedRecord<'_>)) {
        let table = self.table;
        self.each_position(|position, key, version, value| {
            let home = match position {
                Position::Slot { chunk, slot } => {
                    table.home_of(chunk, slot).map(|home| slot - home)
                }
                Position::Overflow { .. } => None,
            };
            let displacement = home.map_or(table.geometry.displacement_max(), |slots| slots as u16);
            each(LocatedRecord { key, version, value, displacement });
        });
    }

    /// Calls `each` with every record and its position, in the order of the table's memory.
    pub(super) fn each_position(&self, mut each: impl FnMut(Position, Key, Version, &[u8])) {
        let mut value = Vec::new();
        for position in self.all_positions() {
            value.clear();
            let (key, version, block) = match read_slot(self.table.slot(position), &mut value) {
                SlotRead::Record(key, version, block) => (key, version, block),
                SlotRead::Empty => continue,
                SlotRead::Torn => panic!("a record of a quiet table is whole"),
            };
            if let Some(block) = block {
                let found = heap::read_block(&self.table.heap, block, key, version, &mut value);
                assert!(found.is_some(), "a value of a quiet table is whole");
            }
            each(position, key, version, &value);
        }
    }

    /// Every position of every chunk and overflow page.
    fn all_positions(&self) -> impl Iterator<Item = Position> {
        let table = self.table;
        let slots = table.slots.iter().flat_map(|(chunk, _)| {
            let slots = 0..table.geometry.chunk_slots(chunk);
            slots.map(move |slot| Position::Slot { chunk, slot })
        });
        let segments = self.all_segments();
        slots.chain(segments.flat_map(|(chunk, local)| table.overflow_of(chunk, local)))
    }

    /// The table's segments: chunk and number within it.
    fn all_segments(&self) -> impl Iterator<Item = (u32, u64)> {
        (0..self.table.segments()).map(|segment| self.table.geometry.locate(segment))
    }

    /// Checks every structural invariant.
    ///
    /// # Panics
    /// If one does not hold.
    pub(super) fn check(&self) {
        let table = self.table;
        let mut counts = Counts::default();
        for (chunk, _) in table.slots.iter() {
            self.check_chunk(chunk, &mut counts);
        }
        let in_slots = counts.records;
        self.check_segments(&mut counts);
        let Counts { records, blocks } = counts;
        assert!(records - in_slots == table.overflowed(), "overflowed records are counted");
        assert!(records == table.len(), "records are counted");
        assert!(blocks == self.writer.heap.in_use(), "a heap block belongs to one record");
        let bytes = table.slots.bytes() + table.pages.bytes() + self.writer.heap.bytes();
        assert!(bytes == table.memory().0, "memory is counted");
        for (key, version) in self.writer.tombstones.iter() {
            let home = table.home_now(SlotHash::of(key));
            assert!(table.find(home, key).is_none(), "a deleted key is absent");
            let floor = table.header(home.chunk, home.local()).floor;
            assert!(floor >= version, "a floor is no lower than what was deleted");
        }
    }

    /// Robinhood order and the displacement limit, chunk by chunk.
    fn check_chunk(&self, chunk: u32, counts: &mut Counts) {
        let mut previous = None;
        for slot in 0..self.table.geometry.chunk_slots(chunk) {
            let home = self.table.home_of(chunk, slot);
            if let Some(home) = home {
                assert!(home <= slot, "no object stands before its home");
                assert!(
                    slot - home < self.table.geometry.probe_length(),
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
    fn check_segments(&self, counts: &mut Counts) {
        let mut pages: BTreeSet<PageRef> = BTreeSet::new();
        let progress = self.table.progress();
        let whole = self.table.geometry.segments() << progress.level();
        for (segment, (chunk, local)) in self.all_segments().enumerate() {
            let header = self.table.header(chunk, local);
            assert!(header.moves.is_multiple_of(2), "no move is under way");
            let ahead = (segment as u64) < progress.split() || segment as u64 >= whole;
            assert!(header.level == progress.level() + u8::from(ahead), "a level is its segment's");
            for page in self.table.pages_of(chunk, local) {
                assert!(pages.insert(page), "a page is linked once");
            }
            let before = counts.records;
            for position in self.table.overflow_of(chunk, local) {
                let Some(key) = self.table.key_of(position) else { continue };
                let home = self.table.home_now(SlotHash::of(key));
                assert!(home.segment == segment as u64, "overflow belongs to its segment");
                self.check_record(position, counts);
            }
            let empty = counts.records == before;
            assert!(header.overflow.is_none() || !empty, "empty pages are released");
        }
        assert!(pages.len() as u64 == self.writer.pages.in_use(), "a page in use is linked");
    }

    fn check_record(&self, at: Position, counts: &mut Counts) {
        let Some(key) = self.table.key_of(at) else { return };
        let record = self.table.find(self.table.home_now(SlotHash::of(key)), key);
        assert!(record.is_some(), "a lookup finds every record");
        let Some(record) = record else { return };
        assert!(record.position == at, "a record stands in one place");
        counts.records += 1;
        counts.blocks += u64::from(record.block.is_some());
    }
}

/// The counts of [`Audit::check`].
#[derive(Debug, Default)]
struct Counts {
    records: u64,
    blocks: u64,
}
