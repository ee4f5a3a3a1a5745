//! How PRISM-RS runs: every choice is a value.

use nicol_core::units::Nanos;

use super::broken::Sabotage;
use crate::Faithful;
use crate::pool::SizeClass;
use crate::recycling::Recycling;

/// Bytes of the smallest buffer of blocks of variable size.
const SMALLEST: u64 = 32;
/// Bytes of the tag before a value in its buffer.
pub(super) const TAG: u64 = 8;

/// The sizes of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocks {
    /// All of [`RsConfig::value_bytes`], as the paper assumes "for simplicity".
    Fixed,
    /// Of up to as many: the metadata has a length as well, and buffers are powers of two, so that
    /// at most half of one is unused. [PRISM21 3.2, 7.3]
    Variable,
}

/// Configuration of `prism-rs`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RsConfig {
    /// Blocks of the whole cluster, numbered from 0: the rows of their keys.
    pub blocks: u64,
    /// Bytes of the largest block.
    pub value_bytes: u64,
    pub sizes: Blocks,
    /// Buffers of each size beyond one for each block. A chain that finds none is tried again.
    pub spare_buffers: u32,
    /// The recycling of buffers.
    pub recycling: Recycling,
    /// A GET writes back what it has read even if a quorum has it already, as printed. Otherwise it
    /// then leaves the write phase out. AMB-40.
    pub always_write_back: bool,
    /// Whether a chain whose CAS fails tells its client what it has allocated. As printed it does
    /// not. AMB-12.
    pub faithful: Faithful,
    /// Time that an operation tries to reach a quorum.
    pub timeout: Nanos,
    #[doc(hidden)]
    pub sabotage: Sabotage,
}

impl RsConfig {
    /// The paper's choices for so many blocks of so many bytes.
    pub const fn paper(blocks: u64, value_bytes: u64) -> Self {
        Self {
            blocks,
            value_bytes,
            sizes: Blocks::Fixed,
            spare_buffers: 4_096,
            recycling: Recycling::by_reports(None),
            always_write_back: true,
            faithful: Faithful::Fixed,
            timeout: Nanos::from_millis(20),
            sabotage: Sabotage::None,
        }
    }

    /// The buffers of a replica: of each size one for each block, and the spare ones.
    pub(super) fn classes(&self) -> Vec<SizeClass> {
        let largest = TAG + self.value_bytes.next_multiple_of(8);
        let count = self.blocks as u32 + self.spare_buffers;
        let class = |bytes| SizeClass { bytes, count };
        match self.sizes {
            Blocks::Fixed => vec![class(largest)],
            Blocks::Variable => {
                let powers = std::iter::successors(Some(SMALLEST), |bytes| Some(bytes * 2));
                let last = largest.next_power_of_two().max(SMALLEST);
                powers.take_while(|bytes| *bytes <= last).map(class).collect()
            }
        }
    }
}
