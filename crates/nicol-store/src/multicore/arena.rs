//! The memory of records: words in chunks that are allocated once and never given back before the
//! store, so that the memory of a record is always valid to read.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

/// Words of a unit: places are counted in units of 32 bytes.
const UNIT: usize = 4;
/// Units of a chunk: 1 MiB.
const CHUNK: usize = 1 << 15;
/// Chunks at most: 16 GiB.
const CHUNKS_MAX: usize = 1 << 14;
/// Words of the longest allocation.
const WORDS_MAX: usize = CHUNK * UNIT;
/// Size classes whose free places are kept apart: units of what the longest row of a workload
/// takes.
const CLASSES: usize = 128;

/// Where an allocation begins. 0 is no place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Place(pub u32);

impl Place {
    /// No place.
    pub const NONE: Self = Self(0);

    /// Is it one?
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// A chunk. Its length is known, so that a place in it needs no check.
type Chunk = [AtomicU64; CHUNK * UNIT];

/// Words by place.
#[derive(Debug)]
pub(super) struct Arena {
    chunks: Box<[OnceLock<Box<Chunk>>]>,
    /// The first unit that was never given out.
    next: AtomicUsize,
    /// By size class: how many are free, and where.
    free: Box<[(AtomicUsize, Mutex<Vec<Place>>)]>,
}

impl Arena {
    pub(super) fn new() -> Self {
        Self {
            chunks: (0..CHUNKS_MAX).map(|_| OnceLock::new()).collect(),
            // Place 0 is none.
            next: AtomicUsize::new(1),
            free: (0..CLASSES).map(|_| Default::default()).collect(),
        }
    }

    /// The words at `place`: all up to the end of its chunk.
    #[inline]
    pub(super) fn words(&self, place: Place) -> &[AtomicU64] {
        let (chunk, unit) = (place.0 as usize / CHUNK, place.0 as usize % CHUNK);
        match self.chunks[chunk].get() {
            Some(words) => &words[unit * UNIT..],
            None => panic!("a place is one that was given out"),
        }
    }

    /// A place for `words` words, which hold anything; `None` if there is no more memory.
    pub(super) fn allocate(&self, words: usize) -> Option<Place> {
        let units = words.div_ceil(UNIT);
        if words > WORDS_MAX {
            return None;
        }
        if let Some((count, places)) = self.free.get(units)
            && count.load(Ordering::Relaxed) > 0
            && let Some(place) = places.lock().unwrap_or_else(PoisonError::into_inner).pop()
        {
            count.fetch_sub(1, Ordering::Relaxed);
            return Some(place);
        }
        loop {
            let first = self.next.fetch_add(units, Ordering::Relaxed);
            let (chunk, last) = (first / CHUNK, (first + units - 1) / CHUNK);
            if last >= CHUNKS_MAX {
                return None;
            }
            // What would lie in two chunks begins in the next one.
            if chunk == last {
                self.chunks[chunk].get_or_init(new_chunk);
                return Some(Place(first as u32));
            }
        }
    }

    /// Frees `words` words at `place`. No thread may read them any more.
    pub(super) fn free(&self, place: Place, words: usize) {
        assert!(place.is_some(), "there is something to give back");
        if let Some((count, places)) = self.free.get(words.div_ceil(UNIT)) {
            places.lock().unwrap_or_else(PoisonError::into_inner).push(place);
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Units that were given out for the first time.
    pub(super) fn given_out(&self) -> u64 {
        self.next.load(Ordering::Relaxed) as u64
    }

    /// Bytes that are taken from the machine.
    pub(super) fn bytes(&self) -> u64 {
        let chunks = self.chunks.iter().filter(|chunk| chunk.get().is_some()).count();
        (chunks * CHUNK * UNIT * size_of::<u64>()) as u64
    }
}

#[cold]
fn new_chunk() -> Box<Chunk> {
    let words: Box<[AtomicU64]> = (0..CHUNK * UNIT).map(|_| AtomicU64::new(0)).collect();
    words.try_into().unwrap_or_else(|_| unreachable!("it has as many words"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_do_not_overlap_and_come_back() {
        let arena = Arena::new();
        let sizes = [1, 4, 5, 40, 400, 9];
        let places: Vec<(Place, usize)> = (0..40_000)
            .map(|turn| sizes[turn % sizes.len()])
            .map(|words| (arena.allocate(words).unwrap(), words))
            .collect();
        for (number, (place, words)) in places.iter().enumerate() {
            let taken = &arena.words(*place)[..*words];
            assert!(taken.iter().all(|word| word.swap(number as u64 + 1, Ordering::Relaxed) == 0));
        }
        let (place, words) = places[7];
        arena.free(place, words);
        assert_eq!(arena.allocate(words), Some(place));
        assert!(arena.bytes() >= 40_000 * 32 && arena.allocate(WORDS_MAX + 1).is_none());
    }
}
