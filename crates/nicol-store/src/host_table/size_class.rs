//! The sizes of heap blocks, and of the slabs that blocks of one size share.

use nicol_core::memory::WORD;
use nicol_core::txn::VALUE_MAX;

/// Bytes of a block besides its value: key and seal.
pub(super) const BLOCK_OVERHEAD: u64 = 2 * WORD as u64;

/// Bytes that a value of `len` bytes takes in its block.
pub(super) const fn needed(len: u32) -> u64 {
    BLOCK_OVERHEAD + (len as u64).next_multiple_of(WORD as u64)
}

/// A size of blocks. Up to 128 bytes one for each word; then eight for each doubling, so that
/// rounding up takes 6 % of a value at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SizeClass(u8);

/// Bytes of the smallest block: a value's own words, and one word of it.
const BLOCK_MIN: u64 = BLOCK_OVERHEAD + WORD as u64;
/// Blocks smaller than this are a word apart.
const FINE: u64 = 128;
/// Classes below [`FINE`].
const FINE_CLASSES: u64 = (FINE - BLOCK_MIN) / WORD as u64;
/// Classes of a doubling.
const STEPS: u64 = 8;
/// Bytes of a page, in which slabs are given back.
const PAGE: u64 = 4_096;
/// Bytes of a slab, where a block is not larger.
const SLAB_BYTES: u64 = 1 << 16;

/// The dimensions of a class, worked out once.
#[derive(Clone, Copy, Debug)]
struct Shape {
    block: u64,
    slab: u64,
    blocks: u64,
}

impl Shape {
    const fn of(class: u64) -> Self {
        let block = match class.checked_sub(FINE_CLASSES) {
            None => BLOCK_MIN + class * WORD as u64,
            Some(above) => {
                let step = FINE.ilog2() - STEPS.ilog2() + (above / STEPS) as u32;
                (STEPS + above % STEPS) << step
            }
        };
        let slab = if block < FINE {
            SLAB_BYTES / 2
        } else {
            let page = PAGE.ilog2();
            let zeros = block.trailing_zeros();
            // The least that is a multiple of both a block and a page.
            let least = block >> (if zeros < page { zeros } else { page }) << page;
            if least < SLAB_BYTES { SLAB_BYTES / least * least } else { least }
        };
        Self { block, slab, blocks: slab / block }
    }
}

/// Of every class.
static SHAPES: [Shape; SizeClass::COUNT] = {
    let mut shapes = [Shape::of(0); SizeClass::COUNT];
    let mut class = 0;
    while class < SizeClass::COUNT {
        shapes[class] = Shape::of(class as u64);
        class += 1;
    }
    shapes
};

impl SizeClass {
    /// How many there are.
    pub(super) const COUNT: usize = Self::holding(needed(VALUE_MAX as u32)).0 as usize + 1;

    /// All of them.
    pub(super) fn all() -> impl DoubleEndedIterator<Item = Self> {
        (0..Self::COUNT).map(|class| Self(class as u8))
    }

    /// The smallest class with blocks of at least so many bytes.
    pub(super) const fn holding(bytes: u64) -> Self {
        if bytes <= BLOCK_MIN {
            return Self(0);
        }
        if bytes <= FINE {
            return Self(((bytes - BLOCK_MIN).div_ceil(WORD as u64)) as u8);
        }
        let step = (bytes - 1).ilog2() - STEPS.ilog2();
        let doublings = (step - (FINE.ilog2() - STEPS.ilog2())) as u64;
        let steps = bytes.div_ceil(1 << step) - STEPS;
        Self((FINE_CLASSES + doublings * STEPS + steps) as u8)
    }

    /// The class of a value.
    pub(super) const fn of_value(len: u32) -> Self {
        Self::holding(needed(len))
    }

    /// Its place among all.
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Those whose blocks are up to twice as large, from this one on.
    pub(super) fn up_to_twice(self) -> impl Iterator<Item = Self> {
        let larger = (self.0..Self::COUNT as u8).map(Self);
        larger.take_while(move |class| class.block_bytes() <= 2 * self.block_bytes())
    }

    /// Bytes of a block.
    pub(super) fn block_bytes(self) -> u64 {
        SHAPES[self.index()].block
    }

    /// Bytes of a slab: whole pages. Smaller blocks than [`FINE`] may leave a rest.
    pub(super) fn slab_bytes(self) -> u64 {
        SHAPES[self.index()].slab
    }

    /// Blocks of a slab.
    pub(super) fn slab_blocks(self) -> u64 {
        SHAPES[self.index()].blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_the_smallest_block_that_holds_it_and_slabs_have_no_rest() {
        let sizes: Vec<u64> = SizeClass::all().map(SizeClass::block_bytes).collect();
        assert!(sizes.is_sorted() && sizes[0] == BLOCK_MIN);
        for bytes in (1..=4_096).chain([9_000, 70_000, 1 << 20, needed(VALUE_MAX as u32)]) {
            let class = SizeClass::holding(bytes);
            assert_eq!(sizes.partition_point(|&size| size < bytes), class.index(), "{bytes}");
            let waste = class.block_bytes() - bytes;
            assert!(bytes < FINE || waste * 8 <= bytes, "{bytes} in {}", class.block_bytes());
        }
        for class in SizeClass::all() {
            let (slab, block) = (class.slab_bytes(), class.block_bytes());
            let rest = slab - block * class.slab_blocks();
            assert!(
                slab.is_multiple_of(PAGE) && rest * 128 <= slab,
                "{rest} of {slab} for {block}"
            );
            assert!(slab <= SLAB_BYTES.max(block) && slab >= SLAB_BYTES / 2, "{slab} for {block}");
            assert!(block.is_multiple_of(WORD as u64));
        }
    }
}
