//! The memory of records: words in chunks that are allocated once and never given back before the
//! store, so that the memory of a record is always valid to read.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

use zerocopy::FromZeros;

use super::Line;

/// Words of a unit: places are counted in units of 32 bytes.
pub(super) const UNIT: usize = 4;
/// Units of a chunk: 2 MiB, or less under Miri, which begins each word by itself.
const CHUNK: usize = if cfg!(miri) { 1 << 9 } else { 1 << 16 };
/// Chunks at most: 64 GiB, as much as places have bits for beside the lock of a hash index.
const CHUNKS_MAX: usize = if cfg!(miri) { 1 << 8 } else { 1 << 15 };
/// Places at most.
pub(super) const PLACES: usize = CHUNK * CHUNKS_MAX;
/// Words of the system's smallest page.
const PAGE: usize = 4096 / size_of::<u64>();
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

    /// False of [`Place::NONE`].
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }
}

/// A chunk. Its length is known, so that a place in it needs no check.
type Chunk = [AtomicU64; CHUNK * UNIT];

/// Units that a core takes at once, so that cores seldom meet at the counter of the arena, and what
/// one makes stands together.
const ROOM: usize = 256;

/// Places of a size class that a core keeps for itself; what it frees beyond that is for all.
const SPARE: usize = 64;

/// The space of one core: units that were given out to it, and places that it has freed.
#[derive(Debug, Default)]
pub struct Room {
    next: usize,
    end: usize,
    /// By size class.
    spare: Vec<Vec<Place>>,
}

/// Words by place.
#[derive(Debug)]
pub(super) struct Arena {
    chunks: Box<[OnceLock<Box<Chunk>>; CHUNKS_MAX]>,
    /// The first unit that was never given out.
    next: Line<AtomicUsize>,
    /// By size class: how many are free, and where.
    free: Box<[(AtomicUsize, Mutex<Vec<Place>>)]>,
}

impl Arena {
    pub(super) fn new() -> Self {
        Self {
            chunks: Box::new([const { OnceLock::new() }; CHUNKS_MAX]),
            // Place 0 is none.
            next: Line(AtomicUsize::new(1)),
            free: (0..CLASSES).map(|_| Default::default()).collect(),
        }
    }

    /// The words at `place`: all up to the end of its chunk.
    #[inline]
    pub(super) fn words(&self, place: Place) -> &[AtomicU64] {
        // No place has a higher chunk: the remainder only saves the check.
        let (chunk, unit) = (place.0 as usize / CHUNK % CHUNKS_MAX, place.0 as usize % CHUNK);
        match self.chunks[chunk].get() {
            Some(words) => &words[unit * UNIT..],
            None => panic!("a place is one that was given out"),
        }
    }

    /// A place for `words` words, which hold anything; `None` if there is no more memory.
    pub(super) fn allocate(&self, words: usize) -> Option<Place> {
        let units = words.div_ceil(UNIT);
        self.freed(units).or_else(|| self.give_out(units))
    }

    /// The same of a core that has this room, if it has one.
    pub(super) fn allocate_in(&self, room: Option<&mut Room>, words: usize) -> Option<Place> {
        let units = words.div_ceil(UNIT);
        let Some(room) = room else { return self.allocate(words) };
        let spare = room.spare.get_mut(units).and_then(Vec::pop);
        if let Some(place) = spare.or_else(|| self.freed(units)) {
            return Some(place);
        }
        if units > ROOM / 4 {
            return self.give_out(units);
        }
        if room.end - room.next < units {
            let Place(first) = self.give_out(ROOM)?;
            (room.next, room.end) = (first as usize, first as usize + ROOM);
        }
        let place = Place(room.next as u32);
        room.next += units;
        Some(place)
    }

    /// A place of so many units that was freed.
    fn freed(&self, units: usize) -> Option<Place> {
        let (count, places) = self.free.get(units)?;
        if count.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let place = places.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        count.fetch_sub(1, Ordering::Relaxed);
        Some(place)
    }

