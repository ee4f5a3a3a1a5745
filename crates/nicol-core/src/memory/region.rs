//! A region: shared memory that is only ever read and written as atomics.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Doorbell;
use super::pages::{Copies, Memory};
use super::seqlock::Seqlocks;
use crate::ids::Side;
use crate::units::Bytes;

/// Bytes of a line of memory: what a card reads of one, it reads at one instant.
const LINE: u64 = 64;

/// Where a read of `len` bytes at `offset` may be torn: the bytes of the first half of its lines of
/// 64 bytes. `None` if it is within one.
pub fn halves(offset: u64, len: u64) -> Option<usize> {
    let first = offset / LINE;
    let lines = offset.checked_add(len)?.div_ceil(LINE) - first;
    (lines > 1).then(|| ((first + lines / 2) * LINE - offset) as usize)
}

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
    NotInUse { offset: u64 },
    /// A crash has taken the memory away. Only what the side's own code accesses is told so: the
    /// fabric answers others with `Denied` or `Unreachable`.
    #[error("the memory was lost in a crash")]
    Lost,
}

/// Shared memory of fixed size, zeroed at birth.
///
/// Accesses start at a multiple of eight and may have any length. Words are moved one by one in
/// ascending order, each written with release and read with acquire, as PCIe posted writes land. So
/// a reader that sees a word of a write sees every word written before it; a reader that runs
/// beside a writer may still see a torn record and must detect that (seqlock words, see
/// `nicol_store::host_table`).
///
/// Memory belongs to a side of a node. A crash of that side wipes it and marks it lost; every
/// access fails from then on. A [log](Region::for_log) in battery-backed host memory keeps its
/// bytes.
pub struct Region {
    words: Memory,
    /// 0 once it is lost: the check of bounds is that of loss as well.
    size: AtomicU64,
    doorbell: Doorbell,
    seqlocks: Seqlocks,
    /// Of a log: its name on the medium.
    label: Option<u32>,
    owner: OnceLock<Side>,
    /// 0, or 1 and the accesses that were refused since it was lost.
    lost: AtomicU64,
}

impl Region {
    /// A zeroed region of `size` bytes (rounded up to a word). The operating system gives it memory
    /// where it is first written: a table with space to grow costs what is in it.
    ///
    /// # Panics
    /// If there is not so much address space.
    pub fn new(size: Bytes) -> Self {
        Self::over(Memory::new, size)
    }

    /// The same from a page's boundary on, whose memory [goes back](Region::release) page by page.
    /// It is the system's, and not the allocator's: small regions are better made by
    /// [`Region::new`].
    ///
    /// # Panics
    /// If there is not so much address space.
    pub fn of_pages(size: Bytes) -> Self {
        Self::over(Memory::mapped, size)
    }

    fn over(memory: fn(usize) -> Option<Memory>, size: Bytes) -> Self {
        let Some(words) = memory(size.0.div_ceil(WORD as u64) as usize) else {
            panic!("no memory for a region of {} bytes", size.0);
        };
        Self::of(words, size, None)
    }

    fn of(words: Memory, size: Bytes, label: Option<u32>) -> Self {
        Self {
            words,
            size: AtomicU64::new(size.0),
            doorbell: Doorbell::default(),
            seqlocks: Seqlocks::new(size.0),
            label,
            owner: OnceLock::new(),
            lost: AtomicU64::new(0),
        }
    }

    /// A zeroed region that is a log: in battery-backed host memory it survives a crash, and on a
    /// log device its writes are found under `label`, which is the node's to choose.
    pub fn for_log(size: Bytes, label: u32) -> Self {
        Self { label: Some(label), ..Self::over(Memory::for_stream, size) }
    }

    /// A zeroed region that is a log in a NIC's durable memory: no crash takes it away, and on the
    /// node's medium its writes are found under `label`. [MINOS24 V-A]
    pub fn for_nic_log(size: Bytes, label: u32) -> Self {
        let region = Self::for_log(size, label);
        let _first = region.adopt(Side::Nic);
        region
    }

    /// True if it is a log.
    pub const fn is_log(&self) -> bool {
        self.label.is_some()
    }

