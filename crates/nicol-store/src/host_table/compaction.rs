//! Moving values together, so that the memory of sparse slabs goes back.

use nicol_core::ids::Key;

use super::HostTable;
use super::address::SlotHash;
use super::heap::{Heap, key_of_block, read_block};
use super::layout::{StoredValue, replace};
use super::size_class::SizeClass;

/// Values moved after a block was freed, at most. A slab that is moved away holds at most four
/// values for each free block of its class beyond what the class may keep, so four are enough.
const MOVES: usize = 4;

/// Values that move out of the emptiest slab of a size class.
pub(super) struct Compaction<'t>(&'t HostTable);

impl<'t> Compaction<'t> {
    /// Moves values of this table.
    pub(super) fn of(table: &'t HostTable) -> Self {
        Self(table)
    }

    /// Moves a few values if the class, of which a block was freed, is sparse.
    ///
    /// Readers follow a slot to a block, which still is where they found it or has a broken seal:
    /// then they read the slot again.
    pub(super) fn run(&self, heap: &mut Heap, class: SizeClass) {
        for (chunk, offset) in heap.to_move(class, MOVES) {
            let key = key_of_block(&self.0.heap, chunk, offset);
            self.move_value(heap, key);
        }
    }

    /// Moves the value of a key to another block.
    fn move_value(&self, heap: &mut Heap, key: Key) {
        let table = self.0;
        let Some(record) = table.find(table.home_now(SlotHash::of(key)), key) else {
            panic!("a block that holds a value belongs to a record");
        };
        let Some(from) = record.block else {
            panic!("a value that moves is out of line");
        };
        let mut value = Vec::new();
        let whole = read_block(&table.heap, from, key, record.version, &mut value);
        assert!(whole.is_some(), "nobody else writes");
        let to = heap.put(&table.heap, key, record.version, &value, false);
        replace(record.slot, record.version, StoredValue::OutOfLine(to));
        heap.take_back(&table.heap, from);
    }
}
