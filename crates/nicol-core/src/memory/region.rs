//! A region: shared memory that is only ever read and written as atomics.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use zerocopy::FromZeros;

use super::Doorbell;
use super::seqlock::Seqlocks;
use crate::units::Bytes;

/// Bytes in a word: the unit of atomicity, and the alignment of every access.
pub const WORD: usize = 8;

/// Why an access to a region was refused. Nothing was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AccessError {
    /// The range does not lie inside the region.
    #[error("range {offset}+{len} lies outside the region of {size} bytes")]
    OutOfBounds {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Size of the region.
        size: u64,
    },
    /// The offset is not a multiple of eight, or for a wide compare-and-swap not of its size.
    #[error("offset {offset} is not aligned for this access")]
    Misaligned {
        /// First byte asked for.
        offset: u64,
    },
    /// No region has this key, or it does not allow the operation.
    #[error("rkey {rkey:#010x} does not allow this operation")]
    Denied {
        /// The key presented: of a region, or of a free list.
        rkey: u32,
    },
    /// The buffer posted to a free list is not one that was allocated from it.
    #[error("offset {offset} is not a buffer in use")]
    NotInUse {
        /// The offset posted.
        offset: u64,
    },
}

/// Shared memory of fixed size, zeroed at birth.
///
/// Accesses start at a multiple of eight and may have any length. Words are moved one by one in
/// ascending order, each written with release and read with acquire, as PCIe posted writes land. So
/// a reader that sees a word of a write sees every word written before it; a reader that runs
/// beside a writer may still see a torn record and must detect that (seqlock words, see
/// `nicol_store::host_table`).
pub struct Region {
    words: Box<[AtomicU64]>,
    size: u64,
    doorbell: Doorbell,
    seqlocks: Seqlocks,
}

impl Region {
    /// A zeroed region of `size` bytes (rounded up to a word). The operating system gives it memory
    /// where it is first written: a table with room to grow costs what is in it.
    ///
    /// # Panics
    /// If there is not so much address space.
    pub fn new(size: Bytes) -> Self {
        let len = size.0.div_ceil(WORD as u64) as usize;
        let Ok(words) = <[AtomicU64]>::new_box_zeroed_with_elems(len) else {
            panic!("no memory for a region of {} bytes", size.0);
        };
        Self { words, size: size.0, doorbell: Doorbell::default(), seqlocks: Seqlocks::new(size.0) }
    }

    /// A region of its own with the same bytes. What was never written stays so.
    pub fn copy(&self) -> Self {
        /// Words of a page of memory.
        const PAGE: usize = 4_096 / WORD;
        let copy = Self::new(Bytes(self.size));
        for (from, to) in self.words.chunks(PAGE).zip(copy.words.chunks(PAGE)) {
            if from.iter().all(|word| word.load(Ordering::Acquire) == 0) {
                continue;
            }
            for (from, to) in from.iter().zip(to) {
                to.store(from.load(Ordering::Acquire), Ordering::Relaxed);
            }
        }
        copy
    }

    /// Its size in bytes.
    pub fn size(&self) -> Bytes {
        Bytes(self.size)
    }

    /// Rung whenever an engine of the other side has written to this region.
    pub fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    pub(super) fn seqlocks(&self) -> &Seqlocks {
        &self.seqlocks
    }

    /// Checks that `offset..offset + len` is an aligned range of this region.
    pub fn check(&self, offset: u64, len: u64) -> Result<(), AccessError> {
        if !offset.is_multiple_of(WORD as u64) {
            return Err(AccessError::Misaligned { offset });
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(()),
            _ => Err(AccessError::OutOfBounds { offset, len, size: self.size }),
        }
    }