    /// Its name on the durable medium; 0 unless it is a log.
    pub fn label(&self) -> u32 {
        self.label.unwrap_or_default()
    }

    /// Makes it memory of `side`; true if it belonged to no side before.
    #[inline]
    pub(super) fn adopt(&self, side: Side) -> bool {
        self.owner.get().is_none() && self.owner.set(side).is_ok()
    }

    /// Which side's memory it is, once the fabric has seen it.
    pub fn owner(&self) -> Option<Side> {
        self.owner.get().copied()
    }

    /// Wipes the memory and marks it lost: the crash of the side that it belongs to. No engine of
    /// the node may run meanwhile.
    pub fn lose(&self) {
        self.size.store(0, Ordering::SeqCst);
        let _first = self.lost.compare_exchange(0, 1, Ordering::SeqCst, Ordering::SeqCst);
        self.words.wipe();
    }

    /// True if a crash has taken the memory away.
    #[inline]
    pub fn is_lost(&self) -> bool {
        self.lost.load(Ordering::Relaxed) != 0
    }

    /// Accesses that were refused because the memory is lost. The simulator takes each for a bug:
    /// the side's own code has outlived its crash, or another side's has gone round the fabric.
    pub fn lost_accesses(&self) -> u64 {
        self.lost.load(Ordering::Relaxed).saturating_sub(1)
    }

    #[cold]
    fn refuse(&self, offset: u64, len: u64) -> AccessError {
        if self.is_lost() {
            self.lost.fetch_add(1, Ordering::Relaxed);
            return AccessError::Lost;
        }
        AccessError::OutOfBounds { offset, len, size: self.size().0 }
    }

    /// A region with the same bytes, in pages of its own or in shared ones. Nobody may write
    /// meanwhile.
    ///
    /// Cost of shared pages: a copy of the memory the first time; later, of what was written since,
    /// and a look at a word of the system's for each page. Where the system offers no such pages,
    /// and for a small region: that of [`Region::copy`].
    pub fn copy_in(&self, pages: Copies) -> Self {
        let shared = if pages == Copies::Shared { self.words.share() } else { None };
        shared.map_or_else(|| self.copy(), |words| Self::of(words, self.size(), self.label))
    }

    /// A region of its own with the same bytes. What was never written stays so.
    pub fn copy(&self) -> Self {
        /// Words of a page of memory.
        const PAGE: usize = 4_096 / WORD;
        let fresh = if self.words.is_mapped() { Self::of_pages } else { Self::new };
        let copy = Self { label: self.label, ..fresh(self.size()) };
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

    pub fn size(&self) -> Bytes {
        Bytes(self.size.load(Ordering::Relaxed))
    }

    /// Rung whenever an engine of the other side has written to this region.
    #[inline]
    pub fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    pub(super) fn seqlocks(&self) -> &Seqlocks {
        &self.seqlocks
    }

    /// Checks that `offset..offset + len` is an aligned range of this region.
    #[inline]
    pub fn check(&self, offset: u64, len: u64) -> Result<(), AccessError> {
        if !offset.is_multiple_of(WORD as u64) {
            return Err(AccessError::Misaligned { offset });
        }
        match offset.checked_add(len) {
            Some(end) if end <= self.size.load(Ordering::Relaxed) => Ok(()),
            _ => Err(self.refuse(offset, len)),
        }
    }

    /// The words of `len` bytes from `offset` on, checked now and not again when they are accessed.
    #[inline]
    pub fn words(&self, offset: u64, len: u64) -> Result<Words<'_>, AccessError> {
        self.check(offset, len)?;
        let first = (offset / WORD as u64) as usize;
        Ok(Words(&self.words[first..first + (len / WORD as u64) as usize]))
    }

    /// Copies `into.len()` bytes from `offset` out.
    #[inline]
    pub fn read(&self, offset: u64, into: &mut [u8]) -> Result<(), AccessError> {
        self.check(offset, into.len() as u64)?;
        let first = (offset / WORD as u64) as usize;
        Words(&self.words[first..first + into.len().div_ceil(WORD)]).read(0, into);
        Ok(())
    }

    /// Copies `bytes` in at `offset`. The bytes of a last, partial word beyond the range keep
    /// their value.
    #[inline]
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
    #[inline]
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

