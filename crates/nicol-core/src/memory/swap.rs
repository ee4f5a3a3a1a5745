//! The enhanced compare-and-swap: up to 32 bytes, masks, order. [PRISM21 3.3, Table 1]

use super::WORD;
use crate::wire::Malformed;

/// Words of the widest compare-and-swap: 32 bytes, as in Mellanox extended atomics.
pub const SWAP_WORDS_MAX: usize = 4;

/// The comparison of the operand with the memory, both masked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compare {
    Equal,
    /// Greater: a newer version replaces an older one.
    Greater,
    Less,
}

/// A masked compare-and-swap of one, two or four words.
///
/// The words form one number, the first word most significant, so that a structure compares field
/// by field. Each word is a little-endian field of eight bytes, as every other word of a region
/// (AMB-10, decision 0009).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MaskedSwap {
    words: usize,
    mode: Compare,
    /// The operand that is compared with the target.
    pub compare: [u64; SWAP_WORDS_MAX],
    /// The value that the target gets.
    pub swap: [u64; SWAP_WORDS_MAX],
    /// The bits that take part in the comparison.
    pub compare_mask: [u64; SWAP_WORDS_MAX],
    /// The bits that are replaced.
    pub swap_mask: [u64; SWAP_WORDS_MAX],
}

/// The result of a compare-and-swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swapped {
    /// The target's words before; those beyond the operand's are zero.
    pub previous: [u64; SWAP_WORDS_MAX],
    /// Did the comparison hold, so that the target was replaced?
    pub swapped: bool,
}

impl MaskedSwap {
    /// Compares every bit of `words` words and replaces every bit; operands are zero.
    pub fn of_words(mode: Compare, words: usize) -> Result<Self, Malformed> {
        if !matches!(words, 1 | 2 | SWAP_WORDS_MAX) {
            return Err(Malformed { what: "a compare-and-swap of one, two or four words" });
        }
        let mut mask = [0; SWAP_WORDS_MAX];
        mask[..words].fill(u64::MAX);
        let zero = [0; SWAP_WORDS_MAX];
        Ok(Self { words, mode, compare: zero, swap: zero, compare_mask: mask, swap_mask: mask })
    }

    /// Compares with `compare` and swaps in `swap`, every bit.
    ///
    /// # Panics
    /// If there are not one, two or four words.
    pub fn new<const N: usize>(mode: Compare, compare: [u64; N], swap: [u64; N]) -> Self {
        let Ok(mut this) = Self::of_words(mode, N) else {
            panic!("{N} words are not a compare-and-swap's");
        };
        this.compare[..N].copy_from_slice(&compare);
        this.swap[..N].copy_from_slice(&swap);
        this
    }

    /// Compares only the bits of `compare_mask`, replaces only those of `swap_mask`.
    ///
    /// # Panics
    /// If the masks have not as many words as the operands.
    #[must_use]
    pub fn masked<const N: usize>(mut self, compare_mask: [u64; N], swap_mask: [u64; N]) -> Self {
        assert!(N == self.words, "masks are as wide as the operands");
        self.compare_mask[..N].copy_from_slice(&compare_mask);
        self.swap_mask[..N].copy_from_slice(&swap_mask);
        self
    }

    /// Does every bit take part, in the comparison and in the swap?
    pub fn is_full(&self) -> bool {
        let every = |mask: &[u64]| mask[..self.words].iter().all(|&word| word == u64::MAX);
        every(&self.compare_mask) && every(&self.swap_mask)
    }

    pub const fn words(&self) -> usize {
        self.words
    }

    /// Bytes of the target, which must be aligned to as many.
    pub const fn size(&self) -> u64 {
        (self.words * WORD) as u64
    }

    /// How operand and target are compared.
    pub const fn mode(&self) -> Compare {
        self.mode
    }

    /// The value that replaces `found`, if the comparison holds.
    pub fn decide(&self, found: &[u64; SWAP_WORDS_MAX]) -> Option<[u64; SWAP_WORDS_MAX]> {
        let masked = |words: &[u64; SWAP_WORDS_MAX]| -> [u64; SWAP_WORDS_MAX] {
            std::array::from_fn(|word| words[word] & self.compare_mask[word])
        };
        let order = masked(&self.compare).cmp(&masked(found));
        let holds = match self.mode {
            Compare::Equal => order.is_eq(),
            Compare::Greater => order.is_gt(),
            Compare::Less => order.is_lt(),
        };
        holds.then(|| {
            std::array::from_fn(|word| {
                let mask = self.swap_mask[word];
                found[word] & !mask | self.swap[word] & mask
            })
        })
    }
}
