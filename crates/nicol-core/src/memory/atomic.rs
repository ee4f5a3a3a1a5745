//! Accesses that are atomic with respect to each other: what one-sided operations do to a region.
//!
//! Each passes the [`Seqlocks`](super::seqlock::Seqlocks) of the spans that it touches. A wide
//! compare-and-swap lies within one span, since it is naturally aligned.

use std::ops::Range;

use super::region::{AccessError, Region, WORD};
use super::seqlock::SPAN;
use super::swap::{MaskedSwap, SWAP_WORDS_MAX, Swapped};

const _: () = assert!((SWAP_WORDS_MAX * WORD) as u64 <= SPAN, "a swap lies within one span");

/// The parts of `offset..offset + len` that lie in different spans, as ranges from zero.
fn parts(offset: u64, len: usize) -> impl Iterator<Item = (u64, Range<usize>)> {
    let end = offset + len as u64;
    let mut at = offset;
    std::iter::from_fn(move || {
        let next = end.min((at / SPAN + 1) * SPAN);
        let part = (at, (at - offset) as usize..(next - offset) as usize);
        at = next;
        (!part.1.is_empty()).then_some(part)
    })
}

impl Region {
    /// [`Region::read`], each span of 256 bytes at one instant with respect to the other guarded
    /// accesses.
    pub fn read_atomic(&self, offset: u64, into: &mut [u8]) -> Result<(), AccessError> {
        self.check(offset, into.len() as u64)?;
        for (at, part) in parts(offset, into.len()) {
            self.seqlocks().of(at).read(|| self.read(at, &mut into[part.clone()]))?;
        }
        Ok(())
    }

    /// [`Region::write`], each span of 256 bytes at one instant with respect to the other guarded
    /// accesses.
    pub fn write_atomic(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        self.check(offset, bytes.len() as u64)?;
        for (at, part) in parts(offset, bytes.len()) {
            let held = self.seqlocks().hold(at);
            self.write(at, &bytes[part])?;
            drop(held);
        }
        Ok(())
    }

    /// Adds `amount` (wrapping) to the word at `offset`, atomically with respect to guarded
    /// accesses and to [`Region::fetch_add`]; returns the previous value.
    pub fn add_atomic(&self, offset: u64, amount: u64) -> Result<u64, AccessError> {
        self.check(offset, WORD as u64)?;
        let _held = self.seqlocks().hold(offset);
        self.fetch_add(offset, amount)
    }

    /// Is `offset` a place for `swap`: inside, and aligned to its size?
    pub fn check_swap(&self, offset: u64, swap: &MaskedSwap) -> Result<(), AccessError> {
        if !offset.is_multiple_of(swap.size()) {
            return Err(AccessError::Misaligned { offset });
        }
        self.check(offset, swap.size())
    }

