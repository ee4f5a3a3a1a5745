//! How PRISM-KV runs: every choice is a value.

use nicol_core::units::Nanos;

use super::broken::Sabotage;
use super::layout::{DeletedSlots, ITEM_HEADER, Reuse, SlotForm, Slots};
use crate::pool::SizeClass;
use crate::recycling::Recycling;

/// Bytes of the smallest buffer.
const SMALLEST: u64 = 64;
/// Bytes of the largest item: a chain's results hold one, with space to spare.
pub const ITEM_BYTES_MAX: u64 = 32 << 10;

/// Of a store that serves: a search ends after so many slots. At most half of them are used as long
/// as there are no more keys than the store is prepared for, and no search is a tenth as long.
const SERVING_PROBES: usize = 1_024;
/// Of a store that serves: buffers of a size beyond one for each key: under way, or not reported
/// yet.
const SERVING_SPARE: u64 = 16_384;
/// Of a store that serves: items of the largest size that must fit.
const SERVING_LARGEST: u64 = 64;
/// Of a store that serves: buffers below which a free list is refilled, and how often a server
/// looks. Between two looks many are taken, and a server without clients is to sleep.
const SERVING_WATERMARK: u32 = 8_192;
const SERVING_REFILL: Nanos = Nanos::from_millis(5);

/// The slot at which the search for a key begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// At a hash of the key.
    Probing,
    /// At the number of the record, where it meets no other: the function of the paper's
    /// experiments. [PRISM21 6.2] Byte strings are hashed.
    CollisionFree,
}

/// The operands of the CAS that installs an item. AMB-09
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operands {
    /// Two: what the slot is compared with, and what it becomes.
    Two,
    /// One, as Table 1 prints it, compared and swapped in: no PUT ever succeeds.
    OneCompared,
    /// One, with an empty compare mask: a PUT overwrites whatever the slot has come to hold.
    OneUnmasked,
}

/// Configuration of `prism-kv`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvConfig {
    /// The content of a slot.
    pub slots: Slots,
    /// The comparison of a PUT.
    pub reuse: Reuse,
    /// The use of a deleted key's slot.
    pub deleted_slots: DeletedSlots,
    /// The slot at which the search for a key begins.
    pub hash: Hash,
    /// Slots of a server's index.
    pub entries: u64,
    /// Slots that a search looks at, at most: a key that finds no place there is refused.
    pub probes: usize,
    /// Items of so many bytes that a server has space for: (bytes, items).
    pub items: Vec<(u64, u64)>,
    /// Deleted keys that a server has space for besides.
    pub deleted: u64,
    /// Buffers of each size beyond those: under way, or not reported yet.
    pub spare_buffers: u32,
    /// The recycling of buffers.
    pub recycling: Recycling,
    /// The operands of the CAS.
    pub operands: Operands,
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

impl KvConfig {
    /// The paper's choices, with AMB-09 and AMB-12 resolved, for records of so many bytes and their
    /// numbers.
    pub fn paper(items: Vec<(u64, u64)>) -> Self {
        let records: u64 = items.iter().map(|(_, count)| count).sum();
        Self {
            slots: Slots::Bounded,
            reuse: Reuse::Pointer,
            deleted_slots: DeletedSlots::Kept,
            hash: Hash::Probing,
            entries: (2 * records).next_power_of_two().max(64),
            probes: usize::MAX,
            deleted: records,
            items,
            spare_buffers: 4_096,
            recycling: Recycling::by_reports(Some(1_024)),
            operands: Operands::Two,
            sabotage: Sabotage::None,
        }
    }

    /// Without records yet: space for `records` keys, whose items share `memory`, all sizes alike.
    /// The slots of deleted keys are used again. `None`: the index does not fit, or beside it too
    /// few items of the largest size.
    pub fn serving(self, memory: u64, records: u64) -> Option<Self> {
        let entries = (2 * records).next_power_of_two().max(64);
        let (reuse, deleted_slots) = (Reuse::Generation, DeletedSlots::Reused);
        let config = Self { entries, reuse, deleted_slots, ..self };
        let left = memory.checked_sub(config.form().at(entries))?;
        let powers = SMALLEST.ilog2()..=ITEM_BYTES_MAX.ilog2();
        let share = left / u64::from(powers.end() - powers.start() + 1);
        if share < SERVING_LARGEST * ITEM_BYTES_MAX {
            return None;
        }
        let items = powers.map(|power| (1 << power, (share >> power).min(records + SERVING_SPARE)));
        let (items, probes) = (items.collect(), SERVING_PROBES);
        let (deleted, spare_buffers) = (0, 0);
        let (watermark, every) = (Some(SERVING_WATERMARK), SERVING_REFILL);
        let recycling = Recycling { watermark, every, ..config.recycling };
        Some(Self { items, probes, deleted, spare_buffers, recycling, ..config })
    }

    /// Whether another key may take the slot of a deleted one.
    pub(super) fn reuses_slots(&self) -> bool {
        self.deleted_slots == DeletedSlots::Reused
    }

    /// The layout of a slot.
    pub(super) const fn form(&self) -> SlotForm {
        SlotForm::new(self.slots, self.reuse)
    }

    /// The free lists of a server: powers of two, so that at most half of a buffer is unused.
    /// [PRISM21 3.2]
    pub(super) fn classes(&self) -> Vec<SizeClass> {
        let size = |bytes: u64| bytes.next_power_of_two().max(SMALLEST);
        // A deleted key's item is its key.
        let mut largest = SMALLEST;
        for (bytes, _) in &self.items {
            largest = largest.max(size(*bytes));
        }
        let powers = std::iter::successors(Some(SMALLEST), |bytes| Some(bytes * 2));
        let powers = powers.take_while(|&bytes| bytes <= largest);
        let count = |bytes| {
            let items = self.items.iter().filter(|(item, _)| size(*item) == bytes);
            let items: u64 = items.map(|(_, count)| count).sum();
            let deleted = if bytes == SMALLEST { self.deleted } else { 0 };
            items + deleted + u64::from(self.spare_buffers)
        };
        powers.map(|bytes| SizeClass { bytes, count: count(bytes) as u32 }).collect()
    }

    /// Bytes of the largest item: as many as a GET asks for.
    pub(super) fn largest_item(&self) -> u64 {
        self.items.iter().map(|(bytes, _)| *bytes).max().unwrap_or(ITEM_BYTES_MAX)
    }

    /// Bytes of an item with a key and a value of so many.
    pub const fn item_bytes(key: u64, value: u64) -> u64 {
        ITEM_HEADER + key + value
    }
}
