//! How Pilaf runs: every choice is a value.

use nicol_core::units::Nanos;

use super::broken::{Hooks, Sabotage};
use super::layout::{ENTRY, extent_bytes};

/// How a hash table resolves collisions. [PRISM21 6]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Index {
    /// An item is at or behind its hash.
    Probing,
    /// An item is at one of three hashes. A PUT may move others; a GET that finds nothing asks the
    /// server, since an item may have moved past a GET.
    Cuckoo,
}

/// What executes READs at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// By plain verbs: the card executes them, if there is one.
    Verbs,
    /// By what executes chains.
    Chains,
}

/// How a system of this kind runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PilafConfig {
    /// How collisions are resolved.
    pub index: Index,
    /// Does a search begin at the number of the record, where it meets no other? [PRISM21 6.2]
    pub collision_free: bool,
    /// What executes READs.
    pub reads: Reads,
    /// Entries of a server's table.
    pub entries: u64,
    /// Bytes of the largest item: key and value.
    pub item_bytes: u64,
    /// Extents of a server: as many items, and those that PUTs under way write.
    pub extents: u64,
    /// How long a client waits for the answer to an RPC.
    pub timeout: Nanos,
    /// Do GETs verify extents by their CRC? They do; without it a checker must see what is torn.
    pub crc: bool,
    /// For negative tests.
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

impl PilafConfig {
    /// What the steps ask where a planted fault may decide otherwise.
    pub(super) const fn hooks(&self) -> Hooks {
        Hooks(self.sabotage)
    }

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
