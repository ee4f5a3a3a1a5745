//! The NIC caching index: locks, versions, hot values and location hints. [Xenic21 4.1.3]
//!
//! One entry per segment of the host table. Entries are striped over short mutexes, so that NIC
//! cores that share the NIC's memory can use one index; no mutex is held across a fabric call.
//! Lock state lives only here.

use std::fmt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use nicol_core::ids::{Key, TxnId, Version};

use crate::host_table::Progress;

/// Mutexes that the segments are spread over.
const STRIPES: usize = 64;
const NONE: u32 = u32::MAX;

/// The index's size and the shape of the table it describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexConfig {
    /// Segments of the host table.
    pub segments: u64,
    /// Objects that may be cached; pinned and locked ones come on top when they must.
    pub cached_objects_max: usize,
}

/// Why a lock was not granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locked {
    /// The transaction that holds it.
    pub holder: TxnId,
}

/// What the index knows of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IndexLookup {
    /// The current version, and the value or that there is none.
    Hit {
        /// The version.
        version: Version,
        /// Does the record exist?
        present: bool,
    },
    /// It must be read from the host table.
    Miss {
        /// Highest known displacement of the segment's objects, d_i: a hint.
        displacement: u16,
        /// Changes with every install in the segment: see [`NicIndex::learn`].
        epoch: u64,
    },
}

#[derive(Debug)]
struct Object {
    key: Key,
    segment: u32,
    next: u32,
    holder: Option<TxnId>,
    /// Version and presence; `None` while only the lock is known.
    known: Option<(Version, bool)>,
    value: Vec<u8>,
    pins: u32,
    /// Second chance of the eviction clock.
    used: bool,
    live: bool,
}

impl Object {
    fn may_go(&self) -> bool {
        self.live && self.pins == 0 && self.holder.is_none()
    }
}

#[derive(Clone, Debug)]
struct Entry {
    first: u32,
    displacement: u16,
    epoch: u64,
    floor: Version,
}

#[derive(Debug)]
struct Stripe {
    entries: Vec<Entry>,
    objects: Vec<Object>,
    vacant: Vec<u32>,
    hand: usize,
    capacity: usize,
}

/// See the module.
pub struct NicIndex {
    stripes: Vec<Mutex<Stripe>>,
    locked: AtomicUsize,
    pinned: AtomicUsize,
    /// How far the host table has doubled, as far as the NIC knows.
    known: AtomicU64,
}

impl NicIndex {
    /// An empty index.
    pub fn new(config: IndexConfig) -> Self {
        let per_stripe = config.segments.div_ceil(STRIPES as u64) as usize;
        let blank = Entry { first: NONE, displacement: 0, epoch: 0, floor: Version(0) };
        let stripes = (0..STRIPES)
            .map(|_| {
                Mutex::new(Stripe {
                    entries: vec![blank.clone(); per_stripe],
                    objects: Vec::new(),
                    vacant: Vec::new(),
                    hand: 0,
                    capacity: config.cached_objects_max.div_ceil(STRIPES).max(1),
                })
            })
            .collect();
        Self {
            stripes,
            locked: AtomicUsize::new(0),
            pinned: AtomicUsize::new(0),
            known: AtomicU64::new(0),
        }
    }

    /// How far the host table has doubled, as far as the NIC knows: where it reads first.
    pub fn known(&self) -> Progress {
        Progress::from_word(self.known.load(Ordering::Relaxed))
    }

    /// Notes what a segment's header has shown of the host table's growth.
    pub fn follow(&self, progress: Progress) {
        self.known.fetch_max(progress.word(), Ordering::Relaxed);
    }

