//! One stripe of the index: entries, their positions, objects and the eviction clock.

use nicol_core::ids::{Key, TxnId, Version};
use nicol_core::wire::append;

use super::Hint;
use super::hints::Displacements;
use crate::host_table::{PageRef, Progress, SlotHash};

const NONE: u32 = u32::MAX;
/// Cache positions of an entry: a segment has 16 slots, of which few are hot.
const POSITIONS: usize = 4;
/// Positions of an overflow page.
const PAGE_POSITIONS: usize = 4;
/// Objects that one operation examines for eviction; an operation adds one at most.
const EVICT_LOOKS: usize = 16;
/// Entries that one operation splits while the host table is ahead.
const SPLITS: usize = 4;
/// Bytes of value that a vacated object keeps for the next one.
const VALUE_KEPT: usize = 1_024;

const _: () = assert!(size_of::<Entry>() <= 96, "documented bytes per segment");
const _: () = assert!(size_of::<Object>() == 64, "documented bytes per object: a cache line");

/// A cache position: an object and a tag of its hash, so that few objects are examined in vain.
#[derive(Clone, Copy, Debug)]
struct Position {
    tag: u32,
    object: u32,
}

const FREE: Position = Position { tag: 0, object: NONE };

/// Positions chained behind an entry's own, of which none is free then.
#[derive(Debug)]
struct Page {
    positions: [Position; PAGE_POSITIONS],
    next: u32,
}

/// The index entry of a segment of the host table. Its positions lie in one cache line.
#[derive(Debug)]
#[repr(C, align(32))]
pub(super) struct Entry {
    positions: [Position; POSITIONS],
    page: u32,
    pub(super) displacements: Displacements,
    pub(super) epoch: u64,
    pub(super) floor: Version,
    pub(super) overflow: Option<PageRef>,
    /// A segment and its move counter; an odd counter is not usable.
    pub(super) seen: (u64, u64),
    /// The highest version of a key of the segment that the index has evicted.
    pub(super) evicted: Version,
}

impl Entry {
    fn new(epoch: u64, floor: Version, evicted: Version) -> Self {
        Self {
            positions: [FREE; POSITIONS],
            page: NONE,
            displacements: Displacements::default(),
            overflow: None,
            seen: (0, 1),
            epoch,
            floor,
            evicted,
        }
    }

    /// The knowledge of the keys whose homes are in `group`.
    pub(super) fn hint(&self, group: usize) -> Hint {
        Hint {
            displacement: self.displacements.get(group),
            overflow: self.overflow,
            seen: self.seen.1.is_multiple_of(2).then_some(self.seen),
            epoch: self.epoch,
        }
    }
}

/// The knowledge of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    /// Only its locks.
    Nothing,
    /// That there is no record.
    Absent,
    /// Its version and value.
    Present,
}

/// A key that is cached, locked or pinned, in one cache line: flags stand for options.
#[derive(Debug)]
#[repr(align(64))]
pub(super) struct Object {
    key: Key,
    /// Means nothing unless `held`.
    holder: TxnId,
    /// Means nothing while nothing is `known`.
    version: Version,
    /// The number of shared locks on it; 0 while it is locked exclusively.
    pub(super) readers: u32,
    value: Vec<u8>,
    entry: u32,
    pub(super) pins: u32,
    known: Known,
    held: bool,
    /// Second chance of the eviction clock.
    pub(super) used: bool,
    live: bool,
}

impl Object {
    fn may_go(&self) -> bool {
        self.live && self.pins == 0 && !self.held && self.readers == 0
    }

    /// The transaction that has locked it.
    pub(super) fn holder(&self) -> Option<TxnId> {
        self.held.then_some(self.holder)
    }

    pub(super) fn set_holder(&mut self, holder: Option<TxnId>) {
        self.held = holder.is_some();
        self.holder = holder.unwrap_or_default();
    }

    /// Its value, empty unless it is known to be present.
    pub(super) fn value(&self) -> &[u8] {
        &self.value
    }