    /// Copies `into.len()` bytes from `offset` out.
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), AccessError> {
        self.check(offset, into.len() as u64)?;
        let first = (offset / WORD as u64) as usize;
        let words = &self.words[first..first + into.len().div_ceil(WORD)];
        // Whole words apart from the last, partial one: a length that is known makes each a load
        // and a store, where it would be a call otherwise.
        let (chunks, rest) = into.as_chunks_mut::<WORD>();
        let (whole, partial) = words.split_at(chunks.len());
        for (word, chunk) in whole.iter().zip(chunks) {
            *chunk = word.load(Ordering::Acquire).to_le_bytes();
        }
        if let [word] = partial {
            let bytes = word.load(Ordering::Acquire).to_le_bytes();
            rest.copy_from_slice(&bytes[..rest.len()]);
        }
        Ok(())
    }

    /// Copies `bytes` in at `offset`. The bytes of a last, partial word beyond the range keep
    /// their value.
    pub fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), AccessError> {
        self.check(offset, bytes.len() as u64)?;
        let first = (offset / WORD as u64) as usize;
        let words = &self.words[first..first + bytes.len().div_ceil(WORD)];
        let (chunks, rest) = bytes.as_chunks::<WORD>();
        let (whole, partial) = words.split_at(chunks.len());
        for (word, chunk) in whole.iter().zip(chunks) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Release);
        }
        if let [word] = partial {
            store_partial(word, rest);
        }
        Ok(())
    }

    /// Sets `len` bytes from `offset` to zero.
    pub fn zero(&self, offset: u64, len: u64) -> Result<(), AccessError> {
        self.check(offset, len)?;
        let first = (offset / WORD as u64) as usize;
        let whole = (len / WORD as u64) as usize;
        for word in &self.words[first..first + whole] {
            word.store(0, Ordering::Release);
        }
        let rest = (len % WORD as u64) as usize;
        if rest != 0 {
            store_partial(&self.words[first + whole], &[0; WORD][..rest]);
        }
        Ok(())
    }

    /// The word at `offset`, with acquire ordering.
    pub fn load(&self, offset: u64) -> Result<u64, AccessError> {
        self.check(offset, WORD as u64)?;
        Ok(self.words[(offset / WORD as u64) as usize].load(Ordering::Acquire))
    }

    /// Sets the word at `offset`, with release ordering.
    pub fn store(&self, offset: u64, value: u64) -> Result<(), AccessError> {
        self.check(offset, WORD as u64)?;
        self.words[(offset / WORD as u64) as usize].store(value, Ordering::Release);
        Ok(())
    }

    /// Compares and swaps the word at `offset`; returns the previous value, which equals
    /// `expected` if and only if the swap took place.
    pub fn compare_swap(&self, offset: u64, expected: u64, new: u64) -> Result<u64, AccessError> {
        self.check(offset, WORD as u64)?;
        let word = &self.words[(offset / WORD as u64) as usize];
        let swapped = word.compare_exchange(expected, new, Ordering::AcqRel, Ordering::Acquire);
        Ok(swapped.unwrap_or_else(|found| found))
    }

    /// Adds `amount` (wrapping) to the word at `offset`; returns the previous value.
    pub fn fetch_add(&self, offset: u64, amount: u64) -> Result<u64, AccessError> {
        self.check(offset, WORD as u64)?;
        Ok(self.words[(offset / WORD as u64) as usize].fetch_add(amount, Ordering::AcqRel))
    }
}

/// Replaces the first `chunk.len()` bytes of `word` and keeps the others, atomically.
fn store_partial(word: &AtomicU64, chunk: &[u8]) {
    let mut low = [0; WORD];
    low[..chunk.len()].copy_from_slice(chunk);
    let low = u64::from_le_bytes(low);
    let mask = (1u64 << (8 * chunk.len())) - 1;
    let mut seen = word.load(Ordering::Relaxed);
    while let Err(now) =
        word.compare_exchange_weak(seen, seen & !mask | low, Ordering::Release, Ordering::Relaxed)
    {
        seen = now;
    }
}

impl fmt::Debug for Region {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Region({} bytes)", self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partial_last_word_keeps_its_neighbours() {
        let region = Region::new(Bytes(16));
        region.write(0, &[0xff; 16]).unwrap();
        region.write(0, &[1, 2, 3]).unwrap();
        let mut back = [0; 16];
        region.read(0, &mut back).unwrap();
        assert_eq!(back[..4], [1, 2, 3, 0xff]);
        region.zero(8, 3).unwrap();
        region.read(0, &mut back).unwrap();
        assert_eq!(back[8..], [0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0xff]);
    }

    #[test]
    fn every_length_is_written_and_read_whole() {
        let bytes: Vec<u8> = (1..=41).collect();
        for len in 0..=bytes.len() {
            let region = Region::new(Bytes(64));
            region.write(8, &bytes[..len]).unwrap();
            let mut back = [0xff; 41];
            region.read(8, &mut back[..len]).unwrap();
            assert_eq!(back[..len], bytes[..len]);
            assert!(back[len..].iter().all(|byte| *byte == 0xff), "{len} and no more");
            assert_eq!(region.load(0), Ok(0));
            assert_eq!(region.load(8 + (len as u64).next_multiple_of(8)), Ok(0));
        }
    }

    #[test]
    fn a_range_outside_is_refused_even_when_it_overflows() {
        let region = Region::new(Bytes(64));
        for (offset, len) in [(64, 1), (0, 65), (u64::MAX - 7, 16)] {
            assert!(matches!(region.check(offset, len), Err(AccessError::OutOfBounds { .. })));
        }
        assert_eq!(region.check(4, 4), Err(AccessError::Misaligned { offset: 4 }));
        assert_eq!(region.check(64, 0), Ok(()));
    }

    #[test]
    fn compare_swap_returns_what_was_there() {
        let region = Region::new(Bytes(8));
        assert_eq!(region.compare_swap(0, 0, 7), Ok(0));
        assert_eq!(region.compare_swap(0, 0, 9), Ok(7));
        assert_eq!(region.fetch_add(0, 1), Ok(7));
        assert_eq!(region.load(0), Ok(8));
    }
}