    /// Locks `key` for `txn`; granted again to the transaction that holds it.
    pub fn lock(&self, segment: u64, key: Key, txn: TxnId) -> Result<(), Locked> {
        let (mut stripe, entry) = self.open(segment);
        let index = stripe.find_or_add(entry, key);
        let object = &mut stripe.objects[index];
        match object.holder {
            Some(holder) if holder != txn => Err(Locked { holder }),
            Some(_) => Ok(()),
            None => {
                object.holder = Some(txn);
                self.locked.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
        }
    }

    /// Unlocks `key` if `txn` holds it; returns whether it did.
    pub fn unlock(&self, segment: u64, key: Key, txn: TxnId) -> bool {
        let (mut stripe, entry) = self.open(segment);
        let Some(index) = stripe.find(entry, key) else { return false };
        let object = &mut stripe.objects[index];
        if object.holder != Some(txn) {
            return false;
        }
        object.holder = None;
        self.locked.fetch_sub(1, Ordering::Relaxed);
        // An entry made for the lock alone says nothing any more.
        if object.known.is_none() {
            stripe.remove(index);
        }
        stripe.evict();
        true
    }

    /// The transaction that holds `key`.
    pub fn holder(&self, segment: u64, key: Key) -> Option<TxnId> {
        let (stripe, entry) = self.open(segment);
        stripe.find(entry, key).and_then(|index| stripe.objects[index].holder)
    }

    /// Looks `key` up; a hit's value is appended to `into`.
    pub fn lookup(&self, segment: u64, key: Key, into: &mut Vec<u8>) -> IndexLookup {
        let (mut stripe, entry) = self.open(segment);
        if let Some(index) = stripe.find(entry, key) {
            let object = &mut stripe.objects[index];
            object.used = true;
            if let Some((version, present)) = object.known {
                into.extend_from_slice(&object.value);
                return IndexLookup::Hit { version, present };
            }
        }
        let Entry { displacement, epoch, .. } = stripe.entries[entry];
        IndexLookup::Miss { displacement, epoch }
    }

    /// The version of every absent key of the segment that has no entry of its own.
    pub fn floor(&self, segment: u64) -> Version {
        let (stripe, entry) = self.open(segment);
        stripe.entries[entry].floor
    }

    /// Caches what a DMA read found, unless something was installed in the segment since the miss
    /// that caused the read (its `epoch` tells). Returns whether what was found is current.
    pub fn learn(
        &self,
        segment: u64,
        key: Key,
        epoch: u64,
        version: Version,
        found: Option<(&[u8], u16)>,
    ) -> bool {
        let (mut stripe, entry) = self.open(segment);
        if let Some((_, displacement)) = found {
            let known = &mut stripe.entries[entry].displacement;
            *known = (*known).max(displacement);
        }
        if stripe.entries[entry].epoch != epoch {
            return false;
        }
        let index = stripe.find_or_add(entry, key);
        let object = &mut stripe.objects[index];
        if object.known.is_none() {
            object.known = Some((version, found.is_some()));
            object.value.clear();
            object.value.extend_from_slice(found.map_or(&[], |(value, _)| value));
        }
        stripe.evict();
        true
    }

    /// Applies a COMMIT: the new value, or `None` for a deletion. Pins the object until the host
    /// has applied it (see [`NicIndex::unpin`]).
    ///
    /// # Panics
    /// If the version does not move forward: a write-set key is locked from EXECUTE to COMMIT.
    pub fn install(&self, segment: u64, key: Key, version: Version, value: Option<&[u8]>) {
        let (mut stripe, entry) = self.open(segment);
        let index = stripe.find_or_add(entry, key);
        let object = &mut stripe.objects[index];
        if let Some((known, _)) = object.known {
            assert!(version > known, "a COMMIT moves the version forward");
        }
        object.known = Some((version, value.is_some()));
        object.value.clear();
        object.value.extend_from_slice(value.unwrap_or_default());
        object.pins += 1;
        object.used = true;
        let entry = &mut stripe.entries[entry];
        entry.epoch += 1;
        if value.is_none() {
            entry.floor = entry.floor.max(version);
        }
        self.pinned.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes one pin back.
    ///
    /// # Panics
    /// If `key` is not pinned.
    pub fn unpin(&self, segment: u64, key: Key) {
        let (mut stripe, entry) = self.open(segment);
        let index = stripe.find(entry, key);
        assert!(index.is_some(), "a pinned object stays in the index");
        let Some(index) = index else { return };
        let object = &mut stripe.objects[index];
        assert!(object.pins > 0, "an object is unpinned as often as it was pinned");
        object.pins -= 1;
        self.pinned.fetch_sub(1, Ordering::Relaxed);
        stripe.evict();
    }

    /// Keys that are locked.
    pub fn locked_count(&self) -> usize {
        self.locked.load(Ordering::Relaxed)
    }

    /// Pins that have not been taken back.
    pub fn pinned_count(&self) -> usize {
        self.pinned.load(Ordering::Relaxed)
    }

    /// Objects in the index.
    pub fn object_count(&self) -> usize {
        self.stripes.iter().map(|stripe| stripe_of(stripe).live()).sum()
    }

    /// Checks every structural invariant.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        let (mut locked, mut pinned) = (0, 0);
        for stripe in &self.stripes {
            let stripe = stripe_of(stripe);
            let mut listed = 0;
            for (number, entry) in stripe.entries.iter().enumerate() {
                let mut at = entry.first;
                while at != NONE {
                    let object = &stripe.objects[at as usize];
                    assert!(object.live, "a listed object is live");
                    assert!(object.segment as usize == number, "an object is in its own entry");
                    locked += usize::from(object.holder.is_some());
                    pinned += object.pins as usize;
                    listed += 1;
                    assert!(listed <= stripe.objects.len(), "a chain has no cycle");
                    at = object.next;
                }
            }
            assert!(listed == stripe.live(), "every live object is listed once");
        }
        assert!(locked == self.locked_count(), "the locks are counted");
        assert!(pinned == self.pinned_count(), "the pins are counted");
    }

    fn open(&self, segment: u64) -> (MutexGuard<'_, Stripe>, usize) {
        let stripe = &self.stripes[(segment % STRIPES as u64) as usize];
        (stripe_of(stripe), (segment / STRIPES as u64) as usize)
    }
}

fn stripe_of(stripe: &Mutex<Stripe>) -> MutexGuard<'_, Stripe> {
    stripe.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stripe {
    fn live(&self) -> usize {
        self.objects.len() - self.vacant.len()
    }

    fn find(&self, entry: usize, key: Key) -> Option<usize> {
        let mut at = self.entries[entry].first;
        while at != NONE {
            let object = &self.objects[at as usize];
            if object.key == key {
                return Some(at as usize);
            }
            at = object.next;
        }
        None
    }

    fn find_or_add(&mut self, entry: usize, key: Key) -> usize {
        if let Some(index) = self.find(entry, key) {
            self.objects[index].used = true;
            return index;
        }
        let index = match self.vacant.pop() {
            Some(index) => index as usize,
            None => {
                self.objects.push(Object {
                    key,
                    segment: 0,
                    next: NONE,
                    holder: None,
                    known: None,
                    value: Vec::new(),
                    pins: 0,
                    used: false,
                    live: false,
                });
                self.objects.len() - 1
            }
        };
        let next = std::mem::replace(&mut self.entries[entry].first, index as u32);
        let object = &mut self.objects[index];
        assert!(!object.live, "a vacant place holds no object");
        object.key = key;
        object.segment = entry as u32;
        object.next = next;
        object.live = true;
        object.used = true;
        index
    }

    fn remove(&mut self, index: usize) {
        let (entry, next) = {
            let object = &mut self.objects[index];
            assert!(object.may_go(), "a locked or pinned object stays");
            object.live = false;
            object.known = None;
            object.value.clear();
            (object.segment as usize, object.next)
        };
        let mut at = self.entries[entry].first;
        if at == index as u32 {
            self.entries[entry].first = next;
        } else {
            while self.objects[at as usize].next != index as u32 {
                at = self.objects[at as usize].next;
            }
            self.objects[at as usize].next = next;
        }
        self.vacant.push(index as u32);
    }

    /// Evicts by second chance while there are more objects than the capacity, skipping locked and
    /// pinned ones; gives up after two turns of the hand.
    fn evict(&mut self) {
        let mut looks = 2 * self.objects.len();
        while self.live() > self.capacity && looks > 0 {
            looks -= 1;
            self.hand = (self.hand + 1) % self.objects.len();
            let object = &mut self.objects[self.hand];
            if !object.may_go() {
                continue;
            }
            if std::mem::take(&mut object.used) {
                continue;
            }
            let hand = self.hand;
            self.remove(hand);
        }
    }
}

impl fmt::Debug for NicIndex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NicIndex({} objects, {} locked)", self.object_count(), self.locked_count())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use nicol_core::chance::{Purpose, Stream};