    /// Sets `len` bytes from `offset` to zero, words all of them, and gives the memory of whole
    /// pages back to the system until they are written again.
    ///
    /// Cost: a system call; and where the pages are written again, what the system takes to find
    /// and clear others.
    pub fn release(&self, offset: u64, len: u64) -> Result<(), AccessError> {
        let words = self.words(offset, len)?.len();
        self.words.release((offset / WORD as u64) as usize, words);
        Ok(())
    }

    /// The word at `offset`, with acquire ordering.
    #[inline]
    pub fn load(&self, offset: u64) -> Result<u64, AccessError> {
        self.check(offset, WORD as u64)?;
        Ok(self.words[(offset / WORD as u64) as usize].load(Ordering::Acquire))
    }

    /// Sets the word at `offset`, with release ordering.
    #[inline]
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

/// Words of a region whose bounds have been checked once, for code that touches many of them:
/// see [`Region::words`].
#[derive(Clone, Copy, Debug)]
pub struct Words<'a>(&'a [AtomicU64]);

#[expect(clippy::len_without_is_empty, reason = "it is asked where its last word is")]
impl<'a> Words<'a> {
    /// `len` of them, from place `first` on.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn part(self, first: usize, len: usize) -> Words<'a> {
        Words(&self.0[first..first + len])
    }

    /// How many there are.
    #[inline]
    pub const fn len(self) -> usize {
        self.0.len()
    }

    /// The word at place `at`, with acquire ordering.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn load(self, at: usize) -> u64 {
        self.0[at].load(Ordering::Acquire)
    }

    /// Sets the word at place `at`, with release ordering.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn store(self, at: usize, value: u64) {
        self.0[at].store(value, Ordering::Release);
    }

    /// Copies `into.len()` bytes from place `at` on out, upwards.
    ///
    /// # Panics
    /// If there are not so many.
    #[inline]
    pub fn read(self, at: usize, into: &mut [u8]) {
        let words = &self.0[at..at + into.len().div_ceil(WORD)];
        // Whole words apart from the last, partial one: a length that is known makes each a load
        // and a store, where it would be a call otherwise.
        let (chunks, rest) = into.as_chunks_mut::<WORD>();
        let (whole, partial) = words.split_at(chunks.len());
        for (word, chunk) in whole.iter().zip(chunks) {
            *chunk = word.load(Ordering::Acquire).to_le_bytes();
        }
        if let [word] = partial {
            take_partial(word.load(Ordering::Acquire), rest);
        }
    }

    /// Sets all of them to zero, upwards.
    #[inline]
    pub fn zero(self) {
        for word in self.0 {
            word.store(0, Ordering::Release);
        }
    }

    /// Copies `bytes` in from place `at` on, upwards; a last, partial word is filled up with zeros.
    ///
    /// # Panics
    /// If they do not fit.
    #[inline]
    pub fn write(self, at: usize, bytes: &[u8]) {
        let words = &self.0[at..at + bytes.len().div_ceil(WORD)];
        let (chunks, rest) = bytes.as_chunks::<WORD>();
        let (whole, partial) = words.split_at(chunks.len());
        for (word, chunk) in whole.iter().zip(chunks) {
            word.store(u64::from_le_bytes(*chunk), Ordering::Release);
        }
        if let [word] = partial {
            word.store(partial_word(rest), Ordering::Release);
        }
    }

    /// Of the words `stride` apart, from place `first` on, the number of the first that is
    /// `wanted`.
    ///
    /// Cost: a load and a comparison for each before it.
    #[inline]
    pub fn find(self, first: usize, stride: usize, wanted: u64) -> Option<usize> {
        let (mut at, mut number) = (first, 0);
        while let Some(word) = self.0.get(at) {
            if word.load(Ordering::Acquire) == wanted {
                return Some(number);
            }
            (at, number) = (at + stride, number + 1);
        }
        None
    }
}