    /// Version and presence; `None` while only locks are known.
    pub(super) fn known(&self) -> Option<(Version, bool)> {
        (self.known != Known::Nothing).then_some((self.version, self.known == Known::Present))
    }

    /// Forgets all but its locks.
    pub(super) fn forget(&mut self) {
        self.known = Known::Nothing;
    }

    pub(super) fn set_known(&mut self, version: Version, present: bool) {
        self.version = version;
        self.known = if present { Known::Present } else { Known::Absent };
    }
}

/// How many objects a stripe may have.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Cached ones.
    pub(super) cached: usize,
    /// Locked and pinned ones in addition.
    pub(super) busy: usize,
    /// Bytes of the values of all.
    pub(super) value_bytes: usize,
}

#[derive(Debug)]
pub(super) struct Stripe {
    /// Entries at level 0.
    base: u64,
    entries: Vec<Entry>,
    progress: Progress,
    target: Progress,
    /// The host table's progress that `target` was computed from.
    followed: Progress,
    pages: Vec<Page>,
    free_pages: Vec<u32>,
    objects: Vec<Object>,
    vacant: Vec<u32>,
    scratch: Vec<Position>,
    hand: usize,
    limits: Limits,
    /// Bytes of the objects' values.
    value_bytes: usize,
}

/// The counts of [`Stripe::check`].
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) locked: usize,
    pub(super) pinned: usize,
}

impl Stripe {
    pub(super) fn new(entries: u64, limits: Limits, floor: Version) -> Self {
        Self {
            base: entries,
            entries: (0..entries).map(|_| Entry::new(0, floor, Version(0))).collect(),
            progress: Progress::default(),
            target: Progress::default(),
            followed: Progress::default(),
            pages: Vec::new(),
            free_pages: Vec::new(),
            objects: Vec::new(),
            vacant: Vec::new(),
            scratch: Vec::new(),
            hand: 0,
            limits,
            value_bytes: 0,
        }
    }

    pub(super) fn set_cached_max(&mut self, cached: usize) {
        self.limits.cached = cached;
    }

    /// Returns true if every entry is split that the host table's growth requires.
    #[inline]
    pub(super) fn has_followed(&self, known: Progress) -> bool {
        self.followed == known && self.progress >= self.target
    }

    /// Splits a few entries, until the stripe's own progress is `target`.
    pub(super) fn follow(&mut self, known: Progress, target: Progress) {
        (self.followed, self.target) = (known, target);
        for _ in 0..SPLITS {
            if self.progress >= target {
                return;
            }
            self.split();
        }
    }

    fn split(&mut self) {
        let (level, number) = (self.progress.level(), self.progress.split() as usize);
        let mut scratch = std::mem::take(&mut self.scratch);
        self.each_position(number, |position| scratch.push(position));
        self.free_chain(number);
        let Entry { epoch, floor, evicted, .. } = self.entries[number];
        let twin = self.entries.len();
        // Hints begin anew: half of the segment's objects have gone, and with them displacements.
        self.entries[number] = Entry::new(epoch, floor, evicted);
        self.entries.push(Entry::new(epoch, floor, evicted));
        for position in scratch.drain(..) {
            let entry = if position.tag >> level & 1 == 1 { twin } else { number };
            self.insert_position(entry, position);
        }
        self.scratch = scratch;
        self.progress = self.progress.next(self.base);
    }

    /// The entry of a hash whose level-0 entry is `local`.
    #[inline]
    pub(super) fn entry_of(&self, local: u64, hash: SlotHash) -> usize {
        if self.progress == Progress::default() {
            return local as usize;
        }
        let level = self.progress.level();
        let low = local + self.base * hash.copy(level);
        let split = low < self.progress.split();
        (if split { local + self.base * hash.copy(level + 1) } else { low }) as usize
    }

    #[inline]
    pub(super) fn entry(&mut self, number: usize) -> &mut Entry {
        &mut self.entries[number]
    }

    #[inline]
    pub(super) fn object(&mut self, index: usize) -> &mut Object {
        &mut self.objects[index]
    }

