//! What a table can no longer store: records beyond those it was made for or has memory for, and
//! values once its memory is used up.

use nicol_core::txn::VALUE_MAX;

use super::INLINE_MAX;
use super::heap::Heap;
use super::size_class::SizeClass;

/// Whether a table has no capacity for a further record, and the sizes of values for which it would
/// need more memory than its limit; empty while it has both. A primary sends it to a coordinator
/// that has locked keys there, because what will be written, and whether anything, is not known
/// yet: to delete what is absent takes no space.
///
/// A committed write is always stored, if necessary in a further region. The limit therefore
/// applies to admission, like that of records. A table exceeds it at most by the writes that were
/// admitted before it was reached and are still in the logs, and by one slab per block size. A
/// replica stores what its primary has admitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExhaustedSpace {
    /// A bit for each group of block sizes.
    sizes: u32,
    inline: u16,
    records: bool,
}

/// Groups of neighbouring block sizes, which have a bit each: those of usual ones, and of large
/// ones above them.
const GROUPS: usize = USUAL_GROUPS + LARGE_GROUPS;
const USUAL_GROUPS: usize = 20;
const LARGE_GROUPS: usize = 4;

/// Blocks beyond which a value is large: a table refuses it as soon as its memory has less room
/// than a block, and not only once it is used up.
const LARGE_BLOCK: u64 = 1 << 20;
/// Sizes of usual blocks.
const USUAL: usize = SizeClass::holding(LARGE_BLOCK).index() + 1;
/// The bits of all groups of usual sizes.
const USUAL_SIZES: u32 = (1 << USUAL_GROUPS) - 1;

/// The bit of the group of a block size.
const fn bit_of_class(class: SizeClass) -> u32 {
    const GROUP: usize = USUAL.div_ceil(USUAL_GROUPS);
    const LARGE_GROUP: usize = (SizeClass::COUNT - USUAL).div_ceil(LARGE_GROUPS);
    match class.index().checked_sub(USUAL) {
        None => 1 << (class.index() / GROUP),
        Some(large) => 1 << (USUAL_GROUPS + large / LARGE_GROUP),
    }
}

/// Bits of the inline limit on the wire, less one where it is not 0.
const INLINE_BITS: u32 = u32::BITS - GROUPS as u32;
const _: () = assert!(INLINE_MAX <= 1 << INLINE_BITS, "both fit one word");

/// The bit of a value of `len` bytes; of one beyond any value, all.
fn bit_of(len: usize) -> u32 {
    if len > VALUE_MAX { (1 << GROUPS) - 1 } else { bit_of_class(SizeClass::of_value(len as u32)) }
}

/// The groups of large blocks of which one is larger than `room`.
pub(super) fn sizes_beyond(room: u64) -> u32 {
    let beyond = |class: &SizeClass| class.block_bytes() > room.max(LARGE_BLOCK);
    let bits = SizeClass::all().rev().take_while(beyond).map(bit_of_class);
    bits.fold(0, |bits, bit| bits | bit) & !USUAL_SIZES
}

/// The groups of sizes of which one has no free block.
pub(super) fn sizes_of(heap: &Heap) -> u32 {
    heap.exhausted().fold(0, |bits, class| bits | bit_of_class(class))
}

impl ExhaustedSpace {
    /// The block sizes `sizes` of a table that keeps values of up to `inline` bytes in the slot,
    /// and whether it refuses further `records`.
    pub(super) const fn new(sizes: u32, inline: usize, records: bool) -> Self {
        Self { sizes, inline: if sizes == 0 { 0 } else { inline as u16 }, records }
    }

    /// The wire form of the values: the sizes as bits, and the inline limit. 0: there are none.
    pub const fn to_bits(self) -> u32 {
        self.sizes << INLINE_BITS | (self.inline as u32).saturating_sub(1)
    }

    /// The reverse of [`ExhaustedSpace::to_bits`], and whether further records are refused.
    pub const fn from_bits(bits: u32, records: bool) -> Self {
        let inline = bits & ((1 << INLINE_BITS) - 1);
        // 0 stands for 0: a slot with space for a value has more than one byte.
        let inline = if inline == 0 { 0 } else { inline as u16 + 1 };
        Self { sizes: bits >> INLINE_BITS, inline, records }
    }

    /// Returns true if nothing is exhausted.
    pub const fn is_none(self) -> bool {
        self.takes_values() && !self.records
    }

    /// Returns true if no size of values is exhausted.
    pub const fn takes_values(self) -> bool {
        self.sizes == 0
    }

    /// Returns true if no record and no value is refused that is not large.
    pub const fn takes_usual(self) -> bool {
        self.sizes & USUAL_SIZES == 0 && !self.records
    }

    /// Returns true if a further record must be refused.
    pub const fn refuses_records(self) -> bool {
        self.records
    }

    /// What either of two tables cannot store. Where they keep values of different lengths in their
    /// slots and lack blocks, both, it refuses what only one of them keeps in the slot.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let inline = match (self.sizes, other.sizes) {
            (0, _) => other.inline,
            (_, 0) => self.inline,
            _ => self.inline.min(other.inline),
        };
        Self { sizes: self.sizes | other.sizes, inline, records: self.records || other.records }
    }

    /// Returns true if a value of `new` bytes must be refused. It is accepted if it replaces a
    /// value of `old` bytes in a block of the same size. `None`: there is no record.
    pub fn refuses(self, old: Option<usize>, new: usize) -> bool {
        let out_of_line = |len: usize| self.inline == 0 || len > usize::from(self.inline);
        let class = |len: usize| (len <= VALUE_MAX).then(|| SizeClass::of_value(len as u32));
        let same = |old: usize| out_of_line(old) && class(old) == class(new);
        let exhausted = out_of_line(new) && bit_of(new) & self.sizes != 0;
        exhausted && !old.is_some_and(same) || self.records && old.is_none()
    }
}