/// The word whose first bytes are `rest`, of which there are fewer than a word has, and whose
/// others are zero. In pieces of known lengths, because a copy of any length would be a call.
#[inline]
fn partial_word(rest: &[u8]) -> u64 {
    let (mut word, mut bits, mut left) = (0, 0, rest);
    if let Some((piece, behind)) = left.split_first_chunk::<4>() {
        (word, bits, left) = (u64::from(u32::from_le_bytes(*piece)), 32, behind);
    }
    if let Some((piece, behind)) = left.split_first_chunk::<2>() {
        word |= u64::from(u16::from_le_bytes(*piece)) << bits;
        (bits, left) = (bits + 16, behind);
    }
    if let [byte] = left {
        word |= u64::from(*byte) << bits;
    }
    word
}

/// The opposite of [`partial_word`]: puts the first bytes of `word` into `rest`.
#[inline]
fn take_partial(word: u64, rest: &mut [u8]) {
    let (mut word, mut left) = (word, rest);
    if let Some((piece, _)) = left.split_first_chunk_mut::<4>() {
        *piece = (word as u32).to_le_bytes();
        word >>= 32;
        left = &mut left[4..];
    }
    if let Some((piece, _)) = left.split_first_chunk_mut::<2>() {
        *piece = (word as u16).to_le_bytes();
        word >>= 16;
        left = &mut left[2..];
    }
    if let [byte] = left {
        *byte = word as u8;
    }
}

/// Replaces the first `chunk.len()` bytes of `word` and keeps the others, atomically.
fn store_partial(word: &AtomicU64, chunk: &[u8]) {
    let low = partial_word(chunk);
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
        write!(f, "Region({} bytes)", self.size().0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn released_memory_is_zero_and_its_neighbours_stay() {
        for fresh in [Region::new, Region::of_pages] {
            let region = fresh(Bytes(5 * 4_096));
            for offset in (0..region.size().0).step_by(WORD) {
                region.store(offset, 1 + offset).unwrap();
            }
            region.release(2_048, 3 * 4_096).unwrap();
            let released = 2_048..2_048 + 3 * 4_096;
            for offset in (0..region.size().0).step_by(WORD) {
                let expected = if released.contains(&offset) { 0 } else { 1 + offset };
                assert_eq!(region.load(offset), Ok(expected), "at {offset}");
            }
            region.store(4_096, 7).unwrap();
            assert_eq!(region.copy().load(4_096), Ok(7));
            assert!(region.release(4 * 4_096, 2 * 4_096).is_err());
        }
    }

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
            let words = Region::new(Bytes(64));
            words.store(56, 7).unwrap();
            words.words(8, 48).unwrap().write(0, &bytes[..len]);
            words.read(8, &mut back[..len]).unwrap();
            assert_eq!((&back[..len], words.load(56)), (&bytes[..len], Ok(7)));
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
    fn lost_memory_is_wiped_and_refuses_every_access_and_counts_them() {
        let region = Region::for_log(Bytes(64), 7);
        region.store(8, 5).unwrap();
        assert!(region.adopt(Side::Host) && !region.adopt(Side::Nic));
        region.lose();
        region.lose();
        assert_eq!((region.is_lost(), region.lost_accesses()), (true, 0));
        assert_eq!(region.load(8), Err(AccessError::Lost));
        assert_eq!(region.write(0, &[1]), Err(AccessError::Lost));
        assert_eq!(region.read(0, &mut [0; 8]), Err(AccessError::Lost));
        assert_eq!(region.lost_accesses(), 3);
        assert!(region.words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        assert_eq!((region.copy().label(), region.owner()), (7, Some(Side::Host)));
    }

    #[test]
    fn words_are_checked_once_and_found_at_their_stride() {
        let region = Region::new(Bytes(80));
        for (offset, len) in [(8, 80), (4, 8), (u64::MAX - 7, 16)] {
            assert!(region.words(offset, len).is_err());
        }
        let words = region.words(8, 72).unwrap();
        words.store(8, 5);
        words.store(1, 9);
        assert_eq!((region.load(72), region.load(16), words.load(8)), (Ok(5), Ok(9), 5));
        assert_eq!((words.part(1, 2).load(0), words.part(1, 2).len()), (9, 2));
        assert_eq!((words.find(2, 3, 5), words.find(0, 3, 5)), (Some(2), None));
        assert_eq!(
            (words.find(1, 3, 9), words.find(9, 3, 0), words.find(10, 1, 0)),
            (Some(0), None, None)
        );
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
