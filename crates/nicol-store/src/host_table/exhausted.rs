//! The values that a table can no longer store once its memory is used up.

use super::memory::{CLASSES, class_bit};
use super::{Growth, HostTable, INLINE_MAX};

/// The block sizes for which a table would need more memory than its limit; empty while it has
/// memory left. A primary sends it to a coordinator that has locked keys there, because the lengths
/// of the new values are not known yet.
///
/// A committed write is always stored, if necessary in a further region. The limit therefore
/// applies to admission, like that of records. A table exceeds it at most by the writes that were
/// admitted before it was reached and are still in the logs, and by one region per block size. A
/// replica stores what its primary has admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExhaustedSpace {
    classes: u32,
    inline: u16,
}

/// Bits of the inline limit on the wire, less one.
const INLINE_BITS: u32 = u32::BITS - CLASSES as u32;
const _: () = assert!(INLINE_MAX <= 1 << INLINE_BITS, "both fit one word");

impl ExhaustedSpace {
    /// The wire form: the sizes as bits, and the inline limit.
    pub const fn to_bits(self) -> u32 {
        self.classes << INLINE_BITS | (self.inline as u32).saturating_sub(1)
    }

    /// The reverse of [`ExhaustedSpace::to_bits`].
    pub const fn from_bits(bits: u32) -> Self {
        let inline = bits & ((1 << INLINE_BITS) - 1);
        Self { classes: bits >> INLINE_BITS, inline: if bits == 0 { 0 } else { inline as u16 + 1 } }
    }

    /// Returns true if nothing is exhausted.
    pub const fn is_none(self) -> bool {
        self.classes == 0
    }

    /// What either of two tables of the same configuration cannot store.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { classes: self.classes | other.classes, inline: self.inline.max(other.inline) }
    }

    /// Returns true if a value of `new` bytes must be refused. It is accepted if it replaces a
    /// value of `old` bytes in a block of the same size. `None`: there is no record.
    pub fn refuses(self, old: Option<usize>, new: usize) -> bool {
        let class = |len: usize| if len <= usize::from(self.inline) { 0 } else { class_bit(len) };
        class(new) & self.classes != 0 && old.map_or(0, class) != class(new)
    }
}

impl HostTable {
    /// The values that a transaction may no longer write. Checked before commit.
    ///
    /// Cost: a load; the writer's mutex once the memory is used up.
    pub fn exhausted_space(&self) -> ExhaustedSpace {
        match self.growth {
            Growth::Doubling { memory_max } if self.memory() >= memory_max => ExhaustedSpace {
                classes: self.writer().heap.without_block(),
                inline: self.geometry.inline as u16,
            },
            _ => ExhaustedSpace::default(),
        }
    }
}