    /// A place of so many units that was never given out.
    fn give_out(&self, units: usize) -> Option<Place> {
        if units * UNIT > WORDS_MAX {
            return None;
        }
        loop {
            let first = self.next.0.fetch_add(units, Ordering::Relaxed);
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

    /// The same of a core that has this room: what it frees it uses again first.
    pub(super) fn free_in(&self, room: &mut Room, place: Place, words: usize) {
        let units = words.div_ceil(UNIT);
        if room.spare.is_empty() {
            room.spare.resize_with(CLASSES, Vec::new);
        }
        match room.spare.get_mut(units) {
            Some(spare) if spare.len() < SPARE => spare.push(place),
            _ => self.free(place, words),
        }
    }

    /// Takes memory for `bytes` of further places, as far as there are so many, page by page.
    pub(super) fn reserve(&self, bytes: u64) {
        let first = self.next.0.load(Ordering::Relaxed) / CHUNK;
        let chunks = bytes.div_ceil(size_of::<Chunk>() as u64) as usize;
        for chunk in self.chunks.iter().skip(first).take(chunks) {
            for page in chunk.get_or_init(new_chunk).chunks(PAGE) {
                // What stands there already stays as it is.
                page[0].fetch_or(0, Ordering::Relaxed);
            }
        }
    }

    /// Units that were given out for the first time.
    pub(super) fn given_out(&self) -> u64 {
        self.next.0.load(Ordering::Relaxed) as u64
    }

    /// Bytes that are taken from the machine.
    pub(super) fn bytes(&self) -> u64 {
        let chunks = self.chunks.iter().filter(|chunk| chunk.get().is_some()).count();
        (chunks * CHUNK * UNIT * size_of::<u64>()) as u64
    }
}

/// Zeros as the system hands them out: its pages are taken as records are made in them.
///
/// # Panics
/// If the process gets no memory any more.
#[cold]
fn new_chunk() -> Box<Chunk> {
    let Ok(chunk) = Chunk::new_box_zeroed() else { panic!("no memory for further records") };
    chunk
}

#[cfg(test)]
mod tests {
    use nicol_core::rng::test_steps;

    use super::*;

    #[test]
    fn places_do_not_overlap_and_come_back() {
        let arena = Arena::new();
        let sizes = [1, 4, 5, 40, 400, 9];
        let places: Vec<(Place, usize)> = (0..test_steps(40_000) as usize)
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
        assert!(arena.bytes() >= places.len() as u64 * 32);
        assert!(arena.allocate(WORDS_MAX + 1).is_none());
    }

    #[test]
    fn what_is_reserved_is_there_before_it_is_given_out() {
        let arena = Arena::new();
        let place = arena.allocate(4).unwrap();
        arena.words(place)[0].store(7, Ordering::Relaxed);
        let chunk = size_of::<Chunk>() as u64;
        arena.reserve(2 * chunk);
        assert_eq!((arena.bytes(), arena.given_out()), (2 * chunk, 2));
        assert_eq!(arena.words(place)[0].load(Ordering::Relaxed), 7);
    }

    #[test]
    fn what_stands_in_the_rooms_of_cores_does_not_overlap() {
        let arena = Arena::new();
        let mut rooms = [Room::default(), Room::default(), Room::default()];
        let sizes = [4, 40, 5, 1, 4 * ROOM, 90, 9];
        for turn in 0..20_000_usize {
            let words = sizes[turn % sizes.len()];
            let place = match turn % 4 {
                3 => arena.allocate(words),
                core => arena.allocate_in(Some(&mut rooms[core]), words),
            };
            let taken = &arena.words(place.unwrap())[..words];
            assert!(taken.iter().all(|word| word.swap(turn as u64 + 1, Ordering::Relaxed) == 0));
        }
        let place = arena.allocate_in(Some(&mut rooms[0]), 5).unwrap();
        arena.free(place, 5);
        assert_eq!(arena.allocate_in(Some(&mut rooms[1]), 5), Some(place));
        // What a core frees it uses again itself, but for what is more than its own.
        arena.free_in(&mut rooms[0], place, 5);
        assert_ne!(arena.allocate_in(Some(&mut rooms[1]), 5), Some(place));
        assert_eq!(arena.allocate_in(Some(&mut rooms[0]), 5), Some(place));
        let taken: Vec<_> = (0..=SPARE).map(|_| arena.allocate(5).unwrap()).collect();
        taken.iter().for_each(|place| arena.free_in(&mut rooms[0], *place, 5));
        assert_eq!(arena.allocate_in(Some(&mut rooms[1]), 5), taken.last().copied());
        assert!(arena.allocate_in(Some(&mut rooms[0]), WORDS_MAX + 1).is_none());
        // A core takes room for many: the counter of the arena is not asked for each.
        let before = arena.given_out();
        let made = (0..100).all(|_| arena.allocate_in(Some(&mut rooms[0]), 8).is_some());
        assert!(made && arena.given_out() <= before + ROOM as u64);
        assert!(
            arena.allocate_in(None, 8).is_some() && arena.given_out() <= before + 2 + ROOM as u64
        );
    }
}