    /// The keys that transactions have locked, and the transactions.
    pub(super) fn locked(&self) -> impl Iterator<Item = (Key, TxnId)> {
        let objects = self.objects.iter().filter(|object| object.live);
        objects.filter_map(|object| Some((object.key, object.holder()?)))
    }

    /// Calls `each` with the keys of an entry that are locked or pinned.
    pub(super) fn each_busy(&self, number: usize, each: &mut dyn FnMut(Key)) {
        let busy = |object: &Object| (object.held || object.pins > 0).then_some(object.key);
        self.each_position(number, |at| {
            _ = busy(&self.objects[at.object as usize]).map(&mut *each)
        });
    }

    /// Replaces the value of an object.
    pub(super) fn set_value(&mut self, index: usize, value: &[u8]) {
        let old = &mut self.objects[index].value;
        self.value_bytes = self.value_bytes - old.len() + value.len();
        if value.len() < old.capacity() / 2 && old.capacity() > VALUE_KEPT {
            *old = Vec::new();
        }
        old.clear();
        append(old, value);
    }

    /// Bytes of memory that it takes. Cost: a look at every vacated object.
    pub(super) fn memory(&self) -> usize {
        let vacated = self.vacant.iter().map(|&index| &self.objects[index as usize].value);
        let kept: usize = vacated.map(Vec::capacity).sum();
        let objects = self.objects.capacity() * size_of::<Object>();
        let pages = self.pages.capacity() * size_of::<Page>();
        objects + pages + self.entries.capacity() * size_of::<Entry>() + self.value_bytes + kept
    }

    pub(super) fn live(&self) -> usize {
        self.objects.len() - self.vacant.len()
    }