    use super::*;

    fn txn(number: u64) -> TxnId {
        TxnId(number)
    }

    #[test]
    fn a_lock_has_one_holder_and_outlives_eviction() {
        let index = NicIndex::new(IndexConfig { segments: 64, cached_objects_max: 1 });
        assert_eq!(index.lock(0, Key(1), txn(1)), Ok(()));
        assert_eq!(index.lock(0, Key(1), txn(1)), Ok(()));
        assert_eq!(index.lock(0, Key(1), txn(2)), Err(Locked { holder: txn(1) }));
        for key in 10..100 {
            assert!(index.learn(0, Key(key), 0, Version(1), Some((b"value", 0))));
            index.check();
        }
        assert_eq!(index.holder(0, Key(1)), Some(txn(1)));
        assert!(!index.unlock(0, Key(1), txn(2)));
        assert!(index.unlock(0, Key(1), txn(1)));
        assert_eq!((index.locked_count(), index.holder(0, Key(1))), (0, None));
        index.check();
    }

    #[test]
    fn a_read_that_began_before_an_install_is_not_cached() {
        let index = NicIndex::new(IndexConfig { segments: 4, cached_objects_max: 64 });
        let IndexLookup::Miss { epoch, .. } = index.lookup(3, Key(7), &mut Vec::new()) else {
            panic!("an empty index misses");
        };
        index.install(3, Key(7), Version(2), Some(b"new"));
        index.unpin(3, Key(7));
        assert!(!index.learn(3, Key(7), epoch, Version(1), Some((b"old", 0))));
        let mut value = Vec::new();
        let hit = index.lookup(3, Key(7), &mut value);
        assert_eq!(hit, IndexLookup::Hit { version: Version(2), present: true });
        assert_eq!(value, b"new");
    }