    /// Compares and swaps at `offset`, atomically with respect to guarded accesses; for one word
    /// also to [`Region::compare_swap`] and the like, which host code uses. [PRISM21 3.3]
    ///
    /// Time: bounded but for host code, each of whose changes of the one word in between makes it
    /// compare again.
    pub fn swap_atomic(&self, offset: u64, swap: &MaskedSwap) -> Result<Swapped, AccessError> {
        self.check_swap(offset, swap)?;
        let offsets = (0..swap.words()).map(|word| offset + (word * WORD) as u64);
        let _held = self.seqlocks().hold(offset);
        loop {
            let mut previous = [0; SWAP_WORDS_MAX];
            for (word, at) in offsets.clone().enumerate() {
                previous[word] = self.load(at)?;
            }
            let Some(new) = swap.decide(&previous) else {
                return Ok(Swapped { previous, swapped: false });
            };
            if swap.words() > 1 {
                for (word, at) in offsets.enumerate() {
                    self.store(at, new[word])?;
                }
                return Ok(Swapped { previous, swapped: true });
            }
            if self.compare_swap(offset, previous[0], new[0])? == previous[0] {
                return Ok(Swapped { previous, swapped: true });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;
    use crate::memory::Compare;
    use crate::rng::{Purpose, Stream, test_steps};
    use crate::units::Bytes;

    /// A number of 256 bits, worked out bit by bit: slow, and nothing like the code it judges.
    fn bits(words: &[u64]) -> Vec<bool> {
        words.iter().flat_map(|word| (0..64).rev().map(move |bit| word >> bit & 1 == 1)).collect()
    }

    fn model(swap: &MaskedSwap, found: &[u64]) -> Option<Vec<bool>> {
        let words = found.len();
        let and = |a: &[u64], b: &[u64]| -> Vec<bool> {
            bits(&a[..words]).into_iter().zip(bits(&b[..words])).map(|(a, b)| a && b).collect()
        };
        let operand = and(&swap.compare, &swap.compare_mask);
        let target = and(found, &swap.compare_mask);
        let differ = operand.iter().zip(&target).position(|(a, b)| a != b);
        let holds = match swap.mode() {
            Compare::Equal => differ.is_none(),
            Compare::Greater => differ.is_some_and(|bit| operand[bit]),
            Compare::Less => differ.is_some_and(|bit| target[bit]),
        };
        let (swap_in, mask) = (bits(&swap.swap[..words]), bits(&swap.swap_mask[..words]));
        let new = bits(found).into_iter().zip(swap_in.into_iter().zip(mask));
        holds.then(|| new.map(|(old, (new, mask))| if mask { new } else { old }).collect())
    }

    #[test]
    fn a_masked_swap_is_what_a_big_number_says() {
        let mut rng = Stream::new(7, Purpose::Protocol, 0);
        let region = Region::new(Bytes(512));
        let mut swaps = [0; 3];
        for case in 0..30_000 {
            let words = 1 << (case % 3);
            // Few different values, so that words are often equal and order hangs on later ones.
            let mut word = || match rng.bits() % 4 {
                0 => rng.bits(),
                1 => u64::MAX,
                2 => 1 << (rng.bits() % 64),
                _ => 0,
            };
            let mode = [Compare::Equal, Compare::Greater, Compare::Less][case / 3 % 3];
            let mut swap = MaskedSwap::of_words(mode, words).unwrap();
            let mut found = [0; SWAP_WORDS_MAX];
            for (at, found) in found.iter_mut().enumerate().take(words) {
                (swap.compare[at], swap.swap[at], *found) = (word(), word(), word());
                (swap.compare_mask[at], swap.swap_mask[at]) = (word(), word());
                if word().is_multiple_of(2) {
                    swap.compare[at] = *found;
                }
            }
            let offset = swap.size() * (word() % 8);
            for (at, word) in found[..words].iter().enumerate() {
                region.store(offset + 8 * at as u64, *word).unwrap();
            }
            let done = region.swap_atomic(offset, &swap).unwrap();
            let expected = model(&swap, &found[..words]);
            assert_eq!(done, Swapped { previous: found, swapped: expected.is_some() });
            let after: Vec<u64> =
                (0..words).map(|at| region.load(offset + 8 * at as u64).unwrap()).collect();
            assert_eq!(bits(&after), expected.unwrap_or_else(|| bits(&found[..words])));
            swaps[case / 3 % 3] += usize::from(done.swapped);
        }
        assert!(swaps.iter().all(|&swaps| swaps > 1_000), "each mode must have swapped: {swaps:?}");
    }

    #[test]
    fn a_wide_swap_must_be_naturally_aligned_and_inside() {
        let region = Region::new(Bytes(80));
        let swap = MaskedSwap::new(Compare::Equal, [0; 4], [1; 4]);
        for offset in [8, 16, 24, 63] {
            let refused = region.swap_atomic(offset, &swap);
            assert_eq!(refused, Err(AccessError::Misaligned { offset }));
        }
        let refused = region.swap_atomic(64, &swap);
        assert_eq!(refused, Err(AccessError::OutOfBounds { offset: 64, len: 32, size: 80 }));
        assert!((0..10).all(|word| region.load(word * 8) == Ok(0)));
        assert!(MaskedSwap::of_words(Compare::Equal, 3).is_err());
    }

    #[test]
    fn wide_swaps_reads_and_writes_of_threads_are_atomic() {
        const ROUNDS: u64 = test_steps(20_000);
        let region = Arc::new(Region::new(Bytes(1_024)));
        let same = |words: &[u8]| words.chunks(8).all(|word| word == &words[..8]);
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let region = region.clone();
                thread::spawn(move || {
                    let (mut won, mut seen) = (0, [0; 32]);
                    while won < ROUNDS {
                        region.read_atomic(96, &mut seen).unwrap();
                        assert!(same(&seen), "a torn read: {seen:?}");
                        let old = u64::from_le_bytes(seen[..8].try_into().unwrap());
                        let swap = MaskedSwap::new(Compare::Equal, [old; 4], [old + 1; 4]);
                        won += u64::from(region.swap_atomic(96, &swap).unwrap().swapped);
                        // Another place under the same seqlock, written whole.
                        region.write_atomic(128, &[thread as u8; 64]).unwrap();
                        let mut beside = [0; 64];
                        region.read_atomic(128, &mut beside).unwrap();
                        assert!(same(&beside), "a torn write: {beside:?}");
                        region.add_atomic(96 + 512, 1).unwrap();
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().unwrap();
        }
        assert!((0..4).all(|word| region.load(96 + word * 8) == Ok(4 * ROUNDS)));
        assert!(region.load(96 + 512).unwrap() >= 4 * ROUNDS);
    }
}
