//! Accesses that are atomic with respect to each other: what one-sided operations do to a region.
//!
//! Each passes the [`Seqlocks`](super::seqlock::Seqlocks) of the spans that it touches. A wide
//! compare-and-swap lies within one span, since it is naturally aligned.

use std::ops::Range;

use super::region::{AccessError, Region, WORD};
use super::seqlock::SPAN;
use super::swap::{MaskedSwap, SWAP_WORDS_MAX, Swapped};
use crate::fabric::FabricError;

const _: () = assert!((SWAP_WORDS_MAX * WORD) as u64 <= SPAN, "a swap lies within one span");

/// How often a compare-and-swap of one word is tried against host code that changes the word in
/// between. A change by a thread of the same machine takes tens of nanoseconds, so that these are a
/// few microseconds in which the engine does nothing else.
const SWAP_TRIES: u32 = 64;

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

    /// True if `swap` fits at `offset`: inside the region, and aligned to its size.
    pub fn check_swap(&self, offset: u64, swap: &MaskedSwap) -> Result<(), AccessError> {
        if !offset.is_multiple_of(swap.size()) {
            return Err(AccessError::Misaligned { offset });
        }
        self.check(offset, swap.size())
    }

    /// Compares and swaps at `offset`, atomically with respect to guarded accesses; for one word
    /// also to [`Region::compare_swap`] and the like, which host code uses. [PRISM21 3.3]
    ///
    /// Time: bounded (decision 0009). `NoResources` (receiver not ready), with nothing swapped, if
    /// host code has changed the one word between each of `SWAP_TRIES` looks at it and the swap.
    pub fn swap_atomic(&self, offset: u64, swap: &MaskedSwap) -> Result<Swapped, FabricError> {
        let denied = FabricError::AccessDenied;
        self.check_swap(offset, swap).map_err(denied)?;
        let offsets = (0..swap.words()).map(|word| offset + (word * WORD) as u64);
        let _held = self.seqlocks().hold(offset);
        let mut previous = [0; SWAP_WORDS_MAX];
        for (word, at) in offsets.clone().enumerate() {
            previous[word] = self.load(at).map_err(denied)?;
        }
        if swap.words() == 1 {
            let mut exchange = |found, new| self.compare_swap(offset, found, new);
            let done = swap_word(swap, previous[0], &mut exchange).map_err(denied)?;
            return done.ok_or(FabricError::NoResources);
        }
        let Some(new) = swap.decide(&previous) else {
            return Ok(Swapped { previous, swapped: false });
        };
        for (word, at) in offsets.enumerate() {
            self.store(at, new[word]).map_err(denied)?;
        }
        Ok(Swapped { previous, swapped: true })
    }
}

/// Swaps one word that was last `found`, where host code may change it at any time: `exchange`
/// compares it with its first operand, writes its second if they are equal, and returns the word
/// before.
///
/// `None` if it has changed between each of [`SWAP_TRIES`] decisions and exchanges. Where every bit
/// is compared for equality, that cannot be: a change of the word is the end of the comparison.
fn swap_word(
    swap: &MaskedSwap,
    mut found: u64,
    exchange: &mut impl FnMut(u64, u64) -> Result<u64, AccessError>,
) -> Result<Option<Swapped>, AccessError> {
    for _ in 0..SWAP_TRIES {
        let mut previous = [0; SWAP_WORDS_MAX];
        previous[0] = found;
        let Some(new) = swap.decide(&previous) else {
            return Ok(Some(Swapped { previous, swapped: false }));
        };
        let now = exchange(found, new[0])?;
        if now == found {
            return Ok(Some(Swapped { previous, swapped: true }));
        }
        found = now;
    }
    Ok(None)
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
            let misaligned = AccessError::Misaligned { offset };
            assert_eq!(refused, Err(FabricError::AccessDenied(misaligned)));
        }
        let refused = region.swap_atomic(64, &swap);
        let outside = AccessError::OutOfBounds { offset: 64, len: 32, size: 80 };
        assert_eq!(refused, Err(FabricError::AccessDenied(outside)));
        assert!((0..10).all(|word| region.load(word * 8) == Ok(0)));
        assert!(MaskedSwap::of_words(Compare::Equal, 3).is_err());
    }

    /// Host code that changes the word before every exchange: the time is bounded all the same.
    /// [PRISM21 4.1]
    #[test]
    fn a_swap_ends_whatever_host_code_does_to_its_word() {
        let run = |swap: &MaskedSwap, changes: u32| {
            let (mut word, mut exchanges) = (5, 0);
            let mut exchange = |found: u64, new: u64| {
                exchanges += 1;
                word += u64::from(exchanges <= changes) << 32;
                let before = word;
                word = if word == found { new } else { word };
                Ok(before)
            };
            let done = swap_word(swap, 5, &mut exchange).unwrap();
            (done.map(|done| done.swapped), exchanges, word)
        };
        let low = [0xffff_ffff];
        let full = MaskedSwap::new(Compare::Equal, [5], [6]);
        let masked = full.masked(low, low);
        let greater = MaskedSwap::new(Compare::Greater, [u64::MAX], [7]);
        for swap in [&masked, &greater] {
            assert_eq!(run(swap, 0).0, Some(true));
            assert_eq!(run(swap, SWAP_TRIES - 1).0, Some(true), "the last try is a try");
            let (done, exchanges, word) = run(swap, u32::MAX);
            assert_eq!((done, exchanges), (None, SWAP_TRIES), "{swap:?}");
            assert_eq!(word, 5 + (u64::from(SWAP_TRIES) << 32), "nothing was swapped");
        }
        // Equality of every bit is decided by the first change.
        assert_eq!(run(&full, u32::MAX), (Some(false), 1, 5 + (1 << 32)));
    }

    #[test]
    fn wide_swaps_reads_and_writes_of_threads_are_atomic() {
        const ROUNDS: u64 = test_steps(4_000);
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
