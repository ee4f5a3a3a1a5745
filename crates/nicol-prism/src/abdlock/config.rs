//! How ABDLOCK runs: every choice is a value, and where its blocks stand.

use nicol_core::units::Nanos;

use crate::Verbs;

use super::broken::Sabotage;

/// The replicas that the write phase writes. AMB-54.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteTo {
    /// "Each replica on which it has acquired a lock" [PRISM21 7.2]: also those that grant theirs
    /// after a majority has, until the write phase begins.
    Locked,
    /// The f + 1 that are locked first. The others are released at once.
    Quorum,
}

/// Configuration of `abdlock`: the lock-based baseline of PRISM-RS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbdlockConfig {
    /// Blocks of the whole cluster, numbered from 0: the rows of their keys.
    pub blocks: u64,
    /// Bytes of a block.
    pub value_bytes: u64,
    pub verbs: Verbs,
    pub write_to: WriteTo,
    /// The longest wait before the second attempt to lock; it doubles with every further one.
    pub backoff: Nanos,
    /// Time that an operation tries to reach a majority.
    pub timeout: Nanos,
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

/// Bytes of the lock and of the tag, before the value.
pub(super) const LOCK: u64 = 8;
const TAG: u64 = 8;

impl AbdlockConfig {
    /// The paper's choices for so many blocks of so many bytes.
    pub const fn paper(blocks: u64, value_bytes: u64, verbs: Verbs) -> Self {
        Self {
            blocks,
            value_bytes,
            verbs,
            write_to: WriteTo::Locked,
            backoff: Nanos::from_micros(8),
            timeout: Nanos::from_millis(20),
            sabotage: Sabotage::None,
        }
    }

    /// Bytes from one block to the next: `lock | tag | value`.
    pub(super) const fn stride(&self) -> u64 {
        LOCK + TAG + self.value_bytes.next_multiple_of(8)
    }

    /// The address of the lock of `block`.
    pub(super) const fn lock(&self, block: u64) -> u64 {
        block * self.stride()
    }

    /// The address of the tag of `block`, which its value follows.
    pub(super) const fn tag(&self, block: u64) -> u64 {
        self.lock(block) + LOCK
    }

    /// Bytes of tag and value.
    pub(super) const fn tagged_bytes(&self) -> u64 {
        TAG + self.value_bytes
    }
}