    #[test]
    fn it_agrees_with_a_model_whatever_happens() {
        let mut random = Stream::new(5, Purpose::Test, 0);
        let index = NicIndex::new(IndexConfig { segments: 8, cached_objects_max: 16 });
        let mut host: BTreeMap<u64, (u64, Option<Vec<u8>>)> = BTreeMap::new();
        let mut pins: Vec<u64> = Vec::new();
        let mut sometimes_evicted = false;
        for step in 0..20_000u64 {
            let key = random.below(200);
            let segment = key % 8;
            match random.below(3) {
                0 => {
                    let (version, value) = host.entry(key).or_insert((0, None));
                    *version += 1;
                    let floor = index.floor(segment).0;
                    *version = (*version).max(floor + 1);
                    *value = (random.below(4) != 0).then(|| step.to_le_bytes().to_vec());
                    index.install(segment, Key(key), Version(*version), value.as_deref());
                    pins.push(key);
                }
                1 => {
                    if let Some(key) = pins.pop() {
                        index.unpin(key % 8, Key(key));
                    }
                }
                _ => {
                    let mut read = Vec::new();
                    match index.lookup(segment, Key(key), &mut read) {
                        IndexLookup::Hit { version, present } => {
                            let (expected, value) = &host[&key];
                            assert_eq!(version.0, *expected);
                            assert_eq!(present.then_some(read), *value);
                        }
                        IndexLookup::Miss { epoch, .. } => {
                            sometimes_evicted |= host.contains_key(&key);
                            if let Some((version, Some(value))) = host.get(&key) {
                                let found = Some((value.as_slice(), 1));
                                index.learn(segment, Key(key), epoch, Version(*version), found);
                            }
                        }
                    }
                }
            }
            index.check();
        }
        assert!(sometimes_evicted, "the capacity was never reached");
    }
}
