//! How Pilaf runs: every choice is a value.

use nicol_core::units::Nanos;

use super::broken::Sabotage;
use super::layout::{ENTRY, extent_bytes};

/// The index of a hash table: how it resolves collisions. [PRISM21 6]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// An item is at or behind its hash.
    Probing,
    /// An item is at one of three hashes. A PUT may move others; a GET that finds nothing asks the
    /// server, since an item may have moved past a GET.
    Cuckoo,
}

/// The executor of READs at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// By plain verbs: the card executes them, if there is one.
    Verbs,
    /// By what executes chains.
    Chains,
}

/// Configuration of `pilaf`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PilafConfig {
    pub index: Index,
    /// A search begins at the number of the record, so that no two records collide. [PRISM21 6.2]
    pub collision_free: bool,
    pub reads: Reads,
    /// Entries of a server's table.
    pub entries: u64,
    /// Bytes of the largest item: key and value.
    pub item_bytes: u64,
    /// Extents of a server: as many items, and those that PUTs under way write.
    pub extents: u64,
    /// Time that a client waits for the answer to an RPC.
    pub timeout: Nanos,
    /// GETs verify extents by their CRC. Without it a checker must see torn values.
    pub crc: bool,
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

impl PilafConfig {
    /// Bytes of a server's table and of its extents.
    pub fn table_bytes(&self) -> u64 {
        let extents = self.extents.saturating_mul(extent_bytes(self.item_bytes));
        self.entries.saturating_mul(ENTRY).saturating_add(extents)
    }

    /// The paper's choices for so many items of so many bytes at most.
    pub fn paper(items: u64, item_bytes: u64) -> Self {
        Self {
            index: Index::Probing,
            collision_free: false,
            reads: Reads::Verbs,
            entries: (2 * items).next_power_of_two().max(64),
            item_bytes,
            extents: items + 1_024,
            timeout: Nanos::from_millis(20),
            crc: true,
            sabotage: Sabotage::None,
        }
    }
}
