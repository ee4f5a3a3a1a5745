//! Which values a table whose memory is used up has no room for.

use super::memory::class_bit;
use super::{Growth, HostTable};

/// The sizes of blocks for which a table would have to take more memory than it may: empty while it
/// has memory left. What a primary tells a coordinator that has locked keys there, and does not
/// know yet how long their values will be.
///
/// A committed write always finds its place, whatever was said before: a block of the next region.
/// So the limit is one of admission, as that of records is: a table is beyond it at most by what
/// was admitted when it was reached and is on its way through the logs, and by one region for each
/// size of blocks. A replica takes what its primary has admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExhaustedSpace {
    classes: u16,
    inline: u16,
}

impl ExhaustedSpace {
    /// As it travels: the sizes as bits, and the bytes that stand in a slot.
    pub const fn to_bits(self) -> u32 {
        (self.classes as u32) << 16 | self.inline as u32
    }

    /// The reverse of [`ExhaustedSpace::to_bits`].
    pub const fn from_bits(bits: u32) -> Self {
        Self { classes: (bits >> 16) as u16, inline: bits as u16 }
    }

    /// Has the table room for everything?
    pub const fn is_none(self) -> bool {
        self.classes == 0
    }

    /// What one table or the other, made alike, has no room for.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self { classes: self.classes | other.classes, inline: self.inline.max(other.inline) }
    }

    /// Must a value of `new` bytes be refused? Not if it takes the place of one of `old` bytes
    /// whose block has the same size, and is free then; `None`: there is no record.
    pub fn refuses(self, old: Option<usize>, new: usize) -> bool {
        let class = |len: usize| if len <= usize::from(self.inline) { 0 } else { class_bit(len) };
        class(new) & self.classes != 0 && old.map_or(0, class) != class(new)
    }
}

impl HostTable {
    /// Which values a transaction may not write any more. Asked before commit.
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
