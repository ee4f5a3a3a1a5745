//! One operation of a chain.

use crate::ids::{FreeListKey, RKey};
use crate::memory::MaskedSwap;

/// The target of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    At(u64),
    /// The target of the pointer at this address (*indirect*).
    Indirect(u64),
    /// The same, and no more bytes than the bound in the word after the pointer (*bounded*, which
    /// means nothing without *indirect*: AMB-11). READ and WRITE only.
    Bounded(u64),
}

/// The data of a WRITE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Data<'a> {
    /// These bytes.
    Inline(&'a [u8]),
    /// Bytes that lie at the target (*data_indirect*).
    From { at: u64, len: u32 },
}

/// The action of an operation. [PRISM21 Table 1]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Primitive<'a> {
    /// Yields `len` bytes.
    Read {
        from: Target,
        /// How many; fewer if bounded.
        len: u32,
    },
    Write {
        to: Target,
        data: Data<'a>,
    },
    /// Compares and swaps; yields the previous words, also where the comparison does not hold.
    CompareSwap {
        /// The words, aligned to the operand's size; not bounded, not scratch.
        target: Target,
        swap: MaskedSwap,
        /// Take the compare operand from this address instead.
        compare_at: Option<u64>,
        /// Take the swap operand from this address instead. One address for both is fetched once.
        swap_at: Option<u64>,
    },
    /// Adds to a word, wrapping; yields the previous word.
    FetchAdd {
        /// The word; not bounded, not scratch.
        target: Target,
        amount: u64,
    },
    /// Pops the first buffer of a free list in the operation's region, writes to it, and yields its
    /// offset as a word. Refused with `NoResources` if no buffer is ready.
    Allocate {
        list: FreeListKey,
        /// The data to write; not more than a buffer holds.
        data: &'a [u8],
    },
}

/// An operation of a chain: a primitive, the key it presents, and the chaining flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step<'a> {
    pub primitive: Primitive<'a>,
    /// The key of the region that it accesses, pointed-to locations included.
    pub rkey: RKey,
    /// Skip it unless the operation before it was successful. The first is never skipped.
    pub conditional: bool,
    /// Write the output to this address instead of returning it. Not for a WRITE, which has none.
    pub redirect: Option<u64>,
}

impl<'a> Primitive<'a> {
    /// This primitive as an unconditional operation whose output is returned.
    pub const fn under(self, rkey: RKey) -> Step<'a> {
        Step { primitive: self, rkey, conditional: false, redirect: None }
    }

    /// A compare-and-swap of these operands at `target`.
    pub const fn compare_swap(target: Target, swap: MaskedSwap) -> Self {
        Self::CompareSwap { target, swap, compare_at: None, swap_at: None }
    }
}

impl Step<'_> {
    #[must_use]
    pub const fn conditional(mut self) -> Self {
        self.conditional = true;
        self
    }

    /// REDIRECT(`to`).
    #[must_use]
    pub const fn redirected(mut self, to: u64) -> Self {
        self.redirect = Some(to);
        self
    }
}