    pub(super) fn entry_count(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    pub(super) fn find(&self, entry: usize, hash: SlotHash, key: Key) -> Option<usize> {
        let tag = hash.tag();
        let entry = &self.entries[entry];
        let is_it = |position: &&Position| {
            position.tag == tag
                && position.object != NONE
                && self.objects[position.object as usize].key == key
        };
        if let Some(found) = entry.positions.iter().find(is_it) {
            return Some(found.object as usize);
        }
        let mut page = entry.page;
        while page != NONE {
            let Page { positions, next } = &self.pages[page as usize];
            if let Some(found) = positions.iter().find(is_it) {
                return Some(found.object as usize);
            }
            page = *next;
        }
        None
    }

    /// The object of `key`, created if necessary; `None` at the hard limit.
    pub(super) fn find_or_add(&mut self, entry: usize, hash: SlotHash, key: Key) -> Option<usize> {
        self.obtain(entry, hash, key, self.limits.cached + self.limits.busy)
    }

    /// Like that, for a value that need not be cached: within the cache's limit.
    pub(super) fn find_or_cache(
        &mut self,
        entry: usize,
        hash: SlotHash,
        key: Key,
    ) -> Option<usize> {
        self.obtain(entry, hash, key, self.limits.cached)
    }

    /// Like that, without a limit: for a COMMIT, which must succeed.
    pub(super) fn find_or_force(&mut self, entry: usize, hash: SlotHash, key: Key) -> usize {
        match self.obtain(entry, hash, key, usize::MAX) {
            Some(index) => index,
            None => self.add(entry, hash, key),
        }
    }

    /// Adds the object of a key that has none, unless that would evict another.
    pub(super) fn add_if_capacity(
        &mut self,
        entry: usize,
        hash: SlotHash,
        key: Key,
    ) -> Option<usize> {
        (self.live() < self.limits.cached).then(|| self.add(entry, hash, key))
    }

    fn obtain(&mut self, entry: usize, hash: SlotHash, key: Key, limit: usize) -> Option<usize> {
        if let Some(index) = self.find(entry, hash, key) {
            self.objects[index].used = true;
            return Some(index);
        }
        if self.live() >= self.limits.cached || self.value_bytes > self.limits.value_bytes {
            self.evict_down_to(self.limits.cached - 1);
        }
        (self.live() < limit).then(|| self.add(entry, hash, key))
    }

    fn add(&mut self, entry: usize, hash: SlotHash, key: Key) -> usize {
        let index = match self.vacant.pop() {
            Some(index) => index as usize,
            None => {
                self.objects.push(Object {
                    key,
                    holder: TxnId::default(),
                    held: false,
                    readers: 0,
                    version: Version(0),
                    known: Known::Nothing,
                    value: Vec::new(),
                    entry: 0,
                    pins: 0,
                    used: false,
                    live: false,
                });
                self.objects.len() - 1
            }
        };
        let object = &mut self.objects[index];
        assert!(!object.live, "a vacant place holds no object");
        object.key = key;
        object.live = true;
        object.used = true;
        self.insert_position(entry, Position { tag: hash.tag(), object: index as u32 });
        index
    }

    /// Stores a position in the first free slot of an entry or its pages.
    fn insert_position(&mut self, number: usize, position: Position) {
        self.objects[position.object as usize].entry = number as u32;
        let entry = &mut self.entries[number];
        if let Some(free) = entry.positions.iter_mut().find(|at| at.object == NONE) {
            *free = position;
            return;
        }
        // Only the first page of a chain has free positions.
        let first = entry.page;
        if first != NONE {
            let page = &mut self.pages[first as usize];
            if let Some(free) = page.positions.iter_mut().find(|at| at.object == NONE) {
                *free = position;
                return;
            }
        }
        let mut page = Page { positions: [FREE; PAGE_POSITIONS], next: first };
        page.positions[0] = position;
        entry.page = match self.free_pages.pop() {
            Some(free) => {
                self.pages[free as usize] = page;
                free
            }
            None => {
                self.pages.push(page);
                (self.pages.len() - 1) as u32
            }
        };
    }

    /// Removes an object that nothing holds.
    pub(super) fn remove(&mut self, index: usize) {
        let object = &mut self.objects[index];
        assert!(object.may_go(), "a locked or pinned object stays");
        object.live = false;
        self.value_bytes -= object.value.len();
        let forgotten = object.known().map_or(Version(0), |(version, _)| version);
        let known = std::mem::replace(&mut object.known, Known::Nothing);
        object.value.clear();
        if object.value.capacity() > VALUE_KEPT {
            object.value = Vec::new();
        }
        let entry = object.entry as usize;
        self.entries[entry].evicted = self.entries[entry].evicted.max(forgotten);
        if known == Known::Absent {
            self.forget_absent(entry, forgotten);
        }
        self.vacant.push(index as u32);
        let last = self.take_last(entry);
        if last.object != index as u32 {
            self.replace(entry, index as u32, last);
        }
    }

    /// The version at which a key of the entry was seen absent is stored no longer, or nowhere. A
    /// search that began before may return a lower one, so it must be repeated.
    pub(super) fn forget_absent(&mut self, number: usize, version: Version) {
        let entry = &mut self.entries[number];
        entry.epoch += 1;
        entry.evicted = entry.evicted.max(version);
    }

    /// Removes the last position of an entry, and its first page if that becomes empty.
    fn take_last(&mut self, number: usize) -> Position {
        let entry = &mut self.entries[number];
        let taken = |positions: &mut [Position]| {
            let last = positions.iter_mut().rev().find(|at| at.object != NONE)?;
            Some(std::mem::replace(last, FREE))
        };
        let page = entry.page;
        let last = if page == NONE {
            taken(&mut entry.positions)
        } else {
            let Page { positions, next } = &mut self.pages[page as usize];
            let last = taken(positions);
            if positions.iter().all(|at| at.object == NONE) {
                entry.page = *next;
                self.free_pages.push(page);
            }
            last
        };
        let Some(last) = last else { panic!("an object has a position in its entry") };
        last
    }

    /// Puts `position` where `object` stood.
    fn replace(&mut self, number: usize, object: u32, position: Position) {
        let entry = &mut self.entries[number];
        if let Some(at) = entry.positions.iter_mut().find(|at| at.object == object) {
            *at = position;
            return;
        }
        let mut page = entry.page;
        while page != NONE {
            let Page { positions, next } = &mut self.pages[page as usize];
            if let Some(at) = positions.iter_mut().find(|at| at.object == object) {
                *at = position;
                return;
            }
            page = *next;
        }
        panic!("an object has a position in its entry");
    }

    fn each_position(&self, number: usize, mut each: impl FnMut(Position)) {
        let entry = &self.entries[number];
        let mut visit = |positions: &[Position]| {
            positions.iter().filter(|at| at.object != NONE).for_each(|&at| each(at));
        };
        visit(&entry.positions);
        let mut page = entry.page;
        while page != NONE {
            visit(&self.pages[page as usize].positions);
            page = self.pages[page as usize].next;
        }
    }

    fn free_chain(&mut self, number: usize) {
        let mut page = std::mem::replace(&mut self.entries[number].page, NONE);
        while page != NONE {
            self.free_pages.push(page);
            page = self.pages[page as usize].next;
        }
    }

    /// Evicts while there are more objects than may be cached.
    pub(super) fn evict(&mut self) {
        self.evict_down_to(self.limits.cached);
    }

    /// Evicts by second chance down to `wanted` objects and the limit of their values' bytes,
    /// skipping locked and pinned ones. Gives up after [`EVICT_LOOKS`] objects, which bounds the
    /// cost of an operation when many are pinned.
    fn evict_down_to(&mut self, wanted: usize) {
        for _ in 0..EVICT_LOOKS {
            let large = self.value_bytes > self.limits.value_bytes && self.live() > 0;
            if self.live() <= wanted && !large {
                return;
            }
            self.hand = (self.hand + 1) % self.objects.len();
            let object = &mut self.objects[self.hand];
            if object.may_go() && !std::mem::take(&mut object.used) {
                self.remove(self.hand);
            }
        }
    }

    /// Checks the stripe's structure; returns what it counted.
    pub(super) fn check(&self) -> Counts {
        let mut counts = Counts::default();
        let (mut listed, mut chained) = (0, 0);
        for number in 0..self.entries.len() {
            let mut keys = Vec::new();
            self.each_position(number, |position| {
                let object = &self.objects[position.object as usize];
                assert!(object.live, "a listed object is live");
                assert!(object.entry as usize == number, "an object is in its own entry");
                let tag = SlotHash::of(object.key).tag();
                assert!(tag == position.tag, "a position has its object's tag");
                assert!(!keys.contains(&object.key), "a key has one object");
                keys.push(object.key);
                let only_locked = object.known().is_none();
                let locks = usize::from(object.held) + object.readers as usize;
                assert!(!only_locked || locks > 0, "an object says something");
                assert!(!object.held || object.readers == 0, "no lock is shared");
                let valued = object.known == Known::Present || object.value.is_empty();
                assert!(valued, "what is absent or unknown has no value");
                counts.locked += locks;
                counts.pinned += object.pins as usize;
            });
            listed += keys.len();
            let mut page = self.entries[number].page;
            while page != NONE {
                chained += 1;
                assert!(chained <= self.pages.len(), "a chain has no cycle");
                page = self.pages[page as usize].next;
            }
            let inline = keys.len().min(POSITIONS);
            let free = |at: &&Position| at.object == NONE;
            let own = POSITIONS - self.entries[number].positions.iter().filter(free).count();
            assert!(own == inline, "pages come behind full entries");
        }
        assert!(listed == self.live(), "every live object is listed once");
        let bytes: usize = self.objects.iter().map(|object| object.value.len()).sum();
        assert!(bytes == self.value_bytes, "bytes of values are counted");
        let vacant = self.vacant.iter().map(|&vacant| &self.objects[vacant as usize].value);
        let small = vacant.map(Vec::capacity).all(|bytes| bytes <= VALUE_KEPT);
        assert!(small, "a vacated object keeps little memory");
        assert!(chained + self.free_pages.len() == self.pages.len(), "a page is chained or free");
        let entries = (self.base << self.progress.level()) + self.progress.split();
        assert!(entries == self.entries.len() as u64, "entries follow the host table");
        counts
    }
}
